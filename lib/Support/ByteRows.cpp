//===- ByteRows.cpp - Rows of 8 bits --------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/ByteRows.h"

#include <algorithm>
#include <cmath>

using namespace stem;

static constexpr double kLargestByte = 255;

static float decode(double byte, ByteScale scale) {
  return static_cast<float>(double(scale.minimum) + double(scale.scale) * byte);
}

/// The nearest f32, but where that leaves the maximum out of reach: rounded up
/// it may be beyond the largest f32, rounded down to a few denormal units it
/// may fall short by more than the bound.
static float scaleOf(double minimum, double maximum) {
  float scale = static_cast<float>((maximum - minimum) / kLargestByte);
  if (!std::isfinite(decode(kLargestByte, {scale, float(minimum)})))
    scale = std::nextafter(scale, 0.0F);
  else if (maximum - (minimum + kLargestByte * double(scale)) > scale / 2.0)
    scale = std::nextafter(scale, INFINITY);
  return scale;
}

std::optional<ByteScale> stem::encodeByteRow(std::span<const float> row,
                                             uint8_t *bytes) {
  if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); }))
    return std::nullopt;
  const auto [least, largest] = std::ranges::minmax(row);
  const double minimum = least, scale = scaleOf(least, largest);
  const double perScale = scale > 0 ? 1 / scale : 0;
  for (size_t i = 0; i < row.size(); ++i)
    bytes[i] = static_cast<uint8_t>(
        std::min((row[i] - minimum) * perScale + 0.5, kLargestByte));
  return ByteScale{static_cast<float>(scale), least};
}

void stem::decodeByteRow(std::span<const uint8_t> bytes, ByteScale scale,
                         float *out) {
  for (size_t i = 0; i < bytes.size(); ++i)
    out[i] = decode(bytes[i], scale);
}
