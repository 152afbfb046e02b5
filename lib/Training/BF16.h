//===- BF16.h - bf16 in vectors ---------------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRAINING_BF16_H
#define STEM_LIB_TRAINING_BF16_H

#include "AdamStep.h"

#include <bit>
#include <cstdint>

namespace stem {

STEM_INLINE float widened(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

/// The upper half of value + `added` units of its last place; a NaN stays one.
STEM_INLINE uint16_t upperHalf(float value, uint32_t added) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sum = value == value ? bits + added : bits | 0x400000;
  return uint16_t(sum >> 16);
}

/// To nearest, ties to even.
STEM_INLINE uint16_t roundedToNearest(float value) {
  uint32_t odd = std::bit_cast<uint32_t>(value) >> 16 & 1;
  return upperHalf(value, 0x7fff + odd);
}

/// Up in magnitude with the probability of the part that is cut off, out of 16
/// random bits. The mean is the value.
STEM_INLINE uint16_t roundedAtRandom(float value, uint16_t random) {
  return upperHalf(value, random);
}

} // namespace stem

#endif // STEM_LIB_TRAINING_BF16_H
