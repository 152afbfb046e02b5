//===- BF16.h - bf16 and f32 ------------------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bf16 is the upper half of an f32. Nothing here branches, so that loops over
// many elements become vectors of what instructions the caller is compiled for.
// A NaN keeps its sign and upper payload and becomes quiet: one whose payload
// lies in the lower half would turn into an infinity.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_BF16_H
#define STEM_SUPPORT_BF16_H

#include <bit>
#include <cstdint>

namespace stem {

[[gnu::always_inline]] inline float widenBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// The upper half of value + `added` units of its last place.
[[gnu::always_inline]] inline uint16_t upperHalf(float value, uint32_t added) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool isNaN = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((isNaN ? bits | 0x400000 : bits + added) >> 16);
}

/// To nearest, ties to even.
[[gnu::always_inline]] inline uint16_t roundToBF16(float value) {
  return upperHalf(value,
                   0x7fff + ((std::bit_cast<uint32_t>(value) >> 16) & 1));
}

/// Up in magnitude with the probability of the part that is cut off, out of 16
/// random bits. The mean is the value.
[[gnu::always_inline]] inline uint16_t roundToBF16AtRandom(float value,
                                                           uint16_t random) {
  return upperHalf(value, random);
}

using FourFloats = float __attribute__((vector_size(16)));
using FourWords = uint32_t __attribute__((vector_size(16)));

/// roundToBF16 of four, in the upper halves; the lower ones are 0.
[[gnu::always_inline]] inline FourWords roundFourToBF16(FourFloats values) {
  const FourWords bits = std::bit_cast<FourWords>(values);
  const FourWords rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const FourWords isNaN =
      std::bit_cast<FourWords>((bits & 0x7fffffff) > 0x7f800000);
  return ((rounded & ~isNaN) | ((bits | 0x400000) & isNaN)) & 0xffff0000;
}

} // namespace stem

#endif // STEM_SUPPORT_BF16_H
