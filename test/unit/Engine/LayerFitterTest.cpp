//===- LayerFitterTest.cpp - Positions that W_down is fitted to -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerFitter.h"
#include "CalibrationTestSupport.h"

using namespace stem;
using namespace stem::test;

namespace {

constexpr int32_t kFirst = 95; ///< begins every window and is nowhere else
constexpr int64_t kFlag = 31;  ///< the dimension that only this id has

/// Layer 0 of a model in which the FFN's output of the first position of a
/// window is far larger than that of any other, as where attention has its
/// sink: gate and up have large weights for a dimension that only one id has.
void makeSinkModel(const std::filesystem::path &folder) {
  const auto scaleFlag = [](float scale) {
    return [scale](std::span<float> matrix) {
      for (size_t row = 0; row < matrix.size() / kHidden; ++row)
        matrix[row * kHidden + kFlag] *= scale;
    };
  };
  copyChanged("llama_gqa", folder,
              {{"model.embed_tokens.weight",
                [](std::span<float> table) {
                  for (size_t id = 0; id < kVocab; ++id)
                    table[id * kHidden + kFlag] = id == kFirst;
                }},
               // Attention does not carry it on.
               {"model.layers.0.self_attn.o_proj.weight",
                [](std::span<float> matrix) {
                  toZero(matrix.subspan(kFlag * matrix.size() / kHidden,
                                        matrix.size() / kHidden));
                }},
               {"model.layers.0.mlp.gate_proj.weight", scaleFlag(1000)},
               {"model.layers.0.mlp.up_proj.weight", scaleFlag(3)}});
}

Windows withFirst(Windows windows) {
  for (std::vector<int32_t> &window : windows)
    window[0] = kFirst;
  return windows;
}

/// Squared errors of the FFN's output, over those of the output.
struct RelativeErrors {
  double first = 0, others = 0;
};

struct Bench {
  explicit Bench(const std::filesystem::path &folder, DType dtype = DType::F32)
      : checkpoint(Checkpoint::open(folder)),
        text(makeText(withFirst(someWindows(28, 100, 1, 90)),
                      withFirst(someWindows(3, 100, 101, 90)),
                      withFirst(someWindows(3, 100, 201, 90)), 1024)),
        runner(checkpoint, options(dtype)),
        fitter(checkpoint, runner, text.rowIds) {}

  static EngineOptions options(DType dtype) {
    EngineOptions options = runnerOptions(1024);
    options.dtype = dtype;
    return options;
  }

  /// Behind the attention of layer 0.
  std::unique_ptr<HiddenStates> states(const TokenStream &stream) {
    return std::make_unique<HiddenStates>(
        stream, kHidden, "", [&](const TokenStream::Step &step, float *out) {
          std::vector<float> x(static_cast<size_t>(step.count * kHidden));
          runner.embed(stream.step(step).ids, x.data());
          runner.attention(0, stream.step(step), x.data(), out);
        });
  }

  RelativeErrors errors(const LayerFit &layer) {
    const TokenStream &stream = text.check;
    const auto before = states(stream), after = states(stream);
    fitter.propagate(layer, *after, {}, /*leaveOneOut=*/false);
    double lost[2] = {}, all[2] = {};
    for (const TokenStream::Step &step : stream.steps) {
      std::vector<float> dense(static_cast<size_t>(step.count * kHidden));
      runner.feedForward(0, before->at(step), step.count, dense.data());
      for (int64_t i = 0; i < step.count * kHidden; ++i) {
        const int64_t place = step.begin + i / kHidden;
        if (stream.sequences[place] < 0)
          continue;
        const bool isFirst = stream.positions[place] == 0;
        lost[isFirst] += std::pow(double(after->at(step)[i]) - dense[i], 2);
        all[isFirst] += std::pow(double(dense[i]) - before->at(step)[i], 2);
      }
    }
    EXPECT_GT(all[1], 10 * all[0]); // of a hundredth of the positions
    return {lost[1] / all[1], lost[0] / all[0]};
  }

  Checkpoint checkpoint;
  CalibrationText text;
  LayerRunner runner;
  LayerFitter fitter;
};

/// It is fitted, though no row's statistics hold it, and the others are as
/// well.
TEST(LayerFitter, FirstPositionWithAHugeOutput) {
  const TemporaryFolder scratch;
  makeSinkModel(scratch / "model");
  Bench bench(scratch / "model");
  const auto fit = bench.states(bench.text.fit);
  const auto choose = bench.states(bench.text.choose);
  LayerFit layer = bench.fitter.fit(0, {*fit}, {*choose}, {});
  const RelativeErrors refitted = bench.errors(layer);
  bench.checkpoint.tensors().readF32(
      bench.checkpoint.weights().layers[0].downProj, 0, kHidden,
      layer.down.data());
  const RelativeErrors own = bench.errors(layer);
  EXPECT_GT(own.first, 0.5);
  EXPECT_LT(refitted.first, 0.05);
  EXPECT_LT(refitted.others, 0.9 * own.others);
}

/// Half of what the states below lack is asked of W_down, and some of it
/// follows from what the FFN sees.
TEST(LayerFitter, ErrorsFromBelowAreTakenBackInPart) {
  Bench bench(goldenFolder("llama_gqa"));
  const auto shrunk = [&](const TokenStream &stream) {
    auto states = bench.states(stream);
    for (const TokenStream::Step &step : stream.steps)
      for (int64_t i = 0; i < step.count * kHidden; ++i)
        states->at(step)[i] *= 0.8f;
    return states;
  };
  const auto fit = shrunk(bench.text.fit),
             denseFit = bench.states(bench.text.fit);
  const auto choose = shrunk(bench.text.choose),
             denseChoose = bench.states(bench.text.choose);
  const auto errorWith = [&](double carry) {
    LayerFitOptions options;
    options.carry = carry;
    const LayerFit layer = bench.fitter.fit(
        0, {*fit, denseFit.get()}, {*choose, denseChoose.get()}, options);
    const TokenStream &stream = bench.text.check;
    const auto states = shrunk(stream), dense = bench.states(stream);
    bench.fitter.propagate(layer, *states, options, /*leaveOneOut=*/false);
    double error = 0;
    for (const TokenStream::Step &step : stream.steps) {
      std::vector<float> wanted(static_cast<size_t>(step.count * kHidden));
      bench.runner.feedForward(0, dense->at(step), step.count, wanted.data());
      for (int64_t i = 0; i < step.count * kHidden; ++i)
        if (stream.sequences[step.begin + i / kHidden] >= 0)
          error += std::pow(double(states->at(step)[i]) - wanted[i], 2);
    }
    return error;
  };
  const double none = errorWith(0), half = errorWith(0.5);
  EXPECT_LT(half, 0.99 * none);
  EXPECT_EQ(errorWith(LayerFitOptions().carry), half);
}

/// Behind the FFN of layer 0 as converted, on the text that it was fitted to.
std::vector<float> propagated(Bench &bench, const LayerFitOptions &options) {
  const auto fit = bench.states(bench.text.fit);
  const auto choose = bench.states(bench.text.choose);
  const LayerFit layer = bench.fitter.fit(0, {*fit}, {*choose}, options);
  EXPECT_EQ(layer.products != nullptr, options.keepsProducts);
  bench.fitter.propagate(layer, *fit, options, /*leaveOneOut=*/true);
  std::vector<float> result;
  for (const TokenStream::Step &step : bench.text.fit.steps)
    result.insert(result.end(), fit->at(step),
                  fit->at(step) + step.count * kHidden);
  return result;
}

TEST(LayerFitter, TakesTheRidgeWithTheLeastError) {
  Bench bench(goldenFolder("llama_gqa"));
  const auto fit = bench.states(bench.text.fit);
  const auto choose = bench.states(bench.text.choose);
  const auto figuresOf = [&](std::vector<double> ridges) {
    LayerFitOptions options;
    options.ridges = std::move(ridges);
    return bench.fitter.fit(0, {*fit}, {*choose}, options).figures;
  };
  const std::vector<double> ridges = {1e-3, 1e-2, 1e-1, 1, 10};
  double least = 1, best = 0;
  for (const double ridge : ridges)
    if (const double error = figuresOf({ridge}).errorAfter; error < least) {
      least = error;
      best = ridge;
    }
  const CalibratedLayer chosen = figuresOf(ridges);
  EXPECT_EQ(chosen.ridge, best);
  EXPECT_EQ(chosen.errorAfter, least);
  EXPECT_NE(best, ridges.back()); // some were not tried
}

/// Of several ranks, and of a layer after the other, in the same memory.
TEST(LayerFitter, TapsAreThoseOfTheLayer) {
  Bench bench(goldenFolder("llama_gqa"));
  const auto fit = bench.states(bench.text.fit);
  const auto choose = bench.states(bench.text.choose);
  LayerFitOptions options;
  const auto downOf = [&](uint64_t layer, int64_t rank) {
    options.rank = rank;
    LayerFit fitted = bench.fitter.fit(layer, {*fit}, {*choose}, options);
    bench.fitter.reuse(std::move(fitted.rows));
    return fitted.down;
  };
  std::vector<std::vector<float>> computed, kept;
  for (auto *downs : {&computed, &kept}) {
    options.keepsTaps = downs == &kept;
    for (const auto [layer, rank] :
         {std::pair(0, 0), {1, 0}, {1, 4}, {0, 4}, {0, 0}})
      downs->push_back(downOf(static_cast<uint64_t>(layer), rank));
  }
  EXPECT_EQ(kept, computed);
  EXPECT_EQ(kept.front(), kept.back());
  EXPECT_NE(kept[0], kept[1]);
}

TEST(LayerFitter, WhatIsKeptGivesTheSameBits) {
  for (DType dtype : {DType::F32, DType::BF16})
    for (int64_t rank : {0, 4}) {
      Bench bench(goldenFolder("llama_gqa"), dtype);
      LayerFitOptions options;
      options.rank = rank;
      options.keepsMatrix.assign(bench.text.rowIds.size(), 0);
      options.keepsMatrix[3] = 1;
      options.keepsMatrixLeftOut = options.keepsMatrix;
      options.keepsMatrixLeftOut[4] = 1;
      const std::vector<float> computed = propagated(bench, options);
      for (const auto [keepsTaps, keepsProducts] :
           {std::pair(false, true), {true, false}, {true, true}}) {
        options.keepsTaps = keepsTaps;
        options.keepsProducts = keepsProducts;
        EXPECT_EQ(propagated(bench, options), computed)
            << dtypeName(dtype) << ", rank " << rank << ", taps " << keepsTaps
            << ", products " << keepsProducts;
      }
    }
}

} // namespace
