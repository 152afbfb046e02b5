//===- Calibration.h - convert --init=calibrated --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CALIBRATION_H
#define STEM_TOOLS_STEM_RUN_CALIBRATION_H

#include "Calibrator.h"
#include "Json.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stem {

struct CalibrationArguments {
  CalibrationTextOptions text;
  int64_t rank = 0; ///< of the low-rank term; 0: none
  EngineOptions engine;
};

/// The calibration of one conversion: reads the texts, compiles, chooses the
/// layers, converts them, and says what it cost. Progress and the plan go to
/// standard error.
class Calibration {
public:
  Calibration(const Checkpoint &checkpoint,
              const CalibrationArguments &arguments);

  /// The layers of "auto:N": the N whose conversion alone costs least.
  std::vector<uint64_t> cheapestLayers(uint64_t count);

  /// Converts; `onLayer` writes a layer when it is finished.
  void convert(const std::vector<uint64_t> &layers,
               const std::function<void(const ConvertedLayer &)> &onLayer);

  /// What the folder and --json say of it; the same in every run.
  Json summary() const;
  Json seconds() const;
  void print() const;

private:
  void checkPlan(const CalibrationMemory &memory) const;

  const Checkpoint &checkpoint;
  const CalibrationArguments arguments;
  CalibrationText text;
  LayerRunner runner;
  std::unique_ptr<Calibrator> calibrator;
  std::optional<Calibrator::Sensitivities> sensitivities;
  std::vector<CalibratedLayer> figures;
  double denseLoss = 0, convertedLoss = 0;
  double sensitivitySeconds = 0, convertSeconds = 0;
};

/// N of "auto:N"; nothing for another choice of layers. Throws a UsageError for
/// a wrong one.
std::optional<uint64_t> parseAutoLayers(const std::string &choice,
                                        const ModelConfig &config);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATION_H
