//===- HostTarget.h - Machine code for this kind of machine ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TARGET_HOSTTARGET_H
#define STEM_TARGET_HOSTTARGET_H

#include "stem-c/Runtime.h"

#include "stem/Support/Error.h"

#include "mlir/IR/BuiltinOps.h"

#include <filesystem>
#include <string>

namespace stem {

/// What LLVM generates code for.
struct HostTarget {
  stem_isa isa;
  std::string cpu;
  std::string features;

  bool hasNativeBf16() const { return isa >= STEM_ISA_AVX512_BF16; }
};

/// This machine, capped to `isa`: an AVX2 target uses nothing newer, so that
/// its code is that of an AVX2 machine bit for bit.
HostTarget hostTarget(stem_isa isa);

/// A file could not be written where it was to be; another place may do.
class OutputError : public Error {
public:
  using Error::Error;
};

/// Translates a module of the LLVM dialect, optimises it and links it as a
/// shared object at `path`, which appears only when it is complete. Throws an
/// Error with the tool's own words when that fails, an OutputError where it is
/// `path` or its folder that fails.
void emitSharedObject(mlir::ModuleOp module, const HostTarget &target,
                      const std::filesystem::path &path);

} // namespace stem

#endif // STEM_TARGET_HOSTTARGET_H
