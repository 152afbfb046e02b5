//===- CalibrationPlan.h - What a calibration will take -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CALIBRATIONPLAN_H
#define STEM_TOOLS_STEM_RUN_CALIBRATIONPLAN_H

#include "Json.h"

#include "stem/Model/ModelConfig.h"

#include <cstdint>
#include <string>

namespace stem {

struct CalibrationText;
class LayerRunner;

/// What a plan depends on beside the model's shapes.
struct CalibrationSizes {
  int64_t fit = 0, choose = 0, check = 0; ///< places of the texts
  int64_t ids = 0;                        ///< different ones in them
  int64_t rank = 0;                       ///< of the low-rank term
  bool isOneRow = false;                  ///< for all ids
  bool hasByteRows = false;               ///< `check` is run with them too
  /// Bytes of the compiled parts: weights of all layers, and of the largest
  /// one with what belongs to no layer; what a step takes, and its tokens.
  int64_t weights = 0, oneLayerWeights = 0, step = 0, stepTokens = 0;
  int64_t files = 0; ///< what is read and written at a time
  int threads = 1;
  stem_dtype productType = STEM_F32; ///< of the model's products
  /// What the process holds now, its code and the text among it, and what it
  /// held at most, while the model wrote text for example.
  int64_t program = 0, before = 0;
};

CalibrationSizes calibrationSizes(const ModelConfig &config,
                                  const CalibrationText &text,
                                  const LayerRunner &runner, int64_t rank);

/// Counts what tables of 8-bit rows take.
void addByteRows(const ModelConfig &config, uint64_t hotCount,
                 CalibrationSizes &sizes);

/// Bytes by purpose, known before they are allocated; the most that is held at
/// once.
struct CalibrationPlan {
  int64_t weights = 0;
  int64_t states = 0; ///< hidden states, of a file what a step maps of them
  int64_t rows = 0;   ///< sums of the layer in work, and the ids' embeddings
  int64_t rowColumns = 0; ///< of d_ff that are summed and fitted at a time
  int64_t rowParts = 1;   ///< so many times, a pass over the text each
  int64_t work = 0; ///< the largest of its fits: prior, low-rank term, W_down
  int64_t products = 0; ///< what enters a layer's W_down, where it is kept
  int64_t taps = 0;     ///< what its FFN multiplies, where that is kept
  int64_t steps = 0;
  int64_t files = 0;           ///< what is read and written at a time
  int64_t program = 0;         ///< and what else is held already
  int64_t before = 0;          ///< not in the sum: the most held until now
  int64_t spill = 0;           ///< hidden states in files
  int64_t rowSpill = 0;        ///< fitted rows of a layer in files
  bool isOneLayerHeld = false; ///< weights are read again in each pass

  int64_t total() const; ///< memory; INT64_MAX where the sum is beyond it
  std::string describe() const;
  Json json() const;
};

/// The plan that takes least from the disk within `bound` bytes, those held
/// already among them: the taps of a layer, then its products are computed
/// again when there is no room for them, hidden states go to a file only when
/// all does not fit, weights are read again only when that does not help
/// enough, then fitted rows go to a file, of the fewest parts that fit. What
/// does not fit either is left to the caller to refuse.
CalibrationPlan planCalibration(const ModelConfig &config,
                                const CalibrationSizes &sizes, int64_t bound);

/// Passes over the text to fit, by a layer that is converted.
int64_t fitPasses(int64_t rank, int64_t rowParts);

/// What will be done with the model's layers.
struct CalibrationWork {
  int64_t layers = 0, converted = 0;
  bool measuresLayers = false; ///< sensitivities
  int64_t sample = 0;          ///< places of the text that they are fitted on
};

/// Seconds, from those that a place takes in a dense layer. Within a factor of
/// two: fits have other bounds than layers.
double estimateSeconds(const CalibrationSizes &sizes,
                       const CalibrationPlan &plan, const CalibrationWork &work,
                       double secondsPerPlace);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATIONPLAN_H
