//===- TiledBatchTest.cpp - A batch as tiles of tokens --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TiledBatch.h"
#include "EngineTestSupport.h"

using namespace stem;

namespace {

using Ints = std::vector<int32_t>;

/// Two rows of six places: documents of two and three tokens with one place of
/// padding, and one of six.
Batch twoRows() {
  Batch batch;
  batch.rows = 2;
  batch.length = 6;
  batch.ids = {10, 11, 20, 21, 22, 22, 30, 31, 32, 33, 34, 35};
  batch.positions = {0, 1, 0, 1, 2, 0, 0, 1, 2, 3, 4, 5};
  batch.sequences = {0, 0, 1, 1, 1, kPadding, 2, 2, 2, 2, 2, 2};
  batch.labels = {11, kNoLabel, 21, 22, kNoLabel, kNoLabel,
                  31, 32,       33, 34, 35,       kNoLabel};
  batch.labelCount = 8;
  return batch;
}

TEST(TiledBatch, EachDocumentBeginsATile) {
  const TiledBatch tiled = tileBatch(twoRows(), 4);
  EXPECT_EQ(tiled.tokens(), 16);
  EXPECT_EQ(tiled.ids, (Ints{10, 11, 11, 11, 20, 21, 22, 22, 30, 31, 32, 33, 34,
                             35, 35, 35}));
  EXPECT_EQ(tiled.positions,
            (Ints{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(tiled.sequences,
            (Ints{0, 0, -1, -1, 1, 1, 1, -1, 2, 2, 2, 2, 2, 2, -1, -1}));
  const int32_t no = kNoLabel;
  EXPECT_EQ(tiled.labels, (Ints{11, no, no, no, 21, 22, no, no, 31, 32, 33, 34,
                                35, no, no, no}));
  EXPECT_EQ(tiled.lengths, (std::vector<int64_t>{2, 3, 6}));
}

/// Sequences get new numbers, in order, whatever the batch calls them; equal
/// ones of two rows are two.
TEST(TiledBatch, SequencesAreNumberedAnew) {
  Batch batch = twoRows();
  batch.sequences = {9, 9, 4, 4, 4, kPadding, 4, 4, 4, 4, 4, 4};
  const TiledBatch tiled = tileBatch(batch, 2);
  EXPECT_EQ(tiled.lengths, (std::vector<int64_t>{2, 3, 6}));
  EXPECT_EQ(tiled.sequences, (Ints{0, 0, 1, 1, 1, -1, 2, 2, 2, 2, 2, 2}));
}

TEST(TiledBatch, WholeTilesNeedNoPadding) {
  const TiledBatch tiled = tileBatch(twoRows(), 1);
  EXPECT_EQ(tiled.tokens(), 11);
  EXPECT_EQ(std::count(tiled.sequences.begin(), tiled.sequences.end(), -1), 0);
}

/// Padding before, between and behind sequences is left out.
TEST(TiledBatch, LeavesPaddingOut) {
  Batch batch = twoRows();
  batch.sequences = {-1, -1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
  const TiledBatch tiled = tileBatch(batch, 4);
  EXPECT_EQ(tiled.ids, (Ints{20, 21, 22, 22}));
  EXPECT_EQ(tiled.lengths, (std::vector<int64_t>{3}));
}

TEST(TiledBatch, OfNothingIsATileOfPadding) {
  for (const Batch &batch : {Batch(), [] {
                               Batch padding = twoRows();
                               padding.sequences.assign(12, kPadding);
                               return padding;
                             }()}) {
    const TiledBatch tiled = tileBatch(batch, 4);
    EXPECT_EQ(tiled.ids, Ints(4, 0));
    EXPECT_EQ(tiled.sequences, Ints(4, kPadding));
    EXPECT_EQ(tiled.labels, Ints(4, kNoLabel));
    EXPECT_TRUE(tiled.lengths.empty());
  }
}

TEST(TiledBatch, PositionsRiseFromZero) {
  Batch batch = twoRows();
  batch.positions[3] = 2;
  EXPECT_ERROR(tileBatch(batch, 4),
               "place 3 of the batch is position 2 of its sequence, expected "
               "1: positions rise one by one from 0");
  batch = twoRows();
  batch.positions[6] = 1;
  EXPECT_ERROR(tileBatch(batch, 4), "place 6", "position 1", "expected 0");
}

TEST(TiledBatch, TokensOfWholeRows) {
  EXPECT_EQ(boundOfRows(2, 6, 4).tokens, 16);
  EXPECT_EQ(boundOfRows(2, 8, 4).tokens, 16);
  EXPECT_EQ(boundOfRows(0, 0, 4).tokens, 4);
  EXPECT_EQ(boundOfRows(3, 1, 128).tokens, 384);
}

TEST(TiledBatch, GivesArgumentsByName) {
  const TiledBatch tiled = tileBatch(twoRows(), 4);
  for (const auto &[name, values] :
       {std::pair("ids", &tiled.ids), std::pair("positions", &tiled.positions),
        std::pair("sequences", &tiled.sequences),
        std::pair("labels", &tiled.labels)}) {
    const auto tensor = tiled.input(name);
    ASSERT_TRUE(tensor) << name;
    EXPECT_EQ(tensor->data, values->data()) << name;
    EXPECT_EQ(tensor->dtype, STEM_I32) << name;
    EXPECT_EQ(tensor->rank, 1) << name;
    EXPECT_EQ(tensor->sizes[0], 16) << name;
    EXPECT_EQ(tensor->strides[0], 1) << name;
  }
  EXPECT_FALSE(tiled.input("teacher"));
}

TEST(StepTokens, WholeTilesWhoseLogitsFit) {
  EXPECT_EQ(stepTokensForLogits(32 << 20, 49152), 128);
  EXPECT_EQ(stepTokensForLogits(32 << 20, 96), kStepTokens);
  EXPECT_EQ(stepTokensForLogits(32 << 20, 1 << 30), 64);
}

} // namespace
