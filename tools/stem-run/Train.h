//===- Train.h - The parts of stem-run train --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAIN_H
#define STEM_TOOLS_STEM_RUN_TRAIN_H

#include "CommandLine.h"
#include "Trainer.h"
#include "TrainingData.h"
#include "stem/Training/Schedule.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace stem {

struct TrainArguments {
  std::filesystem::path model;
  std::vector<std::filesystem::path> rows; ///< overlays to start from
  std::filesystem::path config; ///< --from-config, in place of a model
  std::filesystem::path out;

  TrainingDataOptions data; ///< rows and length are --batch and --ctx
  int64_t steps = -1;       ///< -1: once over the data

  double learningRate = 3e-4;
  ScheduleOptions schedule; ///< peak and steps are set from the others
  TrainerOptions trainer;
  /// A factor of the learning rate, or one of its own.
  double tableRateFactor = 1;
  std::optional<double> tableRate;
  TrainedPart part = TrainedPart::All;
  /// TrainedPart::Rows: names of tokens; empty: those in the data.
  std::filesystem::path rowList;
  std::optional<DType> rowType;
  bool tablesInFile = false; ///< and moments of rows, while they are trained
  bool tablesMayGoToFile = false; ///< where they do not fit into memory
  std::filesystem::path teacher;  ///< empty: labels alone
  double teacherWeight = 1; ///< of its divergence; the rest is the labels'
  int64_t memory = 0; ///< that the process keeps within; 0: what is available
  int64_t residualBudget = 0; ///< bytes kept for the backward pass; 0: any

  int64_t evalEvery = 0; ///< 0: never
  int64_t evalBatches = 16;
  int64_t saveEvery = 100; ///< 0: at the end alone
  int64_t keep = 1;
  bool resume = false;
  bool json = false;
  CompileArguments compile;

  bool isRandom() const { return !config.empty(); }
  const std::filesystem::path &source() const {
    return isRandom() ? config : model;
  }

  double tableLearningRate() const {
    return tableRate ? *tableRate : tableRateFactor * learningRate;
  }
};

/// Trains, and writes the model or the rows. Throws Interrupted when a signal
/// ended the run early, after a checkpoint.
void trainModel(TrainArguments arguments);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAIN_H
