//===- ZipfBatches.h - Batches of ids that are drawn ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_ZIPFBATCHES_H
#define STEM_TOOLS_STEM_RUN_ZIPFBATCHES_H

#include "stem/Data/Batch.h"

#include <cstdint>
#include <vector>

namespace stem {

/// Ids as often as words of a text: the k-th most frequent one with a
/// probability of k^-1.05, which id that is being drawn too. Batch n is a
/// function of the seed and n.
class ZipfBatches {
public:
  ZipfBatches(uint64_t vocabulary, uint64_t seed);

  /// Labels are the ids that follow.
  Batch next(int64_t rows, int64_t length);

private:
  int32_t draw(uint64_t index) const;

  uint64_t seed, count = 0;
  std::vector<double> sums; ///< of probabilities, by rank
  std::vector<int32_t> idOfRank;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_ZIPFBATCHES_H
