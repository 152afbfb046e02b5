//===- BenchTraining.h - stem-run bench --train -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_BENCHTRAINING_H
#define STEM_TOOLS_STEM_RUN_BENCHTRAINING_H

#include "CommandLine.h"
#include "Trainer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace stem {

struct TrainingBenchArguments {
  std::filesystem::path model;
  std::filesystem::path config; ///< random weights, in place of a model
  std::string part;             ///< empty: not asked for
  std::filesystem::path batchIds;
  int64_t rows = 4, length = 512;
  uint64_t seed = 0;
  TrainerOptions trainer;
  std::optional<DType> rowType;

  int64_t repeat = 5;
  bool paced = false;
  bool json = false;
  CompileArguments compile;

  bool isWanted() const { return !part.empty(); }
};

/// --train and what goes with it.
void addTrainingBenchOptions(CLI::App &command,
                             TrainingBenchArguments &arguments);

/// Training steps of one model: those of stem-run train, timed.
void benchTraining(const TrainingBenchArguments &arguments);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_BENCHTRAINING_H
