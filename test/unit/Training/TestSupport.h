//===- TestSupport.h - Shared by the training tests -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_TRAINING_TESTSUPPORT_H
#define STEM_TEST_UNIT_TRAINING_TESTSUPPORT_H

#include "../Support/TestErrors.h"
#include "stem/Runtime/Context.h"
#include "stem/Training/RowOptimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace stem::test {

using Doubles = std::vector<double>;

inline std::vector<float> randomFloats(int64_t count, unsigned seed,
                                       float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return normal(generator); });
  return values;
}

inline double largest(const Doubles &values) {
  double most = 0;
  for (double value : values)
    most = std::max(most, std::abs(value));
  return most;
}

template <typename T>
double largestDifference(const std::vector<T> &seen, const Doubles &wanted) {
  EXPECT_EQ(seen.size(), wanted.size());
  double most = 0;
  for (size_t i = 0; i < std::min(seen.size(), wanted.size()); ++i) {
    double difference = std::abs(double(seen[i]) - wanted[i]);
    // A NaN must not pass for the least.
    if (!(difference <= most))
      most = difference;
  }
  return most;
}

/// The formulas of AdamW.h and RowOptimizer.h on a whole table in f64, written
/// to be read: `exact` steps every row, with zeros where no gradient is.
struct PlainRows {
  PlainRows(RowMode mode, const AdamWOptions &options, Doubles weights,
            int64_t columns)
      : mode(mode), options(options), columns(columns), w(std::move(weights)),
        m(w.size()), v(w.size()), rowV(w.size() / columns) {}

  void update(const std::vector<int32_t> &ids,
              const std::vector<float> &gradients, double lr,
              double scale = 1) {
    ++step;
    Doubles dense(w.size());
    for (size_t i = 0; i < ids.size(); ++i)
      for (int64_t c = 0; c < columns; ++c)
        dense[ids[i] * columns + c] = gradients[i * columns + c] * scale;
    for (int64_t row = 0; row < int64_t(rowV.size()); ++row)
      if (mode == RowMode::Exact || std::ranges::count(ids, row))
        updateRow(row, dense, lr);
  }

  void updateRow(int64_t row, const Doubles &gradient, double lr) {
    double mean = 0;
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i)
      mean += gradient[i] * gradient[i] / double(columns);
    rowV[row] = options.beta2 * rowV[row] + (1 - options.beta2) * mean;
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      double g = gradient[i];
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
      double second = mode == RowMode::Rowwise ? rowV[row] : v[i];
      double mHat = m[i] / (1 - std::pow(options.beta1, step));
      double vHat = second / (1 - std::pow(options.beta2, step));
      w[i] -= lr * options.decay * w[i] +
              lr * mHat / (std::sqrt(vHat) + options.epsilon);
    }
  }

  RowMode mode;
  AdamWOptions options;
  int64_t columns;
  int64_t step = 0;
  Doubles w, m, v, rowV;
};

/// A table in memory; a BF16 one holds the upper halves of the values.
struct Rows {
  Rows(DType dtype, int64_t columns, const std::vector<float> &values)
      : dtype(dtype), columns(columns), bytes(values.size() * width()) {
    for (size_t i = 0; i < values.size(); ++i)
      std::memcpy(bytes.data() + i * width(),
                  reinterpret_cast<const char *>(&values[i]) + 4 - width(),
                  width());
  }

  size_t width() const { return dtype == DType::F32 ? 4 : 2; }
  int64_t count() const {
    return int64_t(bytes.size() / width()) / std::max<int64_t>(1, columns);
  }
  RowTable table() { return {bytes.data(), dtype, count(), columns}; }

  std::vector<float> values() const {
    std::vector<float> result(bytes.size() / width());
    decodeToF32(dtype, bytes.data(), result.size(), result.data());
    return result;
  }
  Doubles doubles() const {
    std::vector<float> floats = values();
    return {floats.begin(), floats.end()};
  }

  DType dtype;
  int64_t columns;
  std::vector<std::byte> bytes;
};

/// A step's rows and their gradients.
struct Batch {
  std::vector<int32_t> ids;
  std::vector<float> gradients;
};

/// `steps` batches of `draws` ids by Zipf's law: id i in proportion to
/// 1 / (i + 1). Columns have scales of their own, over five decades.
inline std::vector<Batch> zipfBatches(int steps, int draws, int64_t rows,
                                      int64_t columns, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<double> weights(rows);
  for (int64_t i = 0; i < rows; ++i)
    weights[i] = 1 / double(i + 1);
  std::discrete_distribution<int32_t> law(weights.begin(), weights.end());
  std::normal_distribution<float> normal;
  std::vector<Batch> batches(steps);
  for (Batch &batch : batches) {
    std::set<int32_t> ids;
    for (int draw = 0; draw < draws; ++draw)
      ids.insert(law(generator));
    batch.ids.assign(ids.begin(), ids.end());
    for (size_t i = 0; i < batch.ids.size(); ++i)
      for (int64_t c = 0; c < columns; ++c)
        batch.gradients.push_back(normal(generator) *
                                  std::pow(10.f, -float(c % 6)));
  }
  return batches;
}

/// As a training loop does.
inline void takeStep(RowOptimizer &optimizer, const Batch &batch, double lr,
                     double scale = 1) {
  optimizer.catchUp(batch.ids);
  optimizer.update(batch.ids, batch.gradients.data(), lr, scale);
}

/// All rows, caught up.
inline std::vector<float> exported(const RowOptimizer &optimizer,
                                   const Rows &rows) {
  Rows result = rows;
  optimizer.exportRows(0, rows.count(), result.bytes.data());
  return result.values();
}

/// A copy of what a checkpoint would hold.
struct SavedState {
  explicit SavedState(std::vector<TensorView> views) : tensors(views) {
    for (TensorView &tensor : tensors) {
      storage.emplace_back(tensor.data.begin(), tensor.data.end());
      tensor.data = storage.back();
    }
  }

  TensorView &get(const std::string &name) {
    return *std::ranges::find(tensors, name, &TensorView::name);
  }
  bool has(const std::string &name) const {
    return std::ranges::count(tensors, name, &TensorView::name) > 0;
  }
  bool operator==(const SavedState &other) const {
    return storage == other.storage;
  }

  std::vector<TensorView> tensors;
  std::vector<std::vector<std::byte>> storage;
};

} // namespace stem::test

#endif // STEM_TEST_UNIT_TRAINING_TESTSUPPORT_H
