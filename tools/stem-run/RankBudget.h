//===- RankBudget.h - Ranks of low-rank terms within a budget -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_RANKBUDGET_H
#define STEM_TOOLS_STEM_RUN_RANKBUDGET_H

#include <cstdint>
#include <span>
#include <vector>

namespace stem {

/// What the ranks of a layer's low-rank term are worth.
struct RankWorth {
  double loss = 0; ///< what the layer's conversion costs without a term, nats
  std::span<const double> gains; ///< shares of it, one a rank, falling
};

/// Ranks come in steps of this.
constexpr int64_t kRankStep = 8;

/// Shares `total` ranks out among layers, step by step to the one whose next
/// step is worth most. None gets more than it has gains. Where losses are not
/// positive, gains alone decide.
std::vector<int64_t> shareOutRanks(std::span<const RankWorth> layers,
                                   int64_t total);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_RANKBUDGET_H
