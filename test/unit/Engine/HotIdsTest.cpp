//===- HotIdsTest.cpp - Ids whose rows are not of 8 bits ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HotIds.h"

#include <gtest/gtest.h>

using namespace stem;

namespace {

using Ids = std::vector<int32_t>;

HotIds choose(const std::vector<int64_t> &counts, double share) {
  return chooseHotIds(counts, {.areBytes = true, .hotShare = share});
}

TEST(HotIds, AreThoseCountedMostOften) {
  const std::vector<int64_t> counts = {3, 0, 9, 3, 0, 1, 3, 1};
  EXPECT_EQ(choose(counts, 0).ids, Ids());
  EXPECT_EQ(choose(counts, 0.125).ids, Ids{2});
  // Of equal counts the lower ids.
  EXPECT_EQ(choose(counts, 0.375).ids, (Ids{0, 2, 3}));
  EXPECT_EQ(choose(counts, 0.875).ids, (Ids{0, 1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(choose(counts, 1).ids.size(), 8u);
  const HotIds hot = choose(counts, 0.375);
  EXPECT_EQ(hot.counted, 20);
  EXPECT_EQ(hot.covered, 0.75);
  EXPECT_EQ(hot.describe(8), "3 ids (37.5 %) keep full precision, 75.0 % of "
                             "the 20 tokens counted");
  EXPECT_EQ(choose(counts, 0).describe(8), "no id keeps full precision");
}

TEST(HotIds, CoverTheTokensCounted) {
  const ColdRowOptions automatic = {.areBytes = true, .isAuto = true};
  EXPECT_EQ(chooseHotIds({5, 0, 80, 10, 5}, automatic).ids, (Ids{2, 3}));
  EXPECT_EQ(chooseHotIds({5, 1, 80, 9, 5}, automatic).ids, (Ids{0, 2, 3}));
  EXPECT_EQ(chooseHotIds({0, 7, 0}, automatic).ids, Ids{1});
  EXPECT_EQ(chooseHotIds({0, 0, 0}, automatic).ids, Ids());
}

TEST(HotIds, AreThoseOfAListToo) {
  const std::vector<int64_t> counts = {3, 0, 9, 3, 0, 1, 3, 1};
  const auto with = [&](double share, const Ids &listed) {
    return chooseHotIds(counts, {.areBytes = true, .hotShare = share}, listed);
  };
  EXPECT_EQ(with(0, {1, 4}).ids, (Ids{1, 4}));
  EXPECT_EQ(with(0, {1, 4}).listed, 2u);
  EXPECT_EQ(with(0, {1, 4}).covered, 0);
  // The share is of those counted; what both have is there once.
  const HotIds both = with(0.25, {2, 5, 7});
  EXPECT_EQ(both.ids, (Ids{0, 2, 5, 7}));
  EXPECT_EQ(both.covered, 0.7);
  EXPECT_EQ(both.json()["listed_ids"], 3);
  EXPECT_EQ(both.describe(8), "4 ids (50.0 %) keep full precision, 3 of "
                              "--hot-ids, 70.0 % of the 20 tokens counted");
  const HotIds uncounted =
      chooseHotIds(std::vector<int64_t>(8), {.areBytes = true}, Ids{3});
  EXPECT_EQ(uncounted.describe(8),
            "1 id (12.5 %) keeps full precision, 1 of --hot-ids");
}

TEST(HotIds, AShareOfNoneIsNoted) {
  const auto noted = [](double share) {
    testing::internal::CaptureStderr();
    const HotIds hot = choose(std::vector<int64_t>(100), share);
    return std::pair(hot.ids.size(), testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(noted(0.004),
            std::pair(size_t(0), std::string("note: --hot-fraction=0.004: of "
                                             "100 ids that is less than half "
                                             "of one, so that none keeps full "
                                             "precision for it\n")));
  EXPECT_EQ(noted(0.006), std::pair(size_t(1), std::string()));
  EXPECT_EQ(noted(0), std::pair(size_t(0), std::string()));
}

TEST(HotIds, AreCountedWithoutPadding) {
  TokenStream stream;
  stream.ids = {3, 3, 1, 0, 0};
  stream.sequences = {0, 0, 0, 0, -1};
  EXPECT_EQ(countIds(stream, 5), (std::vector<int64_t>{1, 1, 0, 2, 0}));
}

} // namespace
