//===- TrainingPlan.h - Memory and FLOPs of a run, before it ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAININGPLAN_H
#define STEM_TOOLS_STEM_RUN_TRAININGPLAN_H

#include "EngineMemory.h"
#include "Json.h"
#include "Trainer.h"

#include <string>
#include <utility>
#include <vector>

namespace stem {

/// What one optimizer step is made of.
struct StepShape {
  int64_t rows = 0;       ///< sequences of a micro-batch
  int64_t length = 0;     ///< tokens of a sequence
  int64_t accumulate = 1; ///< micro-batches

  int64_t batchTokens() const { return rows * length; }
  int64_t tokens() const { return batchTokens() * accumulate; }
};

struct TrainingPlan {
  TrainingPlan(const Checkpoint &checkpoint, const TrainingStep &step,
               const TrainerOptions &options, const StepShape &shape,
               const BatchBound &bound, const Checkpoint *teacher = nullptr);

  int64_t total() const; ///< INT64_MAX where the sum is beyond it
  /// A line for each category, then the sum and the step.
  std::string text() const;
  Json json() const;
  /// Throws when it does not fit beside what the process holds, with the
  /// arithmetic and what would make it fit (`advice`).
  void requireMemory(const std::string &advice,
                     const MemoryBound &bound = MemoryBound(0)) const;
  bool fits(const MemoryBound &bound) const;
  /// Throws when what lies in files does not fit where they are made.
  void requireDisk(const std::filesystem::path &folder) const;

  /// Name, bytes, and what it depends on.
  struct Part {
    std::string name;
    int64_t bytes;
    std::string note;
  };
  std::vector<Part> parts;
  std::vector<Part> inFiles;
  StepShape shape;
  /// Of one optimizer step: linear layers forward, gradients of activations and
  /// of trained weights; attention; a teacher's forward. A multiplication and
  /// an addition are two.
  double linearFlops = 0;
  double attentionFlops = 0;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAININGPLAN_H
