//===- RowErrors.cpp - The error of rows for several k --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Threads.h"
#include "stem/Calibration/RowFit.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace stem;

RowErrors::RowErrors(const RowFit &fit, std::span<const double> shrinkages)
    : fit(fit), shrinkages(shrinkages.begin(), shrinkages.end()),
      sums(shrinkages.size() * size_t(fit.columns())),
      gateSquares(size_t(fit.columns())) {
  for (double k : shrinkages)
    if (!(k >= 0) || std::isinf(k))
      fail("{}: k is {}: wanted 0 or more", fit.sums.name(), k);
}

void RowErrors::add(const RowPositions &positions) {
  fit.checkPositions(positions);
  fit.checkIndex(positions.index, /*least=*/-1);
  if (!positions.index.empty() && (!positions.gate || !positions.up))
    fail("{}: the error of {} rows needs the gate and the up-projection",
         fit.sums.name(), positions.index.size());
  constexpr int64_t piece = 64;
  int64_t width = fit.columns(), count = int64_t(positions.index.size());
  const ColumnRange &range = fit.range();
  parallelFor(
      threadsFor(fit.context(), count * width), (width - 1) / piece + 1,
      [&](int64_t task) {
        int64_t first = task * piece;
        int64_t taken = std::min(piece, width - first);
        float row[piece];
        for (int64_t i = 0; i < count; ++i)
          for (int64_t c = 0; positions.index[i] != -1 && c < taken; ++c) {
            float gate =
                positions.gate[i * range.width + range.first + first + c];
            gateSquares[first + c] += double(gate) * gate;
          }
        for (size_t candidate = 0; candidate < shrinkages.size(); ++candidate) {
          double *sum = sums.data() + int64_t(candidate) * width + first;
          for (int64_t i = 0; i < count; ++i) {
            if (positions.index[i] == -1)
              continue;
            fit.row(positions, i, first, taken, shrinkages[candidate], row);
            int64_t at = i * range.width + range.first + first;
            const float *gate = positions.gate + at, *up = positions.up + at;
            for (int64_t c = 0; c < taken; ++c) {
              float error = gate[c] * (up[c] - row[c]);
              sum[c] += double(error) * error;
            }
          }
        }
      });
}

std::vector<double> RowErrors::totals(const std::vector<double> &before) const {
  std::vector<double> totals;
  for (size_t i = 0; i < shrinkages.size(); ++i) {
    auto first = sums.begin() + int64_t(i) * fit.columns();
    totals.push_back(std::accumulate(first, first + fit.columns(),
                                     before.empty() ? 0.0 : before.at(i)));
  }
  return totals;
}

std::vector<double> RowErrors::meanErrors(size_t shrinkage) const {
  std::vector<double> errors(gateSquares.size());
  for (size_t c = 0; c < errors.size(); ++c)
    if (gateSquares[c] > 0)
      errors[c] = sums[shrinkage * errors.size() + c] / gateSquares[c];
  return errors;
}
