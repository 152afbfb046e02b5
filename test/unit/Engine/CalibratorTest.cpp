//===- CalibratorTest.cpp - Rows and W_down of small models ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibrator.h"
#include "CalibrationTestSupport.h"
#include "StatesRunner.h"

#include <map>

using namespace stem;
using namespace stem::test;

namespace {

constexpr int32_t kSeen = 90; ///< ids from here on are in no text

const Windows fitWindows = someWindows(28, 100, 1, kSeen);
const Windows chooseWindows = someWindows(3, 100, 101, kSeen);
const Windows checkWindows = someWindows(3, 100, 201, kSeen);

struct Layer {
  CalibratedLayer figures;
  std::vector<float> rows, down, mix; ///< mix: A of the low-rank term
};

struct Conversion {
  std::map<uint64_t, Layer> layers;
  double loss = 0, storedLoss = 0;
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
  Bench(const std::filesystem::path &folder, const CalibrationOptions &options)
      : checkpoint(Checkpoint::open(folder)),
        text(makeText(fitWindows, chooseWindows, checkWindows, 1024)),
        runner(checkpoint, runnerOptions(1024)),
        calibrator(checkpoint, runner, text, options) {}

  Conversion convert(std::vector<uint64_t> layers, int64_t rank = 0) {
    Conversion result;
    std::vector<LayerChoice> choices;
    for (uint64_t layer : layers)
      choices.push_back({layer, rank});
    const CheckedLosses losses = calibrator.convert(
        choices,
        [&](const ConvertedLayer &layer) {
          Layer &kept = result.layers[layer.figures.layer];
          kept.figures = layer.figures;
          kept.rows.resize(kVocab * kWide);
          layer.rows.fill(0, kVocab, kept.rows.data());
          kept.down.assign(layer.down.begin(), layer.down.end());
          if (layer.lowRank)
            kept.mix.assign(layer.lowRank->a().begin(),
                            layer.lowRank->a().end());
        },
        [](double) {});
    result.loss = meanLoss(text.check, losses.converted);
    if (!losses.stored.empty())
      result.storedLoss = meanLoss(text.check, losses.stored);
    return result;
  }
  double denseLoss() { return meanLoss(text.check, calibrator.denseLosses()); }

  Checkpoint checkpoint;
  CalibrationText text;
  LayerRunner runner;
  Calibrator calibrator;
};

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

/// The rows alone change, and only on the text to check.
TEST_P(CalibratorTest, ChecksRowsAsTheyAreStored) {
  const auto convert = [&](const StoredRow &store, int64_t rank) {
    CalibrationOptions options;
    options.store = store;
    return Bench(folder, options).convert({0, 2}, rank);
  };
  for (const int64_t rank : {0, 4}) {
    const Conversion same = convert([](int32_t, std::span<float>) {}, rank);
    EXPECT_NEAR(same.storedLoss, same.loss, 1e-6 * same.loss);
    const Conversion changed = convert(
        [](int32_t id, std::span<float> row) {
          EXPECT_LT(id, kVocab);
          EXPECT_EQ(row.size(), static_cast<size_t>(kWide));
          for (float &x : row)
            x *= 2;
        },
        rank);
    EXPECT_EQ(changed.loss, same.loss);
    EXPECT_GT(std::fabs(changed.storedLoss - changed.loss), 1e-4);
    EXPECT_TRUE(
        sameBits(changed.layers.at(2).rows, same.layers.at(2).rows, kWide));
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

void expectSame(const Conversion &a, const Conversion &b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (const auto &[number, layer] : a.layers) {
    const Layer &other = b.layers.at(number);
    EXPECT_TRUE(sameBits(layer.rows, other.rows, kWide));
    EXPECT_TRUE(sameBits(layer.down, other.down, kWide));
    EXPECT_EQ(layer.mix, other.mix);
    EXPECT_EQ(layer.figures.shrinkage, other.figures.shrinkage);
    EXPECT_EQ(layer.figures.errorBefore, other.figures.errorBefore);
    EXPECT_EQ(layer.figures.errorAfter, other.figures.errorAfter);
  }
}

/// Hidden states in a file, weights of one layer at a time.
CalibrationOptions littleMemory(CalibrationOptions options,
                                const TemporaryFolder &scratch) {
  options.spillFolder = scratch.path();
  options.isOneLayerHeld = true;
  return options;
}

TEST_P(CalibratorTest, LittleMemoryGivesTheSame) {
  const TemporaryFolder scratch;
  Bench all(folder), little(folder, littleMemory({}, scratch));
  EXPECT_EQ(all.denseLoss(), little.denseLoss());
  const auto measure = [](Bench &bench) {
    return bench.calibrator.measureSensitivities([](double) {});
  };
  const Calibrator::Sensitivities one = measure(all), other = measure(little);
  EXPECT_EQ(one.base, other.base);
  EXPECT_EQ(one.layers, other.layers);
  EXPECT_EQ(one.errors, other.errors);
  expectSame(all.convert({0, 2}), little.convert({0, 2}));
  EXPECT_EQ(scratch.entryCount(), 0u);
}

/// Rows in files, of all columns at once and of 64 and 16 of them.
TEST_P(CalibratorTest, RowsInPartsGiveTheSame) {
  const TemporaryFolder scratch;
  CalibrationOptions plain, dense, mean;
  dense.fit.keepsMatrix.assign(kSeen, 0);
  std::fill_n(dense.fit.keepsMatrix.begin(), 20, 1);
  dense.fit.keepsMatrixLeftOut = dense.fit.keepsMatrix;
  mean.fit.isOneRow = true;
  for (const CalibrationOptions &options : {plain, dense, mean}) {
    Bench whole(folder, options);
    const Conversion rows = whole.convert({0, 2}),
                     mixed = whole.convert({0, 2}, 8);
    const std::vector<uint64_t> layers = {0, 2};
    const auto gainsOf = [&](Bench &bench) {
      return bench.calibrator.measureRankGains(layers, [](double) {});
    };
    const auto gains = gainsOf(whole);
    for (int64_t columns : {int64_t(0), int64_t(64)}) {
      CalibrationOptions little = littleMemory(options, scratch);
      little.rows = {columns, scratch.path()};
      Bench parts(folder, little);
      expectSame(parts.convert({0, 2}), rows);
      expectSame(parts.convert({0, 2}, 8), mixed);
      EXPECT_EQ(gainsOf(parts), gains);
    }
  }
  EXPECT_EQ(scratch.entryCount(), 0u);
}

/// Where every id keeps the matrix, tables change nothing.
TEST_P(CalibratorTest, AllIdsKeepTheMatrix) {
  CalibrationOptions options;
  options.fit.keepsMatrix.assign(kSeen, 1);
  options.fit.keepsMatrixLeftOut = options.fit.keepsMatrix;
  Bench bench(folder, options);
  const double dense = bench.denseLoss();
  EXPECT_NEAR(bench.convert({0, 1, 2}).loss, dense, 1e-5);
  const Conversion result = bench.convert({1});
  EXPECT_NEAR(result.loss, dense, 1e-5);
  const Layer &layer = result.layers.at(1);
  EXPECT_EQ(layer.figures.errorBefore, 0);
  EXPECT_EQ(layer.figures.errorAfter, 0);
  EXPECT_EQ(layer.figures.ridge, 0);
  std::vector<float> down(layer.down.size());
  bench.checkpoint.tensors().readF32(
      bench.checkpoint.weights().layers[1].downProj, 0, kHidden, down.data());
  EXPECT_TRUE(sameBits(layer.down, down, kWide));
}

/// W_down is fitted to what the others lack, even where most keep the matrix.
TEST_P(CalibratorTest, SomeIdsKeepTheMatrix) {
  CalibrationOptions options;
  Bench none(folder, options);
  const Conversion without = none.convert({1});
  for (int32_t kept : {20, 60}) {
    options.fit.keepsMatrix.assign(kSeen, 0);
    std::fill_n(options.fit.keepsMatrix.begin(), kept, 1);
    options.fit.keepsMatrixLeftOut = options.fit.keepsMatrix;
    Bench some(folder, options);
    const Conversion with = some.convert({1});
    const CalibratedLayer &figures = with.layers.at(1).figures;
    EXPECT_LT(figures.errorBefore, without.layers.at(1).figures.errorBefore);
    EXPECT_GT(figures.ridge, 0) << kept;
    EXPECT_LT(figures.errorAfter, figures.errorBefore) << kept;
    EXPECT_TRUE(
        sameBits(with.layers.at(1).rows, without.layers.at(1).rows, kWide));
  }
}

/// Where an id keeps the matrix once a position is left out of its row, the
/// text to fit loses nothing there; what is left are the first positions, which
/// no row counts.
TEST_P(CalibratorTest, LeftOutIdsKeepTheMatrix) {
  CalibrationOptions options;
  options.fit.keepsMatrix.assign(kSeen, 0);
  std::vector<float> dense(kHidden * kWide);
  double moved[2];
  for (uint8_t keeps : {0, 1}) {
    options.fit.keepsMatrixLeftOut.assign(kSeen, keeps);
    Bench bench(folder, options);
    const Layer layer = bench.convert({1}).layers.at(1);
    bench.checkpoint.tensors().readF32(
        bench.checkpoint.weights().layers[1].downProj, 0, kHidden,
        dense.data());
    moved[keeps] = 0;
    for (size_t i = 0; i < dense.size(); ++i)
      moved[keeps] += std::pow(layer.down[i] - dense[i], 2);
  }
  EXPECT_LT(moved[1], moved[0] / 4);
}

/// Σ g² u / Σ g² over all positions, for every id.
TEST_P(CalibratorTest, OneRowForAllIds) {
  CalibrationOptions options;
  options.fit.isOneRow = true;
  Bench bench(folder, options);
  const Conversion result = bench.convert({0});
  const Layer &layer = result.layers.at(0);
  std::vector<double> squares(kWide), gatedUps(kWide);
  for (const TokenStream::Step &step : bench.text.fit.steps) {
    const FirstTaps taps(bench.runner, bench.text.fit, step);
    for (size_t i = 0; i < taps.gate.size(); ++i) {
      if (taps.index[i / kWide] < 0)
        continue;
      const double square = double(taps.gate[i]) * taps.gate[i];
      squares[i % kWide] += square;
      gatedUps[i % kWide] += square * taps.up[i];
    }
  }
  for (size_t c = 0; c < kWide; ++c)
    EXPECT_NEAR(layer.rows[c], gatedUps[c] / squares[c], 1e-4);
  const std::span<const float> rows = layer.rows;
  for (size_t id = 1; id < kVocab; ++id)
    ASSERT_TRUE(sameBits(rows.subspan(id * kWide, kWide), rows.first(kWide)));
  EXPECT_LT(layer.figures.errorAfter, layer.figures.errorBefore);
}

INSTANTIATE_TEST_SUITE_P(Models, CalibratorTest,
                         testing::Values("llama_gqa", "mistral_sliding",
                                         "qwen2_qkv_bias", "qwen3_qk_norm"),
                         [](const auto &test) {
                           return std::string(test.param);
                         });

TEST(CalibratorExact, LayerThatPutsOutNothing) {
  TemporaryFolder scratch;
  copyChanged("llama_gqa", scratch / "model",
              {{"model.layers.1.mlp.down_proj.weight", toZero}});
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
  copyChanged("llama_gqa", scratch / "model",
              {{"model.layers.0.self_attn.o_proj.weight", toZero}});
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
