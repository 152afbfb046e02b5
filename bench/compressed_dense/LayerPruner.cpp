//===- LayerPruner.cpp - d_ff with fewer columns --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerPruner.h"

#include "DownRefit.h"

#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace stem;

LayerPruner::LayerPruner(const Checkpoint &checkpoint, LayerRunner &runner)
    : checkpoint(checkpoint), runner(runner),
      d(static_cast<int64_t>(checkpoint.config().hiddenSize)),
      f(static_cast<int64_t>(checkpoint.config().intermediateSize)) {
  for (std::vector<float> *buffer : {&hidden, &output, &lacks})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * d));
  for (std::vector<float> *buffer : {&gate, &product, &rest})
    buffer->resize(static_cast<size_t>(runner.maxStepTokens() * f));
}

/// `product` z = g ⊙ u of the step, and `output` W_down z.
void LayerPruner::taps(uint64_t layer, const HiddenStates &states,
                       const TokenStream::Step &step) {
  runner.taps(layer, states.at(step), step.count, hidden.data(), gate.data(),
              product.data());
  for (int64_t i = 0; i < step.count * f; ++i)
    product[i] *= gate[i];
  runner.product(layer, product.data(), step.count, output.data());
}

/// Σ w (g_i u_i)² · ‖W_down[:, i]‖² over the positions of `fit`, with the
/// weights w of the refit by the size of the output.
std::vector<double> LayerPruner::importance(uint64_t layer,
                                            std::span<const float> down,
                                            const HiddenStates &fit) {
  std::vector<double> squares(static_cast<size_t>(f)), norms(squares.size());
  for (const TokenStream::Step &step : fit.stream().steps) {
    taps(layer, fit, step);
    scaleRows(refitWeights(fit.stream().step(step).sequences, output.data(), d),
              product.data(), f);
    for (int64_t i = 0; i < step.count * f; ++i)
      squares[i % f] += double(product[i]) * product[i];
  }
  for (size_t i = 0; i < down.size(); ++i)
    norms[i % norms.size()] += double(down[i]) * down[i];
  for (size_t i = 0; i < squares.size(); ++i)
    if (squares[i] *= norms[i]; !std::isfinite(squares[i]))
      fail("layer {}: column {} of d_ff is not finite on the calibration text; "
           "look for NaN or infinity in the model's weights",
           layer, i);
  return squares;
}

/// Moves the columns of `product` that are gone to `rest`; `lacks` is what they
/// give to the output.
void LayerPruner::split(uint64_t layer, std::span<const uint8_t> isKept,
                        int64_t count) {
  for (int64_t i = 0; i < count * f; ++i) {
    rest[i] = isKept[i % f] ? 0 : product[i];
    product[i] -= rest[i];
  }
  runner.product(layer, rest.data(), count, lacks.data());
}

ChangedLayer LayerPruner::prune(uint64_t layer, const LayerText &fit,
                                const LayerText &choose, int64_t columns,
                                std::span<const double> ridges) {
  ChangedLayer result;
  std::vector<float> &down = result.down;
  down.resize(static_cast<size_t>(d * f));
  checkpoint.tensors().readF32(checkpoint.weights().layers[layer].downProj, 0,
                               static_cast<uint64_t>(d), down.data());
  const std::vector<double> values = importance(layer, down, fit.states);
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-values[a], a) < std::pair(-values[b], b);
  });
  std::vector<uint8_t> isKept(values.size());
  for (int64_t i = 0; i < columns; ++i)
    isKept[order[static_cast<size_t>(i)]] = 1;

  DownRefit refit(runner, checkpoint.config(), layer);
  if (!ridges.empty())
    for (const TokenStream::Step &step : fit.states.stream().steps) {
      taps(layer, fit.states, step);
      split(layer, isKept, step.count);
      addCarry(runner, checkpoint, layer, fit, step, LayerFitOptions().carry,
               lacks.data());
      refit.addFit(fit.states.stream().step(step).sequences, product.data(),
                   lacks.data());
    }
  for (const TokenStream::Step &step : choose.states.stream().steps) {
    taps(layer, choose.states, step);
    split(layer, isKept, step.count);
    addCarry(runner, checkpoint, layer, choose, step, LayerFitOptions().carry,
             lacks.data());
    refit.addChoose(choose.states.stream().step(step).sequences, product.data(),
                    lacks.data(), output.data());
  }
  const DownRefit::Result fitted = refit.solve(ridges);
  result.ridge = fitted.ridge;
  result.errorBefore = fitted.errorBefore;
  result.errorAfter = fitted.errorAfter;
  for (size_t i = 0; i < down.size(); ++i)
    down[i] = isKept[i % isKept.size()] ? down[i] + fitted.update[i] : 0;
  return result;
}
