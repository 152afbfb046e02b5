//===- BF16Test.cpp - Rounding to bf16 ------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/BF16.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace stem;

namespace {

/// Lower halves around what decides: nothing to round, less than half of a unit
/// in the last place, half of it, more, and the most.
constexpr uint32_t lowerHalves[] = {0,      1,      0x3fff, 0x7ffe, 0x7fff,
                                    0x8000, 0x8001, 0xbfff, 0xfffe, 0xffff};

float valueOf(uint32_t bits) { return std::bit_cast<float>(bits); }

/// What the bf16 stands for, were its exponents without end: what rounds up
/// from the largest number is 2^128.
double magnitudeOf(uint32_t upper) {
  return upper == 0x7f80 ? 0x1p128 : double(valueOf(upper << 16));
}

/// By distances. Of two that are equally near the one whose last bit is 0.
uint32_t nearest(uint32_t bits) {
  const uint32_t sign = bits >> 31 << 15, down = (bits & 0x7fffffff) >> 16;
  const double value = std::fabs(valueOf(bits));
  const double below = value - magnitudeOf(down);
  const double above = magnitudeOf(down + 1) - value;
  const bool isUp = above < below || (above == below && down % 2 == 1);
  return sign | (down + isUp);
}

uint32_t quiet(uint32_t bits) { return (bits | 0x400000) >> 16; }

// Every upper half: signs, subnormal numbers, the largest, infinities, NaN.
TEST(BF16, RoundsToNearestEven) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const uint32_t lower : lowerHalves) {
      const uint32_t bits = upper << 16 | lower;
      const float value = valueOf(bits);
      const uint32_t wanted = std::isnan(value)   ? quiet(bits)
                              : std::isinf(value) ? upper
                                                  : nearest(bits);
      ASSERT_EQ(roundToBF16(value), wanted) << std::hex << bits;
    }
  EXPECT_EQ(roundToBF16(valueOf(0x3f808000)), 0x3f80); // tie, down
  EXPECT_EQ(roundToBF16(valueOf(0x3f818000)), 0x3f82); // tie, up
  EXPECT_EQ(roundToBF16(valueOf(0xff7fffff)), 0xff80); // to infinity
  EXPECT_EQ(roundToBF16(valueOf(0x7f800001)), 0x7fc0); // a NaN stays one
}

// Four different values at a time, whole registers of NaN among them.
TEST(BF16, RoundsFourAsOne) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (size_t i = 0; i + 3 < std::size(lowerHalves); i += 3) {
      FourFloats values;
      for (size_t lane = 0; lane < 4; ++lane)
        values[lane] = valueOf(upper << 16 | lowerHalves[i + lane]);
      const FourWords rounded = roundFourToBF16(values);
      for (size_t lane = 0; lane < 4; ++lane)
        ASSERT_EQ(rounded[lane], uint32_t(roundToBF16(values[lane])) << 16)
            << std::hex << upper << " " << lowerHalves[i + lane];
    }
  const FourFloats mixed = {1.5f, valueOf(0xff800001), -INFINITY, -0.0f};
  const FourWords rounded = roundFourToBF16(mixed);
  EXPECT_EQ(rounded[0], 0x3fc00000u);
  EXPECT_EQ(rounded[1], 0xffc00000u);
  EXPECT_EQ(rounded[2], 0xff800000u);
  EXPECT_EQ(rounded[3], 0x80000000u);
}

// Up where the random bits and the lower half have a carry.
TEST(BF16, RoundsAtRandom) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const uint32_t lower : lowerHalves)
      for (const uint32_t random : lowerHalves) {
        const uint32_t bits = upper << 16 | lower;
        const float value = valueOf(bits);
        const uint32_t wanted =
            std::isnan(value) ? quiet(bits) : upper + (lower + random > 0xffff);
        ASSERT_EQ(roundToBF16AtRandom(value, uint16_t(random)), wanted)
            << std::hex << bits << " " << random;
      }
}

TEST(BF16, WidensExactly) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    ASSERT_EQ(std::bit_cast<uint32_t>(widenBF16(uint16_t(upper))), upper << 16);
}

} // namespace
