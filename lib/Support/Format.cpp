//===- Format.cpp - Sizes and times for people ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Format.h"

#include <array>
#include <fmt/format.h>

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
