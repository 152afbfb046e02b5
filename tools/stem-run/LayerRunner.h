//===- LayerRunner.h - A model, one layer at a time -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_LAYERRUNNER_H
#define STEM_TOOLS_STEM_RUN_LAYERRUNNER_H

#include "Engine.h"

#include "stem/Runtime/Arena.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// Tokens of one step: whole token tiles, each of one window; what fills the
/// last tile of a window has sequence -1.
struct StepTokens {
  std::span<const int32_t> ids, positions, sequences;
  int64_t count() const { return static_cast<int64_t>(ids.size()); }
};

/// Runs the parts of a model on hidden states that the caller keeps: x is
/// the residual stream before a layer, `middle` the same behind its attention,
/// both tokens x d; gate, up and z are tokens x F; all f32, row after row.
/// Every failure is an Error.
class LayerRunner {
public:
  LayerRunner(const Checkpoint &checkpoint, const EngineOptions &options);
  ~LayerRunner();

  stem_context *context() const;
  /// Of the model's matrix products: STEM_F32 or STEM_BF16.
  stem_dtype productType() const;
  const EngineReport &report() const;
  /// The most tokens of a step, and the most windows in it.
  int64_t maxStepTokens() const;

  void embed(std::span<const int32_t> ids, float *x);
  void attention(uint64_t layer, const StepTokens &tokens, const float *x,
                 float *middle);
  /// The layer's FFN. `ids` are those of the tokens, which a STEM layer takes.
  void feedForward(uint64_t layer, const float *middle, int64_t count,
                   float *out, std::span<const int32_t> ids = {});
  /// Of a dense layer, as all down to `project`: what enters the FFN's matrices
  /// (tokens x d), SiLU(gate) and up.
  void taps(uint64_t layer, const float *middle, int64_t count, float *hidden,
            float *gate, float *up);
  /// W_down z.
  void product(uint64_t layer, const float *z, int64_t count, float *out);
  /// middle + W_down z + b.
  void project(uint64_t layer, const float *middle, const float *z,
               int64_t count, float *out);
  /// -log p(labels[t]), 0 where the label is -100.
  void score(const float *x, std::span<const int32_t> labels, float *nll);

  /// From now on the layer's W_down is this one (d x F).
  void replaceDown(uint64_t layer, std::span<const float> down);
  void restoreDown(uint64_t layer);

  /// Gives the memory of a layer's weights back; they are read again when
  /// next needed.
  void releaseLayer(uint64_t layer);
  /// Weights in memory when no two layers are held at once. All of them:
  /// report().plan.weights.
  int64_t oneLayerWeights() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_LAYERRUNNER_H
