//===- BuildIdentity.h - What makes compiled code -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TARGET_BUILDIDENTITY_H
#define STEM_LIB_TARGET_BUILDIDENTITY_H

#include <string>

namespace stem {

/// Path, size and time of this program and of the libraries of LLVM, MLIR and
/// Stem in it, a line each: another build of any of them gives another text.
/// Found once; nothing of the files is read.
const std::string &buildIdentity();

} // namespace stem

#endif // STEM_LIB_TARGET_BUILDIDENTITY_H
