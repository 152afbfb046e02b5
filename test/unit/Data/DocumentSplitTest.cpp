//===- DocumentSplitTest.cpp - Documents to train and to validate on ------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/DocumentSplit.h"

#include "../Support/TestFiles.h"

#include <algorithm>

#include <cmath>
#include <set>
#include <vector>

using namespace stem;
using namespace stem::test;

namespace {

std::vector<bool> partsOf(const DocumentSplit &split) {
  std::vector<bool> parts;
  for (uint64_t i = 0; i < split.documentCount(); ++i)
    parts.push_back(split.isValidation(i));
  EXPECT_EQ(static_cast<uint64_t>(std::count(parts.begin(), parts.end(), true)),
            split.validationCount());
  return parts;
}

TEST(DocumentSplit, takesAboutTheShare) {
  for (const double share : {0.01, 0.1, 0.5, 0.99}) {
    const DocumentSplit split(20000, share, 1, "x");
    // Six standard deviations.
    EXPECT_NEAR(double(split.validationCount()), 20000 * share,
                6 * std::sqrt(20000 * share * (1 - share)));
    partsOf(split);
  }
}

TEST(DocumentSplit, neitherPartIsEmpty) {
  std::set<std::vector<bool>> ofTwo;
  for (uint64_t seed = 0; seed < 50; ++seed)
    for (const double share : {1e-300, 0.001, 0.5, 0.999, 1 - 0x1p-53})
      for (const uint64_t documents : {2, 3, 10}) {
        const DocumentSplit split(documents, share, seed, "x");
        EXPECT_GT(split.validationCount(), 0u);
        EXPECT_LT(split.validationCount(), documents);
        const std::vector<bool> parts = partsOf(split);
        if (documents == 2)
          ofTwo.insert(parts);
      }
  // The seed decides which of two it is.
  EXPECT_EQ(ofTwo.size(), 2u);
}

TEST(DocumentSplit, dependsOnTheSeedAlone) {
  EXPECT_EQ(partsOf(DocumentSplit(100, 0.3, 7, "x")),
            partsOf(DocumentSplit(100, 0.3, 7, "y")));
  EXPECT_NE(partsOf(DocumentSplit(100, 0.3, 7, "x")),
            partsOf(DocumentSplit(100, 0.3, 8, "x")));
  // A document keeps its part when others are added, and when the share grows.
  const std::vector<bool> few = partsOf(DocumentSplit(100, 0.3, 7, "x"));
  std::vector<bool> more = partsOf(DocumentSplit(200, 0.3, 7, "x"));
  more.resize(100);
  EXPECT_EQ(more, few);
  const std::vector<bool> larger = partsOf(DocumentSplit(100, 0.6, 7, "x"));
  for (size_t i = 0; i < few.size(); ++i)
    EXPECT_TRUE(!few[i] || larger[i]);
}

TEST(DocumentSplit, aShareOfZeroValidatesNothing) {
  for (const uint64_t documents : {1, 2, 50})
    EXPECT_EQ(partsOf(DocumentSplit(documents, 0, 1, "x")),
              std::vector<bool>(documents, false));
}

TEST(DocumentSplit, refusals) {
  for (const double share : {-0.1, 1.0, 1.5, std::nan("")})
    EXPECT_ERROR(DocumentSplit(9, share, 1, "x"), "validation share",
                 "at least 0 and less than 1");
  EXPECT_ERROR(DocumentSplit(1, 0.1, 1, "x.shard"), "x.shard: has one document",
               "give more documents, or a validation share of 0");
}

} // namespace
