//===- RankBudgetTest.cpp - Ranks of low-rank terms within a budget -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankBudget.h"

#include <gtest/gtest.h>

using namespace stem;

namespace {

std::vector<double> falling(size_t count, double first, double factor) {
  std::vector<double> gains;
  for (; gains.size() < count; first *= factor)
    gains.push_back(first);
  return gains;
}

TEST(RankBudget, AlikeLayersGetAlikeRanks) {
  const std::vector<double> gains = falling(64, 1, 0.9);
  const std::vector<RankWorth> layers(4, {1, gains});
  EXPECT_EQ(shareOutRanks(layers, 64), (std::vector<int64_t>{16, 16, 16, 16}));
}

TEST(RankBudget, TheCostlyLayerGetsMore) {
  const std::vector<double> gains = falling(64, 1, 0.9);
  const std::vector<int64_t> ranks =
      shareOutRanks(std::vector<RankWorth>{{1, gains}, {3, gains}}, 64);
  EXPECT_EQ(ranks[0] + ranks[1], 64);
  EXPECT_GT(ranks[1], ranks[0]);
}

TEST(RankBudget, TheLayerWithFewDirectionsGetsLess) {
  const std::vector<double> steep = falling(64, 1, 0.5),
                            flat = falling(64, 1, 0.99);
  const std::vector<int64_t> ranks =
      shareOutRanks(std::vector<RankWorth>{{1, steep}, {1, flat}}, 64);
  EXPECT_LT(ranks[0], ranks[1]);
}

/// No more than there are, and whole steps alone.
TEST(RankBudget, Bounds) {
  const std::vector<double> gains = falling(20, 1, 0.9);
  const std::vector<RankWorth> layers = {{1, gains}};
  EXPECT_EQ(shareOutRanks(layers, 1000), (std::vector<int64_t>{16}));
  EXPECT_EQ(shareOutRanks(layers, 15), (std::vector<int64_t>{8}));
  EXPECT_EQ(shareOutRanks(layers, 7), (std::vector<int64_t>{0}));
  EXPECT_TRUE(shareOutRanks({}, 100).empty());
}

TEST(RankBudget, LossesThatSayNothingAreLeftOut) {
  const std::vector<double> gains = falling(64, 1, 0.9);
  EXPECT_EQ(
      shareOutRanks(std::vector<RankWorth>{{-0.1, gains}, {2, gains}}, 32),
      (std::vector<int64_t>{16, 16}));
}

} // namespace
