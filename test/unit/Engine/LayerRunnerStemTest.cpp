//===- LayerRunnerStemTest.cpp - STEM layers, one at a time ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationTestSupport.h"
#include "LayerRunner.h"
#include "StemVariant.h"

using namespace stem;
using namespace stem::test;

namespace {

std::vector<float> lossesOf(const Checkpoint &checkpoint,
                            const TokenStream &stream, LayerRunner &runner) {
  std::vector<float> losses;
  std::vector<float> x(static_cast<size_t>(stream.places() * kHidden)),
      middle(x.size());
  for (const TokenStream::Step &step : stream.steps) {
    const StepTokens tokens = stream.step(step);
    runner.embed(tokens.ids, x.data());
    for (uint64_t layer = 0; layer < checkpoint.config().layerCount();
         ++layer) {
      runner.attention(layer, tokens, x.data(), middle.data());
      runner.feedForward(layer, middle.data(), step.count, x.data(),
                         tokens.ids);
    }
    std::vector<float> nll(static_cast<size_t>(step.count));
    runner.score(x.data(),
                 std::span(stream.labels).subspan(step.begin, step.count),
                 nll.data());
    losses.insert(losses.end(), nll.begin(), nll.end());
  }
  return losses;
}

const Windows windows = someWindows(5, 100, 11);

/// Whole and in parts.
void expectSame(const std::filesystem::path &folder, DType dtype) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  LayerRunner runner(checkpoint, runnerOptions(256, 2, dtype));
  const TokenStream stream = makeStream(windows, 256);
  ASSERT_EQ(stream.steps.size(), 3u);
  EXPECT_LE(largestDifference(lossesOf(checkpoint, stream, runner),
                              engineLosses(folder, windows, dtype)),
            1e-5f);
}

class LayerRunnerStemTest : public testing::TestWithParam<DType> {};

TEST_P(LayerRunnerStemTest, RowsAlone) {
  expectSame(goldenFolder("stem_llama"), GetParam());
}

/// Layers of one rank, then of two.
TEST_P(LayerRunnerStemTest, RowsAndALowRankTerm) {
  for (size_t second : {4, 7}) {
    StemVariant model;
    model.addMix(1, 4);
    model.addMix(2, second);
    model.config["stem"]["rank"] = {4, second};
    expectSame(model.write(), GetParam());
  }
}

/// Both types of ids, two numbers of them in one kind of layer, and none.
TEST_P(LayerRunnerStemTest, RowsAndSelectedIds) {
  for (size_t rank : {0, 4}) {
    StemVariant model;
    for (size_t layer = 1; rank > 0 && layer < kLayers; ++layer)
      model.addMix(layer, rank);
    model.addSelected<int32_t>(1, "I32", {0, 3, 17, 40, 41, 95});
    model.addSelected<int64_t>(2, "I64", {5, 6});
    model.config["stem"]["rank"] = rank;
    model.config["stem"]["select"] = true;
    expectSame(model.write(), GetParam());
  }
  StemVariant model;
  model.addSelected<int32_t>(1, "I32", {});
  model.addSelected<int32_t>(2, "I32", {7});
  model.config["stem"]["select"] = true;
  expectSame(model.write(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Types, LayerRunnerStemTest,
                         testing::Values(DType::F32, DType::BF16),
                         [](const auto &test) {
                           return std::string(dtypeName(test.param));
                         });

class StemParts : public testing::Test {
protected:
  Checkpoint checkpoint = Checkpoint::open(goldenFolder("stem_llama"));
  LayerRunner runner{checkpoint, runnerOptions(256)};
};

TEST_F(StemParts, StepsAndReleasedLayersDoNotMatter) {
  LayerRunner large(checkpoint, runnerOptions(2048, 1));
  const std::vector<float> losses =
      lossesOf(checkpoint, makeStream(windows, 256), runner);
  EXPECT_TRUE(sameBits(lossesOf(checkpoint, makeStream(windows, 2048), large),
                       losses, 1));
  for (uint64_t layer = 0; layer < kLayers; ++layer)
    runner.releaseLayer(layer);
  EXPECT_TRUE(sameBits(lossesOf(checkpoint, makeStream(windows, 256), runner),
                       losses, 1));
}

/// Each row once, of a table that has fewer than a step has tokens.
TEST_F(StemParts, TablesArePlannedAsTheRowsOfAStep) {
  EXPECT_EQ(runner.report().plan.tables,
            static_cast<int64_t>(kVocab) * kWide * 4);
  LayerRunner small(checkpoint, runnerOptions(64));
  EXPECT_EQ(small.report().plan.tables, 64 * kWide * 4);
  const Checkpoint dense = Checkpoint::open(goldenFolder("llama_gqa"));
  EXPECT_EQ(LayerRunner(dense, runnerOptions(64)).report().plan.tables, 0);
}

TEST_F(StemParts, OnlyDenseLayersHaveTheOthers) {
  std::vector<float> narrow(static_cast<size_t>(kTile * kHidden)),
      wide(static_cast<size_t>(kTile * kWide));
  const auto taps = [&](uint64_t layer) {
    runner.taps(layer, narrow.data(), kTile, narrow.data(), wide.data(),
                wide.data());
  };
  EXPECT_NO_THROW(taps(0));
  EXPECT_ERROR(taps(1), "layer 1 is STEM", "'taps'");
  EXPECT_ERROR(runner.product(2, wide.data(), kTile, narrow.data()),
               "layer 2 is STEM", "'product'");
  EXPECT_ERROR(
      runner.project(1, narrow.data(), wide.data(), kTile, narrow.data()),
      "layer 1 is STEM", "'project'");
  EXPECT_ERROR(runner.replaceDown(1, std::vector<float>(kHidden * kWide)),
               "layer 1 is STEM", "only a dense layer is fitted");
}

TEST_F(StemParts, RowsNeedIdsOfTheVocabulary) {
  std::vector<float> x(static_cast<size_t>(kTile * kHidden));
  std::vector<int32_t> ids(static_cast<size_t>(kTile));
  EXPECT_NO_THROW(runner.feedForward(1, x.data(), kTile, x.data(), ids));
  EXPECT_ERROR(runner.feedForward(1, x.data(), kTile, x.data()),
               "layer 1 is STEM", "64 tokens", "0 were given");
  for (int32_t wrong : {-1, static_cast<int32_t>(kVocab)}) {
    ids[3] = wrong;
    EXPECT_ERROR(runner.feedForward(1, x.data(), kTile, x.data(), ids),
                 "model.layers.1.mlp.up_table.weight", "it has 96");
  }
}

} // namespace
