//===- RowGradients.h - The gradient of a table over a step -----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRAINING_ROWGRADIENTS_H
#define STEM_TRAINING_ROWGRADIENTS_H

#include "stem-c/Runtime.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// The ids of a step, each once and rising, with the sums of their gradients
/// over micro-batches. Token ids are known before the step starts, so its rows
/// get their places at once and nothing moves later.
class RowGradients {
public:
  /// `name` stands in messages; the context outlives the object.
  RowGradients(stem_context *context, std::string name, int64_t columns);

  /// Starts a step whose token ids these are: in any order, any number of
  /// times. All rows are zeros; memory of the step before is used again.
  void begin(std::span<const int32_t> tokenIds);

  /// Adds a row for each of `ids`: ids of the step, in any order, any number of
  /// times. Rows of one id are added in f32, in the order of calls and within a
  /// call of places, for any number of threads.
  void add(std::span<const int32_t> ids, const float *rows);

  std::span<const int32_t> ids() const { return uniqueIds; }
  /// ids().size() x columns.
  std::span<const float> rows() const { return sums; }

private:
  stem_context *context;
  std::string name;
  int64_t columns;
  std::vector<int32_t> uniqueIds;
  std::vector<float> sums;
  std::vector<int64_t> places; ///< of the ids of a call
};

} // namespace stem

#endif // STEM_TRAINING_ROWGRADIENTS_H
