//===- Format.h - Sizes and times for people --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_FORMAT_H
#define STEM_SUPPORT_FORMAT_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// Bytes in decimal units: 94371840 gives "94.4 MB".
std::string formatBytes(double bytes);

/// A count in decimal units: 134515008 gives "134.5 M".
std::string formatCount(double count);

/// Seconds with three digits in the unit that reads best.
std::string formatSeconds(double seconds);

/// Rising numbers as "0-1, 3-4, 6"; "none" where there are none.
std::string formatRanges(const std::vector<uint64_t> &numbers);

/// `text` fit for a message: control characters escaped, cut after 200 bytes.
std::string printable(std::string_view text);

/// The same for a whole message: lines and tabs stay, and of a very long one
/// the middle goes.
std::string visible(std::string_view text);

} // namespace stem

#endif // STEM_SUPPORT_FORMAT_H
