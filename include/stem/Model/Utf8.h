//===- Utf8.h - Text that is not UTF-8 --------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_UTF8_H
#define STEM_MODEL_UTF8_H

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stem {

/// The offset of the first byte that belongs to no character.
std::optional<size_t> findInvalidUtf8(std::string_view text);

/// What an Error says of the byte at that offset.
std::string describeInvalidUtf8(std::string_view text, size_t offset);

} // namespace stem

#endif // STEM_MODEL_UTF8_H
