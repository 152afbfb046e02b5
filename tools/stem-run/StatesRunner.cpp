//===- StatesRunner.cpp - Layers on the hidden states of a text -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StatesRunner.h"

#include <utility>

using namespace stem;

StatesRunner::StatesRunner(LayerRunner &runner, int64_t width,
                           std::filesystem::path spillFolder)
    : runner(runner), width(width), spillFolder(std::move(spillFolder)),
      next(static_cast<size_t>(runner.maxStepTokens() * width)) {}

HiddenStates StatesRunner::embedded(const TokenStream &stream) const {
  return HiddenStates(stream, width, spillFolder,
                      [&](const TokenStream::Step &step, float *out) {
                        runner.embed(stream.step(step).ids, out);
                      });
}

void StatesRunner::copyTo(std::optional<HiddenStates> &copy,
                          const HiddenStates &states) const {
  copy.emplace(states.stream(), width, spillFolder);
  copy->copyFrom(states);
}

void StatesRunner::attention(HiddenStates &states, uint64_t layer) {
  for (const TokenStream::Step &step : states.stream().steps) {
    runner.attention(layer, states.stream().step(step), states.at(step),
                     next.data());
    states.replace(runner.context(), step, next.data());
  }
}

void StatesRunner::feedForward(HiddenStates &states, uint64_t layer) {
  for (const TokenStream::Step &step : states.stream().steps) {
    runner.feedForward(layer, states.at(step), step.count, next.data(),
                       states.stream().step(step).ids);
    states.replace(runner.context(), step, next.data());
  }
}

void StatesRunner::block(HiddenStates &states, uint64_t layer) {
  attention(states, layer);
  feedForward(states, layer);
}

std::vector<float> StatesRunner::losses(const HiddenStates &states) const {
  const TokenStream &stream = states.stream();
  std::vector<float> result(static_cast<size_t>(stream.places()));
  for (const TokenStream::Step &step : stream.steps) {
    runner.score(states.at(step),
                 std::span(stream.labels).subspan(step.begin, step.count),
                 result.data() + step.begin);
    states.leave(step);
  }
  return result;
}

double StatesRunner::loss(const HiddenStates &states) const {
  return meanLoss(states.stream(), losses(states));
}

double stem::meanLoss(const TokenStream &stream,
                      std::span<const float> losses) {
  double sum = 0;
  int64_t scored = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (stream.labels[i] == -100)
      continue;
    sum += losses[i];
    ++scored;
  }
  return sum / static_cast<double>(scored);
}
