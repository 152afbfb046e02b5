//===- LowRankTerm.h - A low-rank map of the hidden state -------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_CALIBRATION_LOWRANKTERM_H
#define STEM_CALIBRATION_LOWRANKTERM_H

#include "stem-c/Runtime.h"
#include "stem/Runtime/Arena.h"

#include <span>
#include <vector>

namespace stem {

/// h -> A (B h), what stem.mix adds to a row, in f32.
class LowRankTerm {
public:
  /// a: ffn x rank, b: rank x hidden. The context outlives the object.
  LowRankTerm(stem_context *context, int64_t ffn, int64_t hidden, int64_t rank,
              std::vector<float> a, std::vector<float> b);

  static int64_t bytes(int64_t ffn, int64_t hidden, int64_t rank);

  /// h: count x hidden, out: count x ffn.
  void apply(const float *h, int64_t count, float *out) const;

  std::span<const float> a() const { return aValues; }
  std::span<const float> b() const { return bValues; }

private:
  stem_context *context;
  int64_t ffn, hidden, rank;
  std::vector<float> aValues, bValues;
  Arena packedA, packedB;
};

} // namespace stem

#endif // STEM_CALIBRATION_LOWRANKTERM_H
