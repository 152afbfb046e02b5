//===- ZipfBatches.cpp - Batches of ids that are drawn --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ZipfBatches.h"

#include "stem/Runtime/Philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace stem;

static constexpr double kExponent = 1.05;

/// Stream 0 orders the ids; batch n has stream n.
ZipfBatches::ZipfBatches(uint64_t vocabulary, uint64_t seed)
    : seed(seed), idOfRank(vocabulary) {
  double sum = 0;
  for (uint64_t rank = 1; rank <= vocabulary; ++rank)
    sums.push_back(sum += std::pow(double(rank), -kExponent));
  std::iota(idOfRank.begin(), idOfRank.end(), 0);
  for (uint64_t i = vocabulary; i > 1; --i)
    std::swap(
        idOfRank[i - 1],
        idOfRank[static_cast<uint64_t>(philoxUniform(seed, 0, i) * double(i))]);
}

int32_t ZipfBatches::draw(uint64_t index) const {
  const double place = philoxUniform(seed, count, index) * sums.back();
  const auto rank = std::min<size_t>(
      std::ranges::upper_bound(sums, place) - sums.begin(), sums.size() - 1);
  return idOfRank[rank];
}

Batch ZipfBatches::next(int64_t rows, int64_t length) {
  ++count;
  Batch batch;
  batch.rows = rows;
  batch.length = length;
  batch.labelCount = rows * length;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<uint64_t>(row * (length + 1) + i);
      batch.ids.push_back(draw(at));
      batch.labels.push_back(draw(at + 1));
      batch.positions.push_back(static_cast<int32_t>(i));
      batch.sequences.push_back(static_cast<int32_t>(row));
    }
  return batch;
}
