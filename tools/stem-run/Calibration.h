//===- Calibration.h - convert --init=calibrated --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CALIBRATION_H
#define STEM_TOOLS_STEM_RUN_CALIBRATION_H

#include "CalibrationPlan.h"
#include "Calibrator.h"
#include "HotIds.h"
#include "Json.h"
#include "SelectedIds.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stem {

struct CalibrationArguments {
  CalibrationTextOptions text;
  /// Of the low-rank term, a conversion each; 0: none.
  std::vector<int64_t> ranks = {0};
  /// Share of the replaced multiply-adds that low-rank terms may take, ranks
  /// chosen layer by layer; 0: one rank everywhere.
  double flops = 0;
  bool isOneRow = false;      ///< one row for all ids
  SelectionOptions selection; ///< which ids keep the up-projection
  ColdRowOptions coldRows;
  int64_t memory = 0; ///< bytes to keep within; 0: what is available
  std::filesystem::path spillFolder; ///< for what is beyond them
  EngineOptions engine;
};

/// What one conversion came to, on the calibration's text.
struct CalibrationOutcome {
  int64_t rank = 0;                ///< asked for all layers
  std::vector<LayerChoice> layers; ///< with their own
  std::vector<CalibratedLayer> figures;
  std::vector<float> losses; ///< on `check`
  double loss = 0;           ///< their mean
  double storedLoss = 0;     ///< the same with 8-bit rows, where there are any
  double seconds = 0;
};

/// The calibration of conversions that have all but the rank in common: reads
/// the texts, compiles, chooses the layers, converts them, and says what it
/// cost. Progress and the plan go to standard error.
class Calibration {
public:
  Calibration(const Checkpoint &checkpoint,
              const CalibrationArguments &arguments);

  /// Says how long it will take to convert so many layers with each rank, and
  /// to measure which.
  void printEstimate(uint64_t converted, bool measuresLayers) const;

  /// Ids that keep the up-projection, rising.
  std::span<const int32_t> selectedIds() const { return selected.ids; }

  /// Ids whose rows are not of 8 bits.
  const HotIds &hotIds() const { return hot; }

  /// The layers of "auto:N": the N dense ones whose conversion alone costs
  /// least.
  std::vector<uint64_t> cheapestLayers(uint64_t count);

  /// The low-rank terms of `layers`: of `rank`, or those within the budget.
  std::vector<LayerChoice> chooseRanks(const std::vector<uint64_t> &layers,
                                       int64_t rank);

  /// Converts; `onLayer` writes a layer when it is finished. `outcome` has the
  /// choice of layers.
  void convert(CalibrationOutcome &outcome,
               const std::function<void(const ConvertedLayer &)> &onLayer);

  /// What the folder and --json say of it; the same in every run.
  Json summary(const CalibrationOutcome &outcome) const;
  /// What --json says beside it.
  Json ofThisRun(const CalibrationOutcome &outcome) const;
  void printSensitivities() const;
  void print(const CalibrationOutcome &outcome) const;

private:
  void measureSensitivities();
  void measureDense();
  HotIds makeHotIds() const;
  int64_t mostRank() const;
  CalibrationPlan makePlan();
  void printPlan(const CalibrationPlan &result, bool fits) const;
  CalibrationOptions options() const;
  Json perplexityByText(const CalibrationOutcome &outcome) const;
  Json coverageByCount(const CalibrationOutcome &outcome) const;

  const Checkpoint &checkpoint;
  const CalibrationArguments arguments;
  std::vector<int32_t> listedHot; ///< before the texts, which take minutes
  CalibrationText text;
  SelectedIds selected;
  HotIds hot;
  LayerRunner runner;
  CalibrationSizes sizes;
  CalibrationPlan plan;
  std::unique_ptr<Calibrator> calibrator;
  std::optional<Calibrator::Sensitivities> sensitivities;
  std::vector<float> denseLosses; ///< on `check`
  double denseLoss = 0;           ///< their mean
  double sensitivitySeconds = 0, rankSeconds = 0;
};

uint64_t denseLayerCount(const ModelConfig &config);

/// N of "auto:N"; nothing for another choice of layers. Throws a UsageError for
/// a wrong one.
std::optional<uint64_t> parseAutoLayers(const std::string &choice,
                                        const ModelConfig &config);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATION_H
