//===- Guard.h - Bad input gives a message, not a crash ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_OPT_GUARD_H
#define STEM_TOOLS_STEM_OPT_GUARD_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>

namespace stem {

/// From here on a crash or a fatal error of MLIR, on any thread, is one message
/// of `tool` and exit code 1. Comes first in main.
void guardAgainstCrashes(const char *tool);

/// How the process ends in a crash that LLVM's handlers do not see.
[[noreturn]] void endWithCrashMessage();

/// Reads IR from a regular file, or from standard input for "-". Reports what
/// is neither, and what the recursive parser could not take: brackets that are
/// nested too deep. Null then.
std::unique_ptr<llvm::MemoryBuffer> readInput(llvm::StringRef path);

} // namespace stem

#endif // STEM_TOOLS_STEM_OPT_GUARD_H
