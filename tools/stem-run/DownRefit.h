//===- DownRefit.h - W_down, fitted again ---------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_DOWNREFIT_H
#define STEM_TOOLS_STEM_RUN_DOWNREFIT_H

#include "LayerRunner.h"

#include "stem/Calibration/NormalEquations.h"

#include <cstdint>
#include <span>
#include <vector>

namespace stem {

/// Square roots of the weights that positions have in the refit, by what is
/// asked of W_down there (rows of `lacks`): 0 for padding, 1 for most. A few
/// positions, mostly the first of a window, have outputs a thousand times as
/// large as all others, which the layers above need. Left out, they would come
/// out wrong; with the weight 1 they would be all that counts. So none counts
/// more than a hundred typical ones.
std::vector<float> refitWeights(std::span<const int32_t> sequences,
                                const float *lacks, int64_t width);

/// Multiplies row i of the matrix by factor i.
void scaleRows(std::span<const float> factors, float *matrix, int64_t width);

/// Ridge regression from z, what enters W_down, to what the layer's output
/// lacks. All matrices are places x F or places x d.
class DownRefit {
public:
  /// The runner outlives the object; nothing else replaces the layer's W_down
  /// meanwhile.
  DownRefit(LayerRunner &runner, const ModelConfig &config, uint64_t layer);

  /// Places to fit. Both matrices come back scaled by refitWeights.
  void addFit(std::span<const int32_t> sequences, float *z, float *lacks);

  /// Places to choose the ridge with, which are kept. `output` is what nothing
  /// would lack. All come back scaled.
  void addChoose(std::span<const int32_t> sequences, float *z, float *lacks,
                 float *output);

  struct Result {
    std::vector<float> update; ///< of W_down, d x F
    double ridge = 0;          ///< 0: every one made it worse; no update
    /// Squared error on the places to choose over the squared output.
    double errorBefore = 0, errorAfter = 0;
  };
  /// The ridge that leaves the least of what is lacking, of rising ones.
  Result solve(std::span<const double> ridges);

private:
  struct Step {
    int64_t count;
    std::vector<float> z, lacks;
  };

  LayerRunner &runner;
  uint64_t layer;
  int64_t d, f;
  NormalEquations equations;
  std::vector<Step> choose;
  double outputs = 0, before = 0;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_DOWNREFIT_H
