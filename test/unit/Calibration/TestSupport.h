//===- TestSupport.h - Shared by the calibration tests ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_CALIBRATION_TESTSUPPORT_H
#define STEM_TEST_UNIT_CALIBRATION_TESTSUPPORT_H

#include "../Support/TestErrors.h"
#include "stem/Runtime/Context.h"

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stem::test {

constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();

/// Pieces that a stream is cut into, and threads, that must give one result.
constexpr int64_t pieceSizes[] = {1, 64, 511, 512, 2000};
constexpr int threadCounts[] = {1, 2, 3};

using FloatMatrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Row-major f32 as an f64 matrix.
inline Eigen::MatrixXd matrixOf(const float *data, int64_t rows,
                                int64_t columns) {
  return Eigen::Map<const FloatMatrix>(data, rows, columns).cast<double>();
}

inline Eigen::MatrixXd matrixOf(const std::vector<float> &data,
                                int64_t columns) {
  return matrixOf(data.data(), int64_t(data.size()) / columns, columns);
}

inline std::vector<float> randomFloats(int64_t count, unsigned seed,
                                       float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(),
                [&] { return normal(generator); });
  return values;
}

/// Runs body(first, count) over the pieces of a stream.
template <typename Body>
void inPieces(int64_t positions, int64_t piece, const Body &body) {
  for (int64_t first = 0; first < positions; first += piece)
    body(first, std::min(piece, positions - first));
}

/// |seen - wanted| relative to the largest wanted element.
inline double relativeError(const Eigen::MatrixXd &seen,
                            const Eigen::MatrixXd &wanted) {
  return (seen - wanted).cwiseAbs().maxCoeff() / wanted.cwiseAbs().maxCoeff();
}

/// A layer's activations: u is a linear map of the hidden state with a part
/// that the id gives, as in a model.
struct Layer {
  static constexpr int64_t ids = 40, positions = 2000;
  /// Never seen; seen once, at position `oncePosition`.
  static constexpr int32_t unseen = 7, once = 11;
  static constexpr int64_t oncePosition = 1234;

  int64_t ffn, hidden;
  std::vector<int32_t> index;
  std::vector<float> features, h, gate, up;

  Layer(int64_t ffn, int64_t hidden) : ffn(ffn), hidden(hidden) {
    features = randomFloats(ids * hidden, 1);
    h = randomFloats(positions * hidden, 2);
    gate = randomFloats(positions * ffn, 3);
    // Nothing opens dimension 5.
    for (int64_t i = 0; i < positions; ++i)
      gate[i * ffn + 5] = 0;
    std::vector<float> map =
        randomFloats(hidden * ffn, 4, 1 / std::sqrt(float(hidden)));
    up = randomFloats(positions * ffn, 5, 0.3f);
    std::mt19937 generator(6);
    for (int64_t i = 0; i < positions; ++i) {
      int32_t id;
      do
        id = int32_t(generator() % ids * (generator() % ids) / ids);
      while (id == unseen || id == once);
      if (i == oncePosition)
        id = once;
      index.push_back(id);
      for (int64_t j = 0; j < hidden; ++j) {
        float value = h[i * hidden + j] * 0.5f + features[id * hidden + j];
        for (int64_t c = 0; c < ffn; ++c)
          up[i * ffn + c] += value * map[j * ffn + c];
      }
    }
  }

  std::span<const int32_t> indexOf(int64_t first, int64_t count) const {
    return std::span(index).subspan(first, count);
  }
};

} // namespace stem::test

#endif // STEM_TEST_UNIT_CALIBRATION_TESTSUPPORT_H
