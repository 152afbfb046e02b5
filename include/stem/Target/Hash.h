//===- Hash.h - Names for contents ------------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TARGET_HASH_H
#define STEM_TARGET_HASH_H

#include <string>

namespace stem {

/// SHA-256 of a text in hex.
std::string hashText(const std::string &text);

} // namespace stem

#endif // STEM_TARGET_HASH_H
