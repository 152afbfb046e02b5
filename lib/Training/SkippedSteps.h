//===- SkippedSteps.h - The steps that a row was not in ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRAINING_SKIPPEDSTEPS_H
#define STEM_LIB_TRAINING_SKIPPEDSTEPS_H

#include "stem/Training/AdamW.h"

#include <array>
#include <vector>

namespace stem {

/// What brings a row from the step where it was last stepped to the present
/// (RowOptimizer.h has the formulas).
struct CatchUp {
  int64_t last = -1;
  float loss;       ///< 1 - P(l, T)
  float firstKept;  ///< of m
  float secondKept; ///< of v
  float epsilon;
  /// Two skipped steps, so that they share a division; the second is all zeros
  /// where their number is odd.
  struct Pair {
    std::array<float, 2> a, c;
  };
  /// From the last to the first: the least terms first.
  std::vector<Pair> pairs;
};

/// The learning rates so far, and what catching up needs of them.
class SkippedSteps {
public:
  explicit SkippedSteps(const AdamWOptions &options);

  void append(double learningRate);

  int64_t steps() const { return int64_t(rates.size()); }
  const std::vector<double> &learningRates() const { return rates; }

  /// Fills `catchUp` for a row last stepped at `last`; keeps one that is.
  void plan(int64_t last, CatchUp &catchUp) const;

private:
  AdamWOptions options;
  int64_t replayed;
  std::vector<double> firstPowers; ///< beta1^j
  std::vector<double> rootPowers;  ///< beta2^(j/2)
  // Of step s, at s - 1.
  std::vector<double> rates;
  std::vector<double> unbiasedRates; ///< lr / (1 - beta1^s)
  std::vector<double> rootScales;    ///< 1 / sqrt(1 - beta2^s)
  std::vector<double> logKept;       ///< at s: log P(0, s)
};

} // namespace stem

#endif // STEM_LIB_TRAINING_SKIPPEDSTEPS_H
