//===- CalibratorTest.cpp - Rows and W_down of small models ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibrator.h"
#include "CalibrationTestSupport.h"

#include <map>
#include <nlohmann/json.hpp>

using namespace stem;
using namespace stem::test;

namespace {

constexpr int32_t kSeen = 90; ///< ids from here on are in no text

const Windows fitWindows = someWindows(28, 100, 1, kSeen);
const Windows chooseWindows = someWindows(3, 100, 101, kSeen);
const Windows checkWindows = someWindows(3, 100, 201, kSeen);

struct Layer {
  CalibratedLayer figures;
  std::vector<float> rows, down;
};

struct Conversion {
  std::map<uint64_t, Layer> layers;
  double loss = 0;
};

/// A golden model, cut open, with a text.
struct Bench {
  explicit Bench(const std::filesystem::path &folder,
                 int64_t maxStepTokens = 1024, int threads = 2)
      : Bench(folder, fitWindows, maxStepTokens, threads) {}
  Bench(const std::filesystem::path &folder, const Windows &fit,
        int64_t maxStepTokens = 1024, int threads = 2)
      : checkpoint(Checkpoint::open(folder)),
        text(makeText(fit, chooseWindows, checkWindows, maxStepTokens)),
        runner(checkpoint, runnerOptions(maxStepTokens, threads)),
        calibrator(checkpoint, runner, text, CalibrationOptions()) {}

  Conversion convert(std::vector<uint64_t> layers) {
    Conversion result;
    std::vector<LayerChoice> choices;
    for (uint64_t layer : layers)
      choices.push_back({layer});
    const std::vector<float> losses = calibrator.convert(
        choices,
        [&](const ConvertedLayer &layer) {
          Layer &kept = result.layers[layer.figures.layer];
          kept.figures = layer.figures;
          kept.rows.resize(kVocab * kWide);
          layer.rows.fill(0, kVocab, kept.rows.data());
          kept.down.assign(layer.down.begin(), layer.down.end());
        },
        [](double) {});
    result.loss = meanLoss(text.check, losses);
    return result;
  }
  double denseLoss() { return meanLoss(text.check, calibrator.denseLosses()); }

  Checkpoint checkpoint;
  CalibrationText text;
  LayerRunner runner;
  Calibrator calibrator;
};

/// A copy of a golden model with zeros for a tensor.
void copyWithZeros(const std::string &model, const std::string &tensor,
                   const std::filesystem::path &folder) {
  std::filesystem::copy(goldenFolder(model), folder);
  std::string file = readText(folder / "model.safetensors");
  uint64_t size;
  std::memcpy(&size, file.data(), sizeof(size));
  const auto header = nlohmann::json::parse(file.substr(sizeof(size), size));
  const auto offsets =
      header.at(tensor).at("data_offsets").get<std::array<uint64_t, 2>>();
  std::fill_n(file.begin() + static_cast<int64_t>(8 + size + offsets[0]),
              offsets[1] - offsets[0], '\0');
  std::filesystem::remove(folder / "model.safetensors");
  writeText(folder / "model.safetensors", file);
}

/// Of layer 0, from the token ids.
struct FirstTaps {
  FirstTaps(LayerRunner &runner, const TokenStream &stream,
            const TokenStream::Step &step)
      : gate(static_cast<size_t>(step.count * kWide)), up(gate.size()) {
    std::vector<float> x(static_cast<size_t>(step.count * kHidden));
    std::vector<float> middle(x.size());
    runner.embed(stream.step(step).ids, x.data());
    runner.attention(0, stream.step(step), x.data(), middle.data());
    runner.taps(0, middle.data(), step.count, x.data(), gate.data(), up.data());
    for (int64_t i = step.begin; i < step.begin + step.count; ++i)
      index.push_back(stream.counted[i] ? stream.rows[i] : -1);
  }

  std::vector<float> gate, up;
  std::vector<int32_t> index; ///< -1: not counted
};

std::vector<double> errorsOnChoose(Bench &bench, const RowFit &rows) {
  const double shrinkage = rows.shrinkage();
  RowErrors errors(rows, {&shrinkage, 1});
  for (const TokenStream::Step &step : bench.text.choose.steps) {
    const FirstTaps taps(bench.runner, bench.text.choose, step);
    errors.add({taps.index, taps.gate.data(), taps.up.data(), {}});
  }
  return errors.meanErrors(0);
}

class CalibratorTest : public testing::TestWithParam<const char *> {
protected:
  std::filesystem::path folder = goldenFolder(GetParam());
};

TEST_P(CalibratorTest, DenseLossIsTheEngines) {
  Bench bench(folder);
  EXPECT_NEAR(bench.denseLoss(),
              meanOfScored(engineLosses(folder, checkWindows, DType::F32),
                           makeStream(checkWindows, 1024)),
              1e-5);
}

TEST_P(CalibratorTest, Sensitivities) {
  Bench bench(folder);
  double done = 0;
  const Calibrator::Sensitivities result =
      bench.calibrator.measureSensitivities([&](double part) {
        EXPECT_GT(part, done);
        done = part;
      });
  EXPECT_EQ(done, 1);
  ASSERT_EQ(result.layers.size(), kLayers);
  EXPECT_NEAR(result.base,
              meanOfScored(engineLosses(folder, chooseWindows, DType::F32),
                           makeStream(chooseWindows, 1024)),
              1e-5);
  for (double layer : result.layers) {
    EXPECT_TRUE(std::isfinite(layer));
    EXPECT_NE(layer, 0);
  }
}

TEST_P(CalibratorTest, RefitHelpsAndLossIsFinite) {
  Bench bench(folder);
  const Conversion result = bench.convert({0, 2});
  ASSERT_EQ(result.layers.size(), 2u);
  EXPECT_TRUE(std::isfinite(result.loss));
  for (const auto &[number, layer] : result.layers) {
    EXPECT_EQ(layer.figures.layer, number);
    EXPECT_GT(layer.figures.errorBefore, 0);
    EXPECT_LT(layer.figures.errorAfter, layer.figures.errorBefore);
    EXPECT_GT(layer.figures.ridge, 0);
    EXPECT_TRUE(std::ranges::count(LayerFitOptions().shrinkages,
                                   layer.figures.shrinkage));
    for (float value : layer.rows)
      ASSERT_TRUE(std::isfinite(value));
  }
}

/// Layer 0 sees the dense model below, layer 2 what is left of it.
TEST_P(CalibratorTest, LayersAreConvertedOnConvertedOnes) {
  Bench bench(folder);
  const Conversion both = bench.convert({0, 2});
  // Replaced matrices would show in the dense model.
  Bench again(folder), alone(folder);
  const Conversion below = again.convert({0}), above = alone.convert({2});
  EXPECT_TRUE(sameBits(both.layers.at(0).rows, below.layers.at(0).rows, kWide));
  EXPECT_FALSE(
      sameBits(both.layers.at(2).rows, above.layers.at(2).rows, kWide));
}

TEST_P(CalibratorTest, StepsAndThreadsDoNotMatter) {
  Bench small(folder, 128, 1), large(folder, 2048, 2);
  const Conversion a = small.convert({0, 1}), b = large.convert({0, 1});
  for (uint64_t layer : {0, 1}) {
    const Layer &one = a.layers.at(layer), &other = b.layers.at(layer);
    EXPECT_TRUE(sameBits(one.rows, other.rows, kWide));
    EXPECT_TRUE(sameBits(one.down, other.down, kWide));
    EXPECT_EQ(one.figures.shrinkage, other.figures.shrinkage);
    EXPECT_EQ(one.figures.ridge, other.figures.ridge);
    EXPECT_NEAR(one.figures.errorAfter, other.figures.errorAfter,
                1e-6 * one.figures.errorAfter);
  }
  EXPECT_NEAR(a.loss, b.loss, 1e-6 * b.loss);
}

/// The rows of a fit made by hand from the same hidden states: the prior for
/// ids that no text has, wherever a range of ids begins.
TEST_P(CalibratorTest, RowsAreFittedOrThePrior) {
  Bench bench(folder);
  const Conversion result = bench.convert({0});
  const Layer &layer = result.layers.at(0);

  const TokenStream &fit = bench.text.fit;
  RowStatistics sums(bench.runner.context(),
                     static_cast<int64_t>(bench.text.rowIds.size()), kWide,
                     "layer 0");
  for (const TokenStream::Step &step : fit.steps) {
    const FirstTaps taps(bench.runner, fit, step);
    sums.add(taps.index, taps.gate.data(), taps.up.data());
  }
  NormedEmbeddings embeddings(bench.checkpoint, 0);
  RowFit rows = RowFit::perId(
      std::move(sums), kHidden, [&](int64_t first, int64_t count, float *out) {
        for (int64_t i = 0; i < count; ++i)
          embeddings.read(static_cast<uint64_t>(bench.text.rowIds[first + i]),
                          1, out + i * kHidden);
      });
  rows.setShrinkage(layer.figures.shrinkage);
  rows.blend(errorsOnChoose(bench, rows));
  std::vector<float> features(kVocab * kHidden), wanted(kVocab * kWide);
  embeddings.read(0, kVocab, features.data());
  rows.prior(features.data(), kVocab, wanted.data());
  ASSERT_EQ(bench.text.rowIds.size(), static_cast<size_t>(kSeen));
  for (int32_t row = 0; row < kSeen; ++row)
    rows.rows({&row, 1}, wanted.data() + bench.text.rowIds[row] * kWide);
  EXPECT_TRUE(sameBits(layer.rows, wanted, kWide));

  std::vector<float> part(7 * kWide);
  bench.calibrator.convert(
      std::vector<LayerChoice>{{0}},
      [&](const ConvertedLayer &again) { again.rows.fill(86, 7, part.data()); },
      [](double) {});
  EXPECT_TRUE(sameBits(part, std::span(wanted).subspan(86 * kWide, part.size()),
                       kWide));
}

/// With few positions an update fits what does not recur.
TEST_P(CalibratorTest, DownStaysWhereNoUpdateHelps) {
  Bench bench(folder, someWindows(2, 40, 1, kSeen));
  const Conversion result = bench.convert({0, 1, 2});
  size_t kept = 0;
  for (const auto &[number, layer] : result.layers) {
    EXPECT_LE(layer.figures.errorAfter, layer.figures.errorBefore);
    if (layer.figures.ridge != 0)
      continue;
    ++kept;
    EXPECT_EQ(layer.figures.errorAfter, layer.figures.errorBefore);
    std::vector<float> down(layer.down.size());
    bench.checkpoint.tensors().readF32(
        bench.checkpoint.weights().layers[number].downProj, 0, kHidden,
        down.data());
    EXPECT_TRUE(sameBits(layer.down, down, kWide));
  }
  EXPECT_GT(kept, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, CalibratorTest,
                         testing::Values("llama_gqa", "mistral_sliding",
                                         "qwen2_qkv_bias", "qwen3_qk_norm"),
                         [](const auto &test) {
                           return std::string(test.param);
                         });

TEST(CalibratorExact, LayerThatPutsOutNothing) {
  TemporaryFolder scratch;
  copyWithZeros("llama_gqa", "model.layers.1.mlp.down_proj.weight",
                scratch / "model");
  Bench bench(scratch / "model");
  const double dense = bench.denseLoss();
  const Conversion result = bench.convert({1});
  EXPECT_EQ(result.layers.at(1).figures.errorBefore, 0);
  EXPECT_EQ(result.layers.at(1).figures.errorAfter, 0);
  EXPECT_NEAR(result.loss, dense, 1e-5);
}

/// Without attention, layer 0 sees the token alone: its rows are what the
/// embedding gives, and nothing is lost.
TEST(CalibratorExact, UpOfTheTokenAloneIsReproduced) {
  TemporaryFolder scratch;
  copyWithZeros("llama_gqa", "model.layers.0.self_attn.o_proj.weight",
                scratch / "model");
  Bench bench(scratch / "model");
  const double dense = bench.denseLoss();
  const Conversion result = bench.convert({0});
  const Layer &layer = result.layers.at(0);
  EXPECT_LT(layer.figures.errorBefore, 1e-4);
  EXPECT_NEAR(result.loss, dense, 1e-3);
  std::vector<float> wanted(kVocab * kWide);
  makeTableRows({"embedding", 0}, bench.checkpoint, 0, bench.runner.context())
      ->fill(0, kVocab, wanted.data());
  double error = 0, all = 0;
  for (int64_t i = 0; i < kSeen * kWide; ++i) {
    error += std::pow(double(layer.rows[i]) - wanted[i], 2);
    all += std::pow(double(wanted[i]), 2);
  }
  EXPECT_LT(error, 1e-4 * all);
}

} // namespace
