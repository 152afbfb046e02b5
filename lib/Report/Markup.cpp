//===- Markup.cpp - Text and numbers in a page ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Report/Markup.h"

#include <cmath>
#include <cstdint>
#include <fmt/format.h>

using namespace stem;

/// Length of the UTF-8 character at the beginning of `text`; 0 where there is
/// none, or one that XML does not have.
static size_t characterLength(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80)
    return first >= 0x20 || first == '\t' || first == '\n' ? 1 : 0;
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0)
    return 0;
  uint32_t code = first & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool isSurrogate = code >= 0xd800 && code < 0xe000;
  const bool isControl = code < 0xa0 || code == 0xfffe || code == 0xffff;
  return code < least[length] || code > 0x10ffff || isSurrogate || isControl
             ? 0
             : length;
}

std::string stem::escapeMarkup(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = characterLength(text);
    switch (text[0]) {
    case '&':
      result += "&amp;";
      break;
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '"':
      result += "&quot;";
      break;
    case '\'':
      result += "&#39;";
      break;
    default:
      result += length == 0 ? "\xef\xbf\xbd" : text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

std::string stem::formatNumber(double value) {
  if (std::isnan(value))
    return "NaN";
  if (std::isinf(value))
    return value > 0 ? "infinity" : "-infinity";
  const double size = std::abs(value);
  if (value == 0)
    return "0";
  if (size >= 1e6 || size < 1e-4)
    return fmt::format("{:.4g}", value);
  if (size >= 1e3)
    return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}
