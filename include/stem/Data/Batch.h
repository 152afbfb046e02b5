//===- Batch.h - Tokens of one training step --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_BATCH_H
#define STEM_DATA_BATCH_H

#include "stem/Model/Safetensors.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace stem {

/// The label of a place that has none.
inline constexpr int32_t kNoLabel = -100;
/// The sequence of a place that is padding.
inline constexpr int32_t kPadding = -1;

/// Rows of tokens one after the other, as the entry `loss` takes them.
struct Batch {
  int64_t rows = 0, length = 0;
  /// One entry a place, rows × length. A token sees the tokens of its sequence
  /// at its position and before; a label is the id to predict. Padding has
  /// position 0 and repeats the id before it, so that it touches no other row
  /// of a table.
  std::vector<int32_t> ids, positions, sequences, labels;
  int64_t labelCount = 0; ///< of places that have a label

  int64_t places() const { return rows * length; }
  /// There is nothing to learn from: the loss is a mean over no label.
  bool ignoresAll() const { return labelCount == 0; }
};

/// What a batch has to fit into.
struct BatchLimits {
  uint64_t vocabulary;
  uint64_t maxPositions = 0; ///< 0: not known
};

/// Throws for a sequence that is longer than the model's positions, or empty.
void checkSequenceLength(uint64_t length, uint64_t maxPositions);

/// The batch in `input_ids` and `labels` of a file, both [rows, length] of I32
/// or I64; labels are shifted already (label t is what place t predicts), and
/// -100 is none. Each row is one sequence. Other tensors are passed over.
/// Throws for another type or shape, and for an id or label outside the
/// vocabulary, with its row, column and value.
Batch batchFromTensors(const SafetensorsFile &file, const BatchLimits &limits);

/// The same of a file that is opened for it.
Batch readBatchIds(const std::filesystem::path &path,
                   const BatchLimits &limits);

} // namespace stem

#endif // STEM_DATA_BATCH_H
