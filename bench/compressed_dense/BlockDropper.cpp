//===- BlockDropper.cpp - A model with fewer blocks -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockDropper.h"

#include "DownRefit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace stem;

BlockDropper::BlockDropper(const Checkpoint &checkpoint, LayerRunner &runner)
    : checkpoint(checkpoint), runner(runner),
      states(runner, static_cast<int64_t>(checkpoint.config().hiddenSize)),
      d(static_cast<int64_t>(checkpoint.config().hiddenSize)),
      f(static_cast<int64_t>(checkpoint.config().intermediateSize)) {
  for (std::vector<float> *buffer : {&hidden, &middle, &lacks})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * d));
  for (std::vector<float> *buffer : {&gate, &product})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * f));
}

std::vector<DroppedBlock>
BlockDropper::choose(const TokenStream &stream, uint64_t count,
                     const std::function<void(double)> &done) {
  std::vector<uint64_t> left(checkpoint.config().layerCount());
  std::iota(left.begin(), left.end(), 0);
  std::vector<DroppedBlock> result;
  HiddenStates changed(stream, d, {});
  double base = 0;
  while (result.size() < count) {
    DroppedBlock round;
    round.left = left;
    HiddenStates below = states.embedded(stream);
    for (size_t i = 0; i < left.size(); ++i) {
      changed.copyFrom(below);
      for (size_t above = i + 1; above < left.size(); ++above)
        states.block(changed, left[above]);
      const double loss = states.loss(changed);
      // NaN has no order.
      round.candidates.push_back(std::isfinite(loss) ? loss : INFINITY);
      states.block(below, left[i]);
      done((static_cast<double>(result.size()) +
            static_cast<double>(i + 1) / static_cast<double>(left.size())) /
           static_cast<double>(count));
    }
    if (result.empty())
      base = states.loss(below);
    for (double &loss : round.candidates)
      loss -= base;
    const auto least =
        std::min_element(round.candidates.begin(), round.candidates.end());
    const auto place = least - round.candidates.begin();
    round.block = left[static_cast<size_t>(place)];
    round.sensitivity = *least;
    left.erase(left.begin() + place);
    result.push_back(std::move(round));
  }
  return result;
}

/// `product` z = g ⊙ u of the step in `block`, and `lacks`, what the dropped
/// blocks add to its output.
void BlockDropper::taps(uint64_t block, std::span<const uint64_t> dropped,
                        const HiddenStates &states,
                        const TokenStream::Step &step) {
  runner.taps(block, states.at(step), step.count, hidden.data(), gate.data(),
              product.data());
  for (int64_t i = 0; i < step.count * f; ++i)
    product[i] *= gate[i];
  runner.feedForward(block, states.at(step), step.count, hidden.data());
  std::copy_n(hidden.data(), step.count * d, lacks.data());
  for (const uint64_t next : dropped) {
    runner.attention(next, states.stream().step(step), lacks.data(),
                     middle.data());
    runner.feedForward(next, middle.data(), step.count, lacks.data());
  }
  for (int64_t i = 0; i < step.count * d; ++i)
    lacks[i] -= hidden[i];
}

ChangedLayer BlockDropper::refit(uint64_t block,
                                 std::span<const uint64_t> dropped,
                                 const LayerText &fit, const LayerText &choose,
                                 std::span<const double> ridges) {
  DownRefit refit(runner, checkpoint.config(), block);
  for (const TokenStream::Step &step : fit.states.stream().steps) {
    taps(block, dropped, fit.states, step);
    addCarry(runner, checkpoint, block, fit, step, LayerFitOptions().carry,
             lacks.data());
    refit.addFit(fit.states.stream().step(step).sequences, product.data(),
                 lacks.data());
  }
  for (const TokenStream::Step &step : choose.states.stream().steps) {
    taps(block, dropped, choose.states, step);
    std::copy_n(lacks.data(), step.count * d, middle.data());
    addCarry(runner, checkpoint, block, choose, step, LayerFitOptions().carry,
             lacks.data());
    refit.addChoose(choose.states.stream().step(step).sequences, product.data(),
                    lacks.data(), middle.data());
  }
  const DownRefit::Result fitted = refit.solve(ridges);
  ChangedLayer result{fitted.ridge, fitted.errorBefore, fitted.errorAfter, {}};
  result.down.resize(fitted.update.size());
  checkpoint.tensors().readF32(checkpoint.weights().layers[block].downProj, 0,
                               static_cast<uint64_t>(d), result.down.data());
  for (size_t i = 0; i < result.down.size(); ++i)
    result.down[i] += fitted.update[i];
  return result;
}
