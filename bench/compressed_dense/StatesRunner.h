//===- StatesRunner.h - Blocks on the hidden states of a text -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_BENCH_COMPRESSED_DENSE_STATESRUNNER_H
#define STEM_BENCH_COMPRESSED_DENSE_STATESRUNNER_H

#include "Calibrator.h"
#include "HiddenStates.h"
#include "LayerRunner.h"

#include "stem/Model/ModelConfig.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

namespace stem {

/// Runs the parts of a dense model on hidden states in their place.
class StatesRunner {
public:
  StatesRunner(LayerRunner &runner, const ModelConfig &config)
      : runner(runner), width(static_cast<int64_t>(config.hiddenSize)),
        next(static_cast<size_t>(runner.maxStepTokens() * width)) {}

  HiddenStates embedded(const TokenStream &stream) const {
    return HiddenStates(stream, width, {},
                        [&](const TokenStream::Step &step, float *out) {
                          runner.embed(stream.step(step).ids, out);
                        });
  }

  void copyTo(std::optional<HiddenStates> &copy,
              const HiddenStates &states) const {
    copy.emplace(states.stream(), width, std::filesystem::path());
    copy->copyFrom(states);
  }

  void attention(HiddenStates &states, uint64_t layer) {
    for (const TokenStream::Step &step : states.stream().steps) {
      runner.attention(layer, states.stream().step(step), states.at(step),
                       next.data());
      std::copy_n(next.data(), step.count * width, states.at(step));
    }
  }

  void feedForward(HiddenStates &states, uint64_t layer) {
    for (const TokenStream::Step &step : states.stream().steps) {
      runner.feedForward(layer, states.at(step), step.count, next.data());
      std::copy_n(next.data(), step.count * width, states.at(step));
    }
  }

  void block(HiddenStates &states, uint64_t layer) {
    attention(states, layer);
    feedForward(states, layer);
  }

  /// The mean negative log-likelihood of the text.
  double loss(const HiddenStates &states) {
    const TokenStream &stream = states.stream();
    std::vector<float> losses(static_cast<size_t>(stream.places()));
    for (const TokenStream::Step &step : stream.steps)
      runner.score(states.at(step),
                   std::span(stream.labels).subspan(step.begin, step.count),
                   losses.data() + step.begin);
    return meanLoss(stream, losses);
  }

private:
  LayerRunner &runner;
  int64_t width;
  std::vector<float> next; ///< hidden states of a step
};

} // namespace stem

#endif // STEM_BENCH_COMPRESSED_DENSE_STATESRUNNER_H
