//===- StatesRunner.h - Layers on the hidden states of a text -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_STATESRUNNER_H
#define STEM_TOOLS_STEM_RUN_STATESRUNNER_H

#include "HiddenStates.h"
#include "LayerRunner.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace stem {

/// Runs the parts of a model on hidden states in their place.
class StatesRunner {
public:
  /// `spillFolder`: where new states are kept; empty: in memory. The runner
  /// outlives the object.
  StatesRunner(LayerRunner &runner, int64_t width,
               std::filesystem::path spillFolder = {});

  HiddenStates embedded(const TokenStream &stream) const;
  void copyTo(std::optional<HiddenStates> &copy,
              const HiddenStates &states) const;

  void attention(HiddenStates &states, uint64_t layer);
  void feedForward(HiddenStates &states, uint64_t layer);
  void block(HiddenStates &states, uint64_t layer);

  /// The negative log-likelihoods of the places, 0 where none is predicted, and
  /// their mean.
  std::vector<float> losses(const HiddenStates &states) const;
  double loss(const HiddenStates &states) const;

private:
  LayerRunner &runner;
  int64_t width;
  std::filesystem::path spillFolder;
  std::vector<float> next; ///< hidden states of a step
};

/// The mean over the places of the stream that predict a token.
double meanLoss(const TokenStream &stream, std::span<const float> losses);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_STATESRUNNER_H
