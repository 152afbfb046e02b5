//===- Calibrator.h - Tables from forward passes --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CALIBRATOR_H
#define STEM_TOOLS_STEM_RUN_CALIBRATOR_H

#include "CalibrationText.h"
#include "LayerRunner.h"
#include "TableRows.h"

#include "stem/Calibration/LowRankTerm.h"
#include "stem/Calibration/RowFit.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace stem {

struct CalibrationOptions {
  std::vector<double> shrinkages = {1, 4, 16}; ///< k to choose from
  int64_t rank = 0; ///< of the low-rank term; 0: none
  std::vector<double> ridges = {1e-3, 1e-2, 1e-1}; ///< of W_down
};

/// What the conversion of one layer did, on the text that it chose with.
struct CalibratedLayer {
  uint64_t layer = 0;
  double shrinkage = 0; ///< k
  double ridge = 0;     ///< 0: every one made it worse, W_down stays
  /// Squared error of the FFN's output over that of the output itself, before
  /// and after W_down was fitted again.
  double errorBefore = 0, errorAfter = 0;
};

/// What a finished layer is written from; it holds while the callback runs.
struct ConvertedLayer {
  const CalibratedLayer &figures;
  TableRows &rows;             ///< of all ids
  std::span<const float> down; ///< the new W_down, d x F
  const LowRankTerm *lowRank;  ///< null: none
};

/// Bytes by purpose, known before they are allocated; the most that is held at
/// once.
struct CalibrationMemory {
  int64_t weights = 0;
  int64_t states = 0;     ///< hidden states of all parts
  int64_t statistics = 0; ///< of the layer in work, and the ids' embeddings
  int64_t refit = 0;      ///< of its W_down
  int64_t steps = 0;
  int64_t total() const; ///< INT64_MAX where the sum is beyond it
};

/// Converts layers of a dense model one after the other, each on the hidden
/// states that the converted ones below it give.
class Calibrator {
public:
  Calibrator(const Checkpoint &checkpoint, LayerRunner &runner,
             const CalibrationText &text, const CalibrationOptions &options);
  ~Calibrator();

  /// What a Calibrator will hold, the runner included.
  static CalibrationMemory plan(const ModelConfig &config,
                                const LayerRunner &runner,
                                const CalibrationText &text, int64_t rank);

  /// What each layer's conversion alone adds to the mean negative
  /// log-likelihood of `choose` (W_down as it is); dense in the end is `base`.
  struct Sensitivities {
    double base = 0;
    std::vector<double> layers;
  };
  Sensitivities measureSensitivities(const std::function<void(double)> &done);

  /// Converts `layers` (rising). Gives the mean negative log-likelihood of
  /// `check` afterwards.
  double convert(std::span<const uint64_t> layers,
                 const std::function<void(const ConvertedLayer &)> &onLayer,
                 const std::function<void(double)> &done);

  /// The same of the dense model.
  double denseLoss();

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATOR_H
