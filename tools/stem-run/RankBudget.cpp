//===- RankBudget.cpp - Ranks of low-rank terms within a budget -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankBudget.h"

#include <algorithm>
#include <numeric>

using namespace stem;

/// Of the step that would follow `rank`; -1: there is none.
static double worthOfNext(const RankWorth &layer, double scale, int64_t rank) {
  if (rank + kRankStep > static_cast<int64_t>(layer.gains.size()))
    return -1;
  const auto first = layer.gains.begin() + rank;
  return scale * std::accumulate(first, first + kRankStep, 0.0);
}

std::vector<int64_t> stem::shareOutRanks(std::span<const RankWorth> layers,
                                         int64_t total) {
  const bool lossesCount =
      std::all_of(layers.begin(), layers.end(),
                  [](const RankWorth &layer) { return layer.loss > 0; });
  std::vector<int64_t> ranks(layers.size());
  std::vector<double> next(layers.size());
  const auto update = [&](size_t i) {
    next[i] =
        worthOfNext(layers[i], lossesCount ? layers[i].loss : 1, ranks[i]);
  };
  for (size_t i = 0; i < layers.size(); ++i)
    update(i);
  for (; total >= kRankStep && !layers.empty(); total -= kRankStep) {
    const auto best = std::max_element(next.begin(), next.end());
    if (*best < 0)
      break;
    const size_t i = static_cast<size_t>(best - next.begin());
    ranks[i] += kRankStep;
    update(i);
  }
  return ranks;
}
