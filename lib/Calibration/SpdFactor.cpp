//===- SpdFactor.cpp - Symmetric positive definite systems ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SpdFactor.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

using namespace stem;

namespace {

/// Columns that are factored before the rest takes their part, and rows of a
/// task. Part of the result's meaning.
constexpr int64_t factorBlock = 128, factorRows = 64;

using RowMajorMatrix =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

} // namespace

SpdFactor::SpdFactor(double *matrix, int64_t n)
    : matrix(matrix), n(n), diagonal(n) {
  for (int64_t i = 0; i < n; ++i)
    diagonal[i] = matrix[i * n + i];
  mean = std::accumulate(diagonal.begin(), diagonal.end(), 0.0) / double(n);
}

SpdFactor::~SpdFactor() {
  for (int64_t i = 0; i < n; ++i)
    matrix[i * n + i] = diagonal[i];
}

bool SpdFactor::factor(stem_context *context, double ridge) {
  Eigen::Map<RowMajorMatrix> map(matrix, n, n);
  parallelFor(context, (n - 1) / factorRows + 1, [&](int64_t task) {
    const int64_t row = task * factorRows, rows = std::min(factorRows, n - row);
    map.block(row, 0, rows, row) = map.block(0, row, row, rows).transpose();
    auto corner = map.block(row, row, rows, rows);
    corner.triangularView<Eigen::StrictlyLower>() = corner.transpose();
    for (int64_t i = row; i < row + rows; ++i)
      matrix[i * n + i] = diagonal[i] + ridge * mean;
  });
  for (int64_t first = 0; first < n; first += factorBlock)
    if (!factorColumns(context, first, std::min(factorBlock, n - first)))
      return false;
  return true;
}

/// L of these columns, where what lies left of them is subtracted already, and
/// their part of all that lies right of them.
bool SpdFactor::factorColumns(stem_context *context, int64_t first,
                              int64_t count) {
  Eigen::Map<RowMajorMatrix> map(matrix, n, n);
  Eigen::Ref<RowMajorMatrix> corner(map.block(first, first, count, count));
  if (Eigen::LLT<Eigen::Ref<RowMajorMatrix>>(corner).info() != Eigen::Success)
    return false;
  const int64_t below = first + count;
  const int64_t tasks = (n - below + factorRows - 1) / factorRows;
  auto rowsOf = [&](int64_t task) {
    const int64_t row = below + task * factorRows;
    return std::pair(row, std::min(factorRows, n - row));
  };
  parallelFor(context, tasks, [&](int64_t task) {
    auto [row, rows] = rowsOf(task);
    auto panel = map.block(row, first, rows, count);
    corner.triangularView<Eigen::Lower>()
        .transpose()
        .solveInPlace<Eigen::OnTheRight>(panel);
  });
  parallelFor(context, tasks, [&](int64_t task) {
    auto [row, rows] = rowsOf(task);
    auto panel = map.block(row, first, rows, count);
    map.block(row, below, rows, row - below).noalias() -=
        panel * map.block(below, first, row - below, count).transpose();
    map.block(row, row, rows, rows)
        .selfadjointView<Eigen::Lower>()
        .rankUpdate(panel, -1);
  });
  return true;
}

void SpdFactor::solveLower(double *block, int64_t count) const {
  const Eigen::Map<const RowMajorMatrix> map(matrix, n, n);
  Eigen::Map<Eigen::MatrixXd> columns(block, n, count);
  map.triangularView<Eigen::Lower>().solveInPlace(columns);
}

void SpdFactor::solveUpper(double *block, int64_t count) const {
  const Eigen::Map<const RowMajorMatrix> map(matrix, n, n);
  Eigen::Map<Eigen::MatrixXd> columns(block, n, count);
  map.triangularView<Eigen::Lower>().transpose().solveInPlace(columns);
}

void SpdFactor::solveTransposed(stem_context *context, const double *b,
                                int64_t m, float *out) const {
  int64_t tasks = (m + solveColumns - 1) / solveColumns;
  parallelFor(context, tasks, [&](int64_t task) {
    int64_t first = task * solveColumns;
    int64_t count = std::min(solveColumns, m - first);
    std::vector<double> block(n * count);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < count; ++j)
        block[j * n + i] = b[i * m + first + j];
    solveLower(block.data(), count);
    solveUpper(block.data(), count);
    std::transform(block.begin(), block.end(), out + first * n,
                   [](double value) { return static_cast<float>(value); });
  });
}

void stem::checkFinite(std::string_view name, std::string_view sums,
                       const double *gram, const double *cross, int64_t n,
                       int64_t m) {
  auto check = [&](const double *row, int64_t begin, int64_t end, int64_t i) {
    for (int64_t j = begin; j < end; ++j)
      if (!std::isfinite(row[j]))
        fail("{}: the sums of {} hold NaN or infinity (row {}, column {}): an "
             "activation is not finite or too large for f32. Evaluate the "
             "model on this text first, or leave this layer dense",
             name, sums, i, j);
  };
  for (int64_t i = 0; i < n; ++i) {
    check(gram + i * n, i, n, i);
    check(cross + i * m, 0, m, i);
  }
}
