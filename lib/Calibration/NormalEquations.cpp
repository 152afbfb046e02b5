//===- NormalEquations.cpp - The refit of W_down --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/NormalEquations.h"
#include "Sizes.h"
#include "SpdFactor.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

using namespace stem;

NormalEquations::NormalEquations(stem_context *context, int64_t ffn,
                                 int64_t hidden, std::string name,
                                 stem_dtype products)
    : context(context), ffn(ffn), hidden(hidden), name(std::move(name)),
      sums(context, ffn, hidden, products) {}

int64_t NormalEquations::solveBytes(int64_t ffn, int threads) {
  // Right-hand sides on each thread, and a block of the factorisation.
  return checkedSize("the refit of W_down",
                     {ffn, int64_t(sizeof(double)), threads + 2, solveColumns});
}

void NormalEquations::finish() {
  sums.finish();
  checkFinite(name, "z zᵀ and z targetᵀ", sums.gram(), sums.cross(), ffn,
              hidden);
}

void NormalEquations::solve(double ridge, float *update) {
  if (!(ridge >= 0) || std::isinf(ridge))
    fail("{}: the ridge of W_down's refit is {}: wanted 0 or more", name,
         ridge);
  finish();
  SpdFactor factor(sums.gram(), ffn);
  // Where nothing enters W_down, no W_down is better than another.
  if (positions() > 0 && factor.meanDiagonal() == 0) {
    std::fill_n(update, hidden * ffn, 0.0f);
    return;
  }
  if (!factor.factor(context, ridge))
    fail("{}: the sum of z zᵀ over {} positions ({} dimensions, mean of the "
         "diagonal {:g}) with a ridge of {:g} is not positive definite: "
         "calibrate on more text",
         name, positions(), ffn, factor.meanDiagonal(), ridge);
  factor.solveTransposed(context, sums.cross(), hidden, update);
}

/// With D the update, Σ over its rows d of d A dᵀ − 2 d b.
double NormalEquations::errorChange(const float *update) {
  finish();
  using RowMajorMatrix =
      Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using RowMajorFloats =
      Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<const RowMajorMatrix> a(sums.gram(), ffn, ffn);
  Eigen::Map<const RowMajorMatrix> b(sums.cross(), ffn, hidden);
  Eigen::Map<const RowMajorFloats> rows(update, hidden, ffn);
  std::vector<double> changes((hidden - 1) / solveColumns + 1);
  parallelFor(context, int64_t(changes.size()), [&](int64_t task) {
    int64_t first = task * solveColumns;
    int64_t count = std::min(solveColumns, hidden - first);
    Eigen::MatrixXd d =
        rows.middleRows(first, count).transpose().cast<double>();
    Eigen::MatrixXd product = a.selfadjointView<Eigen::Upper>() * d;
    product -= 2 * b.middleCols(first, count);
    changes[task] = product.cwiseProduct(d).sum();
  });
  return std::accumulate(changes.begin(), changes.end(), 0.0);
}
