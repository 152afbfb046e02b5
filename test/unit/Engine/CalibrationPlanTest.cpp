//===- CalibrationPlanTest.cpp - What a calibration will take -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationPlan.h"
#include "CalibrationTestSupport.h"

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t GB = 1'000'000'000;

ModelConfig shapeOf(uint64_t hidden, uint64_t wide) {
  ModelConfig config;
  config.hiddenSize = hidden;
  config.intermediateSize = wide;
  return config;
}

/// 50,000 tokens, and weights in bf16: `layer` elements a layer, and the
/// embedding and the head apart.
CalibrationSizes sizesOf(int64_t layers, int64_t layer, int64_t embedding) {
  CalibrationSizes sizes;
  sizes.fit = 44'000;
  sizes.choose = sizes.check = 3'200;
  sizes.ids = 12'000;
  sizes.weights = 2 * (layers * layer + 2 * embedding);
  sizes.oneLayerWeights = 2 * (layer + 2 * embedding);
  sizes.step = 100'000'000;
  sizes.stepTokens = 2048;
  sizes.productType = STEM_BF16;
  sizes.files = 30'000'000;
  sizes.program = 130'000'000;
  sizes.before = 400'000'000;
  return sizes;
}

/// Llama-3.2-1B: 16 layers, d 2048, F 8192, 8 of 32 heads for keys and values,
/// 128256 ids.
struct Llama {
  ModelConfig config = shapeOf(2048, 8192);
  CalibrationSizes sizes =
      sizesOf(16, 2048 * 2048 * 5 / 2 + 3 * 2048 * 8192, 128256LL * 2048);
};

/// Qwen3-4B: 36 layers, d 2560, F 9728, 32 heads of 128, 8 for keys and values,
/// 151936 ids.
struct Qwen {
  ModelConfig config = shapeOf(2560, 9728);
  CalibrationSizes sizes = sizesOf(
      36, 2560 * (2 * 4096 + 2 * 1024) + 3 * 2560 * 9728, 151936LL * 2560);
};

TEST(CalibrationPlan, Llama1B) {
  Llama model;
  const CalibrationPlan plan =
      planCalibration(model.config, model.sizes, INT64_MAX);
  EXPECT_EQ(plan.spill, 0);
  EXPECT_FALSE(plan.isOneLayerHeld);
  EXPECT_EQ(plan.states, (2 * (44'000 + 3'200) + 3'200) * 2048LL * 4);
  // n, G, H and S of the ids, and their embeddings.
  EXPECT_NEAR(plan.rows, 12'000LL * (3 * 8192 + 2048) * 4, 0.1 * GB);
  // Normal equations of W_down in f64.
  EXPECT_GT(plan.work, 8LL * 8192 * (8192 + 2048));
  EXPECT_LT(plan.work, 2 * GB);
  EXPECT_EQ(plan.program, model.sizes.program);
  EXPECT_EQ(plan.files, model.sizes.files);
  EXPECT_EQ(plan.products, 44'000 * 8192LL * 2);
  EXPECT_EQ(plan.taps, 44'000 * 2 * 8192LL * 4);
  EXPECT_EQ(plan.total(), plan.weights + plan.states + plan.rows + plan.work +
                              plan.products + plan.taps + plan.steps +
                              plan.files + plan.program);
  EXPECT_LT(plan.total(), 11 * GB);
}

/// The text to check is run twice; scales and hot rows wait to be written.
TEST(CalibrationPlan, CountsRowsOf8Bits) {
  Llama model;
  const CalibrationPlan full =
      planCalibration(model.config, model.sizes, INT64_MAX);
  addByteRows(model.config, 1000, model.sizes);
  const CalibrationPlan plan =
      planCalibration(model.config, model.sizes, INT64_MAX);
  EXPECT_EQ(plan.states, full.states + 3'200 * 2048LL * 4);
  const auto vocabulary = static_cast<int64_t>(model.config.vocabSize);
  EXPECT_EQ(plan.files, full.files + vocabulary * 8 + 1000 * 8192LL * 4);
  EXPECT_EQ(plan.rows, full.rows);
}

TEST(CalibrationPlan, TapsThenProductsAreComputedAgainBeforeStatesSpill) {
  Llama model;
  const CalibrationPlan whole =
      planCalibration(model.config, model.sizes, INT64_MAX);
  const CalibrationPlan withoutTaps =
      planCalibration(model.config, model.sizes, whole.total() - 1);
  EXPECT_EQ(withoutTaps.taps, 0);
  EXPECT_EQ(withoutTaps.products, whole.products);
  EXPECT_EQ(withoutTaps.total(), whole.total() - whole.taps);
  const CalibrationPlan plan =
      planCalibration(model.config, model.sizes, withoutTaps.total() - 1);
  EXPECT_EQ(plan.products, 0);
  EXPECT_EQ(plan.total(), withoutTaps.total() - whole.products);
  EXPECT_EQ(plan.spill, 0);
}

TEST(CalibrationPlan, TapsOfALowRankTermHaveWhatEntersIt) {
  Llama model;
  model.sizes.rank = 64;
  const CalibrationPlan plan =
      planCalibration(model.config, model.sizes, INT64_MAX);
  EXPECT_EQ(plan.taps, 44'000 * (2 * 8192LL + 2048) * 4);
}

TEST(CalibrationPlan, StatesSpillBeforeWeightsAreReadAgain) {
  Llama model;
  CalibrationPlan whole = planCalibration(model.config, model.sizes, INT64_MAX);
  whole.products = whole.taps = 0;
  const CalibrationPlan spilled =
      planCalibration(model.config, model.sizes, whole.total() - 1);
  EXPECT_EQ(spilled.spill, whole.states);
  // A step of two streams stays.
  EXPECT_EQ(spilled.states, 2 * 2048 * 2048 * 4);
  EXPECT_EQ(spilled.total(), whole.total() - whole.states + spilled.states);
  EXPECT_FALSE(spilled.isOneLayerHeld);
  const CalibrationPlan least =
      planCalibration(model.config, model.sizes, spilled.total() - 1);
  EXPECT_TRUE(least.isOneLayerHeld);
  EXPECT_EQ(least.weights, model.sizes.oneLayerWeights);
  EXPECT_LT(least.total(), spilled.total());
  EXPECT_NE(least.describe().find("a layer at a time"), std::string::npos);
  EXPECT_NE(least.describe().find("in a file"), std::string::npos);
}

TEST(CalibrationPlan, Qwen4BWithALowRankTerm) {
  Qwen model;
  model.sizes.rank = 64;
  const CalibrationPlan whole =
      planCalibration(model.config, model.sizes, INT64_MAX);
  EXPECT_GT(whole.total(), 10 * GB);
  const CalibrationPlan plan =
      planCalibration(model.config, model.sizes, 8 * GB);
  EXPECT_TRUE(plan.isOneLayerHeld);
  EXPECT_GT(plan.spill, 0);
  EXPECT_LE(plan.total(), 8 * GB);
}

/// What is spilled and read again makes room before rows are divided, and they
/// are in no more parts than needed.
TEST(CalibrationPlan, Qwen4BRowsInParts) {
  Qwen model;
  model.sizes.ids = 60'000;
  const auto planFor = [&](int64_t bound) {
    return planCalibration(model.config, model.sizes, bound);
  };
  const int64_t sums = 12LL * 60'000 * 9728; // 7 GB
  const CalibrationPlan whole = planFor(INT64_MAX);
  EXPECT_EQ(whole.rowParts, 1);
  EXPECT_EQ(whole.rowColumns, 9728);
  EXPECT_EQ(whole.rowSpill, 0);
  EXPECT_GT(whole.rows, sums);
  const CalibrationPlan least = planFor(1);
  EXPECT_TRUE(least.isOneLayerHeld);
  EXPECT_EQ(least.rowSpill, sums);
  EXPECT_NE(least.describe().find(", 7 GB of rows"), std::string::npos);

  // In a file, but summed at once: the other fits are made without them.
  const CalibrationPlan file =
      planFor(whole.total() - whole.taps - whole.products - whole.weights -
              whole.states + least.weights);
  EXPECT_EQ(file.rowParts, 1);
  EXPECT_EQ(file.rowSpill, sums);
  EXPECT_LT(file.rows, 2 * GB);
  EXPECT_GT(file.work, sums - GB);
  EXPECT_EQ(file.describe().find("parts"), std::string::npos);

  for (const auto &[bound, parts] :
       {std::pair(9 * GB, 2), std::pair(6 * GB, 3), std::pair(5 * GB, 5)}) {
    const CalibrationPlan plan = planFor(bound);
    EXPECT_LE(plan.total(), bound);
    EXPECT_EQ(plan.rowParts, parts);
    EXPECT_EQ(plan.rowColumns % 64, 0);
    EXPECT_GE(plan.rowColumns * parts, 9728);
    EXPECT_LT(plan.rowColumns * (parts - 1), 9728);
    EXPECT_NE(plan.describe().find(fmt::format("(in {} parts)", parts)),
              std::string::npos);
    // With a part less the sums alone would not leave room for the others.
    EXPECT_GT(plan.total() - plan.work + sums / (parts - 1), bound - GB / 2);
  }
  // The normal matrix of W_down and its blocks stay.
  EXPECT_GT(least.work, 8LL * 9728 * 9728);
  EXPECT_GT(least.total(), 3 * GB);
}

TEST(CalibrationPlan, PassesGrowWithTheParts) {
  EXPECT_EQ(fitPasses(0, 1), 3);
  EXPECT_EQ(fitPasses(64, 1), 5);
  EXPECT_EQ(fitPasses(0, 4), 6);
  EXPECT_EQ(fitPasses(64, 4), 11);
}

TEST(CalibrationPlan, OneRowNeedsNoFile) {
  Qwen model;
  model.sizes.isOneRow = true;
  const CalibrationPlan whole =
      planCalibration(model.config, model.sizes, INT64_MAX);
  EXPECT_LT(whole.rows, GB / 2); // after the sums
  EXPECT_EQ(planCalibration(model.config, model.sizes, 1).rowSpill, 0);
}

/// Each part of the work adds to the estimate, which grows with a place's cost.
TEST(CalibrationPlan, Estimate) {
  Llama model;
  CalibrationPlan plan = planCalibration(model.config, model.sizes, INT64_MAX);
  CalibrationWork work{.layers = 16, .converted = 5};
  const auto seconds = [&](double place = 1e-6) {
    return estimateSeconds(model.sizes, plan, work, place);
  };
  const double plain = seconds();
  EXPECT_GT(plain, 2 * 16 * 44'000 * 1e-6);
  EXPECT_LT(plain, 10 * 16 * 44'000 * 1e-6);
  EXPECT_DOUBLE_EQ(seconds(2e-6), 2 * plain);
  work.measuresLayers = true;
  work.sample = 16'384;
  const double measured = seconds();
  EXPECT_GT(measured, plain);
  model.sizes.rank = 64;
  EXPECT_GT(seconds(), measured);
  model.sizes.rank = 0;
  work.converted = 6;
  EXPECT_GT(seconds(), measured);
  const double atOnce = seconds();
  plan.rowParts = 3;
  EXPECT_GT(seconds(), atOnce);
}

/// Text that the model wrote may have taken more than the calibration will.
TEST(CalibrationPlan, WhatWasHeldBeforeIsSaidWhereItIsMore) {
  Llama model;
  CalibrationPlan plan = planCalibration(model.config, model.sizes, INT64_MAX);
  EXPECT_EQ(plan.describe().find("for the text"), std::string::npos);
  EXPECT_EQ(plan.json().at("before"), model.sizes.before);
  plan.before = plan.total() + 1;
  EXPECT_NE(plan.describe().find("for the text"), std::string::npos);
}

TEST(CalibrationPlan, SumsDoNotOverflow) {
  Qwen model;
  model.sizes.weights = model.sizes.oneLayerWeights = INT64_MAX - 1;
  EXPECT_EQ(planCalibration(model.config, model.sizes, INT64_MAX).total(),
            INT64_MAX);
}

/// What is counted is what a small model's parts hold.
TEST(CalibrationPlan, SizesAreThoseOfTextAndRunner) {
  const Checkpoint checkpoint = Checkpoint::open(goldenFolder("llama_gqa"));
  const CalibrationText text =
      makeText(someWindows(28, 100, 1), someWindows(3, 100, 101),
               someWindows(2, 100, 201), 1024);
  LayerRunner runner(checkpoint, runnerOptions(1024));
  const CalibrationSizes sizes =
      calibrationSizes(checkpoint.config(), text, runner, 8);
  EXPECT_EQ(sizes.fit, 28 * 128);
  EXPECT_EQ(sizes.choose, 3 * 128);
  EXPECT_EQ(sizes.check, 2 * 128);
  EXPECT_EQ(sizes.ids, static_cast<int64_t>(text.rowIds.size()));
  EXPECT_EQ(sizes.rank, 8);
  EXPECT_EQ(sizes.weights, runner.report().plan.weights);
  EXPECT_LT(sizes.oneLayerWeights, sizes.weights);
  EXPECT_EQ(sizes.stepTokens, 1024);
  EXPECT_EQ(sizes.threads, runner.report().threads);
  EXPECT_GT(sizes.files, 1 << 20);
}

} // namespace
