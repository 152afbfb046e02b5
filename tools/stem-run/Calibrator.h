//===- Calibrator.h - Tables from forward passes --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CALIBRATOR_H
#define STEM_TOOLS_STEM_RUN_CALIBRATOR_H

#include "CalibrationText.h"
#include "LayerFitter.h"
#include "LayerRunner.h"
#include "TableRows.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace stem {

struct CalibrationOptions {
  LayerFitOptions fit;
  /// Tokens of `fit` that sensitivities are measured with, at most.
  int64_t sensitivityTokens = 16384;
  /// Where hidden states are kept; empty: in memory.
  std::filesystem::path spillFolder;
  RowParts rows;
  /// Weights are read again in each pass, and one layer's are held.
  bool isOneLayerHeld = false;
  /// What becomes of rows that are written; empty: they stay what they are.
  StoredRow store;
};

/// Negative log-likelihoods of the places of `check`, 0 where none is
/// predicted.
struct CheckedLosses {
  std::vector<float> converted;
  std::vector<float>
      stored; ///< with CalibrationOptions::store, if there is one
};

/// A layer to convert.
struct LayerChoice {
  uint64_t layer = 0;
  int64_t rank = 0; ///< of its low-rank term; 0: none
};

/// What a finished layer is written from; it holds while the callback runs.
struct ConvertedLayer {
  const CalibratedLayer &figures;
  TableRows &rows;             ///< of all ids
  std::span<const float> down; ///< the new W_down, d x F
  const LowRankTerm *lowRank;  ///< null: none
};

/// Converts dense layers of a model one after the other, each on the hidden
/// states that the converted ones below it give. STEM layers run as they are.
class Calibrator {
public:
  Calibrator(const Checkpoint &checkpoint, LayerRunner &runner,
             const CalibrationText &text, const CalibrationOptions &options);
  ~Calibrator();

  /// What a place takes in a layer, measured on one step.
  double secondsPerPlace();

  /// What each layer's conversion alone adds to the mean negative
  /// log-likelihood of `choose`, which is `base` before it; of a STEM layer
  /// NaN. Rows are fitted to a sample of `fit`, with k = 4, W_down with the
  /// ridge 0.01, no low-rank term.
  struct Sensitivities {
    double base = 0;
    std::vector<double> layers;
    /// Of each layer, what its fit leaves of its output on `choose`.
    std::vector<double> errors;
  };
  Sensitivities measureSensitivities(const std::function<void(double)> &done);

  /// For each of `layers` (rising), LayerFitter::rankGains on a sample of `fit`
  /// in the model before.
  std::vector<std::vector<double>>
  measureRankGains(std::span<const uint64_t> layers,
                   const std::function<void(double)> &done);

  /// Converts `layers` (rising).
  CheckedLosses
  convert(std::span<const LayerChoice> layers,
          const std::function<void(const ConvertedLayer &)> &onLayer,
          const std::function<void(double)> &done);

  /// The same of the model before.
  std::vector<float> denseLosses();

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATOR_H
