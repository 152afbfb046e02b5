//===- Format.cpp - Sizes and times for people ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Format.h"

#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace stem;

std::string stem::formatBytes(double bytes) {
  static constexpr std::array<const char *, 6> units = {"B",  "KB", "MB",
                                                        "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 1000.0 && unit + 1 < units.size(); ++unit)
    bytes /= 1000.0;
  return unit == 0 ? fmt::format("{:.0f} B", bytes)
                   : fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::string stem::formatCount(double count) {
  static constexpr std::array<const char *, 5> units = {"", " K", " M", " G",
                                                        " T"};
  size_t unit = 0;
  for (; count >= 1000.0 && unit + 1 < units.size(); ++unit)
    count /= 1000.0;
  return unit == 0 ? fmt::format("{:.0f}", count)
                   : fmt::format("{:.4g}{}", count, units[unit]);
}

std::string stem::formatSeconds(double seconds) {
  if (seconds < 1e-3)
    return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1.0)
    return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 120.0)
    return fmt::format("{:.3g} s", seconds);
  return fmt::format("{:.3g} min", seconds / 60.0);
}

std::string stem::formatRanges(const std::vector<uint64_t> &numbers) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1)
      ++end;
    parts.push_back(begin == end
                        ? fmt::format("{}", numbers[begin])
                        : fmt::format("{}-{}", numbers[begin], numbers[end]));
    begin = end + 1;
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

/// Length of the control character at the beginning of `text`: one byte, or two
/// for U+0080 to U+009F, which terminals take as escapes too; 0 for none.
static size_t controlLength(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f)
    return 1;
  return first == 0xc2 && text.size() > 1 &&
                 static_cast<unsigned char>(text[1]) < 0xa0
             ? 2
             : 0;
}

static std::string escapeControls(std::string_view text,
                                  std::string_view kept) {
  std::string result;
  while (!text.empty()) {
    size_t length = controlLength(text);
    if (length == 0 || kept.find(text[0]) != std::string_view::npos) {
      result += text[0];
      length = 1;
    } else {
      for (const char c : text.substr(0, length))
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(length);
  }
  return result;
}

/// Where a cut leaves whole characters of UTF-8, at or before `length`.
static size_t cutBefore(std::string_view text, size_t length) {
  while (length > 0 &&
         (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80)
    --length;
  return length;
}

std::string stem::printable(std::string_view text) {
  constexpr size_t limit = 200;
  if (text.size() <= limit)
    return escapeControls(text, "");
  return escapeControls(text.substr(0, cutBefore(text, limit)), "") +
         fmt::format("… ({} bytes)", text.size());
}

std::string stem::visible(std::string_view text) {
  constexpr size_t limit = 8000, part = 2000;
  if (text.size() <= limit)
    return escapeControls(text, "\n\t");
  const size_t tail = cutBefore(text, text.size() - part);
  return escapeControls(text.substr(0, cutBefore(text, part)), "\n\t") +
         fmt::format(" … ({} bytes) … ", text.size()) +
         escapeControls(text.substr(tail), "\n\t");
}
