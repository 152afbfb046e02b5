//===- BF16.h - Rounding to bf16 --------------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_CALIBRATION_BF16_H
#define STEM_CALIBRATION_BF16_H

#include <bit>
#include <cstdint>

namespace stem {

/// To nearest, ties to even, without a branch; NaN stays NaN.
inline uint16_t roundToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool isNan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(isNan ? (bits >> 16) | 0x40 : rounded >> 16);
}

inline float widenBF16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

} // namespace stem

#endif // STEM_CALIBRATION_BF16_H
