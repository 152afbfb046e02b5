//===- TrainingData.h - Where the batches of a run come from ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAININGDATA_H
#define STEM_TOOLS_STEM_RUN_TRAININGDATA_H

#include "Json.h"
#include "TiledBatch.h"
#include "stem/Data/Batch.h"
#include "stem/Data/SequenceOrder.h"
#include "stem/Model/Checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace stem {

struct TrainingDataOptions {
  std::filesystem::path batchIds; ///< that batch at each step
  std::vector<std::filesystem::path> files;
  std::filesystem::path shard; ///< of the files; made where there is none
  bool respectDocuments = false;
  bool parsesSpecial = false;
  std::string separator = "\f";
  double validation = 0; ///< share of the documents
  uint64_t seed = 0;
  int64_t rows = 1;   ///< sequences of a batch
  int64_t length = 0; ///< of a sequence
};

/// Batches in the order of the run, and those to validate on.
class TrainingData {
public:
  virtual ~TrainingData() = default;

  /// The next micro-batch.
  virtual void next(Batch &batch) = 0;
  /// Where the next one comes from.
  virtual DataPosition position() const = 0;
  virtual void seek(const DataPosition &position) = 0;

  /// Micro-batches until each sequence was there once, at least 1.
  virtual int64_t batchesPerEpoch() const = 0;

  virtual int64_t validationBatches() const = 0;
  virtual void readValidation(int64_t index, Batch &batch) const = 0;

  /// The ids that are in what is trained on, rising.
  virtual std::vector<int32_t> presentIds() const = 0;

  /// The most that a batch has, its sequences in tiles of so many tokens.
  virtual BatchBound bound(int64_t tile) const = 0;

  /// What a run that is resumed must find unchanged.
  virtual Json identity() const = 0;
  /// One line.
  virtual std::string description() const = 0;
};

/// Tokenizes texts where need be; says so on standard error.
std::unique_ptr<TrainingData>
openTrainingData(const Checkpoint &checkpoint,
                 const TrainingDataOptions &options, stem_context *context);

/// The batch of --batch-ids, checked against the model.
Batch readGivenBatch(const Checkpoint &checkpoint,
                     const std::filesystem::path &path);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAININGDATA_H
