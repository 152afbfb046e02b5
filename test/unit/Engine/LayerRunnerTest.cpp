//===- LayerRunnerTest.cpp - The parts of a model against the whole -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerRunner.h"
#include "CalibrationTestSupport.h"

#include <tuple>

using namespace stem;
using namespace stem::test;

namespace {

/// Residual streams of a stream's steps, layer after layer.
struct States {
  States(LayerRunner &runner, const TokenStream &stream)
      : runner(runner), stream(stream),
        x(static_cast<size_t>(stream.places() * kHidden)), middle(x.size()) {
    for (const TokenStream::Step &step : stream.steps)
      runner.embed(stream.step(step).ids, x.data() + step.begin * kHidden);
  }
  void attention(uint64_t layer) {
    for (const TokenStream::Step &step : stream.steps)
      runner.attention(layer, stream.step(step),
                       x.data() + step.begin * kHidden,
                       middle.data() + step.begin * kHidden);
  }
  void feedForward(uint64_t layer) {
    for (const TokenStream::Step &step : stream.steps)
      runner.feedForward(layer, middle.data() + step.begin * kHidden,
                         step.count, x.data() + step.begin * kHidden);
  }
  std::vector<float> losses() {
    std::vector<float> result(stream.labels.size());
    for (const TokenStream::Step &step : stream.steps)
      runner.score(x.data() + step.begin * kHidden,
                   std::span(stream.labels).subspan(step.begin, step.count),
                   result.data() + step.begin);
    return result;
  }

  LayerRunner &runner;
  const TokenStream &stream;
  std::vector<float> x, middle;
};

std::vector<float> lossesOf(LayerRunner &runner, const TokenStream &stream) {
  States states(runner, stream);
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    states.attention(layer);
    states.feedForward(layer);
  }
  return states.losses();
}

class LayerRunnerTest : public testing::TestWithParam<const char *> {
protected:
  std::filesystem::path folder = goldenFolder(GetParam());
  Checkpoint checkpoint = Checkpoint::open(folder);
  Windows windows = someWindows(5, 100, 11);
};

TEST_P(LayerRunnerTest, IsTheModelInF32) {
  LayerRunner runner(checkpoint, runnerOptions(256));
  const TokenStream stream = makeStream(windows, 256);
  ASSERT_EQ(stream.steps.size(), 3u);
  EXPECT_LE(largestDifference(lossesOf(runner, stream),
                              engineLosses(folder, windows, DType::F32)),
            1e-5f);
}

/// Both round to bf16 at the same places and sum in the same order: the bound
/// is that of f32.
TEST_P(LayerRunnerTest, IsTheModelInBF16) {
  LayerRunner runner(checkpoint, runnerOptions(256, 2, DType::BF16));
  if (runner.report().dtype != DType::BF16)
    GTEST_SKIP() << runner.report().dtypeNote;
  const std::vector<float> losses = lossesOf(runner, makeStream(windows, 256));
  EXPECT_LE(
      largestDifference(losses, engineLosses(folder, windows, DType::BF16)),
      1e-5f);
  EXPECT_GT(
      largestDifference(losses, engineLosses(folder, windows, DType::F32)),
      0.0f);
}

TEST_P(LayerRunnerTest, StepsAndThreadsDoNotMatter) {
  LayerRunner small(checkpoint, runnerOptions(128, 1));
  LayerRunner large(checkpoint, runnerOptions(2048, 2));
  EXPECT_TRUE(sameBits(lossesOf(small, makeStream(windows, 128)),
                       lossesOf(large, makeStream(windows, 2048)), 1));
}

TEST_P(LayerRunnerTest, TapsMakeTheFeedForwardBlock) {
  LayerRunner runner(checkpoint, runnerOptions(1024));
  const TokenStream stream = makeStream(windows, 1024);
  ASSERT_EQ(stream.steps.size(), 1u);
  const int64_t count = stream.places();
  States states(runner, stream);
  std::vector<float> gate(static_cast<size_t>(count * kWide)), up(gate.size());
  std::vector<float> projected(states.x.size()), product(states.x.size());
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    states.attention(layer);
    states.feedForward(layer);
    runner.taps(layer, states.middle.data(), count, product.data(), gate.data(),
                up.data());
    for (size_t i = 0; i < gate.size(); ++i)
      gate[i] *= up[i];
    runner.project(layer, states.middle.data(), gate.data(), count,
                   projected.data());
    EXPECT_LE(largestDifference(projected, states.x), 1e-5f);
    runner.product(layer, gate.data(), count, product.data());
    for (size_t i = 0; i < product.size(); ++i)
      product[i] += states.middle[i];
    EXPECT_LE(largestDifference(product, states.x), 1e-5f);
  }
}

TEST_P(LayerRunnerTest, DownCanBeReplaced) {
  LayerRunner runner(checkpoint, runnerOptions(1024));
  std::vector<float> z(static_cast<size_t>(kTile * kWide)), down;
  for (size_t i = 0; i < z.size(); ++i)
    z[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < kHidden * kWide; ++i)
    down.push_back(std::cos(static_cast<float>(3 * i)));
  const auto product = [&](uint64_t layer) {
    std::vector<float> out(static_cast<size_t>(kTile * kHidden));
    runner.product(layer, z.data(), kTile, out.data());
    return out;
  };
  const std::vector<float> before = product(1), other = product(2);
  runner.replaceDown(1, down);
  std::vector<float> wanted;
  for (int64_t t = 0; t < kTile; ++t)
    for (int64_t i = 0; i < kHidden; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < kWide; ++j)
        sum += double(down[i * kWide + j]) * z[t * kWide + j];
      wanted.push_back(static_cast<float>(sum));
    }
  EXPECT_LE(largestDifference(product(1), wanted), 2e-5f);
  EXPECT_TRUE(sameBits(product(2), other, kHidden));
  for (float &value : down)
    value *= 2;
  for (float &value : wanted)
    value *= 2;
  runner.replaceDown(1, down);
  EXPECT_LE(largestDifference(product(1), wanted), 4e-5f);
  runner.restoreDown(1);
  EXPECT_TRUE(sameBits(product(1), before, kHidden));
}

/// A wrong one changes nothing.
TEST_P(LayerRunnerTest, DownOfAnotherSizeIsRefused) {
  LayerRunner runner(checkpoint, runnerOptions(128));
  const std::vector<float> z(static_cast<size_t>(kTile * kWide), 1.0f);
  const auto product = [&] {
    std::vector<float> out(static_cast<size_t>(kTile * kHidden));
    runner.product(1, z.data(), kTile, out.data());
    return out;
  };
  const std::vector<float> before = product(), wrong(kHidden * kWide - 1);
  EXPECT_ERROR(runner.replaceDown(1, wrong), "layers.1.mlp.down_proj.weight",
               "2559 elements", "32 x 80");
  EXPECT_TRUE(sameBits(product(), before, kHidden));
}

/// Also a layer that never ran, and W_down that was replaced.
TEST_P(LayerRunnerTest, ReleasedLayersAreReadAgain) {
  LayerRunner runner(checkpoint, runnerOptions(256));
  const TokenStream stream = makeStream(windows, 256);
  runner.releaseLayer(1);
  const std::vector<float> before = lossesOf(runner, stream);
  for (uint64_t layer = 0; layer < kLayers; ++layer)
    runner.releaseLayer(layer);
  EXPECT_TRUE(sameBits(lossesOf(runner, stream), before, 1));

  const std::vector<float> z(static_cast<size_t>(kTile * kWide), 1.0f);
  const auto product = [&] {
    std::vector<float> out(static_cast<size_t>(kTile * kHidden));
    runner.product(1, z.data(), kTile, out.data());
    return out;
  };
  const std::vector<float> own = product();
  runner.replaceDown(1, std::vector<float>(kHidden * kWide, 2.0f));
  const std::vector<float> other = product();
  runner.releaseLayer(1);
  EXPECT_TRUE(sameBits(product(), other, kHidden));
  runner.restoreDown(1);
  EXPECT_TRUE(sameBits(product(), own, kHidden));
}

TEST_P(LayerRunnerTest, TwoWindowsOfASequenceAreRefused) {
  LayerRunner runner(checkpoint, runnerOptions(128));
  TokenStream stream = makeStream(someWindows(2, 20, 3), 128);
  ASSERT_EQ(stream.steps.size(), 1u);
  for (int32_t &sequence : stream.sequences)
    sequence = std::min(sequence, 0);
  std::vector<float> x(static_cast<size_t>(128 * kHidden)), middle(x.size());
  EXPECT_ERROR(runner.attention(0, stream.step(stream.steps[0]), x.data(),
                                middle.data()),
               "position 0 of window 0");
}

INSTANTIATE_TEST_SUITE_P(Models, LayerRunnerTest,
                         testing::Values("llama_gqa", "mistral_sliding",
                                         "qwen2_qkv_bias", "qwen3_qk_norm"),
                         [](const auto &test) {
                           return std::string(test.param);
                         });

TEST(LayerRunnerOptions, PositionsAreTheModelsUnlessAsked) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("llama_gqa"));
  EngineOptions options = runnerOptions(256);
  options.maxPositions = 0;
  options.maxSequences = 1;
  LayerRunner runner(checkpoint, options);
  const TokenStream stream = makeStream(someWindows(1, 256, 3), 256);
  EXPECT_EQ(lossesOf(runner, stream).size(), 256u);
  options.maxPositions = 257;
  EXPECT_ERROR(LayerRunner(checkpoint, options), "llama_gqa", "257 positions",
               "max_position_embeddings 256");
}

TEST(LayerRunnerOptions, PhasesAreWritten) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("llama_gqa"));
  const TemporaryFolder folder;
  EngineOptions options = runnerOptions(128);
  options.dumpDirectory = folder.path() / "dump";
  LayerRunner runner(checkpoint, options);
  const std::string graph = readText(options.dumpDirectory / "00-import.mlir");
  for (const char *entry : {"@embed", "@attention_", "@taps_", "@score"})
    EXPECT_NE(graph.find(entry), std::string::npos) << entry;
}

/// Before it is read: each weight once, W_down with what replaces it.
TEST(LayerRunnerOptions, MemoryIsKnown) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("llama_gqa"));
  LayerRunner runner(checkpoint, runnerOptions(256));
  int64_t elements = 0;
  for (const std::string &name : checkpoint.weights().names())
    elements += static_cast<int64_t>(checkpoint.tensors().get(name).elements());
  const MemoryPlan &plan = runner.report().plan;
  EXPECT_GE(plan.weights, 4 * elements);
  EXPECT_LE(plan.weights, 8 * elements); // panels are padded
  EXPECT_GT(plan.arena, 0);
  EXPECT_GT(plan.cache, 0);
  // All layers are alike: what two of them hold is the difference.
  EXPECT_GT(runner.oneLayerWeights(), plan.weights / 3);
  const int64_t layer = (plan.weights - runner.oneLayerWeights()) / 2;
  EXPECT_GE(layer, 4 * (3 * kHidden * kWide + 2 * kHidden * kHidden));
  EXPECT_LE(layer, plan.weights / 3);
}

} // namespace
