//===- RowStatistics.h - What the rows of a table are fitted to -*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_CALIBRATION_ROWSTATISTICS_H
#define STEM_CALIBRATION_ROWSTATISTICS_H

#include "stem-c/Runtime.h"
#include "stem/Runtime/Arena.h"

#include <span>
#include <string>
#include <vector>

namespace stem {

/// Of one layer, for each row t of a list of token ids and each dimension of
/// d_ff, over the positions that hold this id: n = Σ 1, G = Σ g², H = Σ g² u
/// and S = Σ u, where g is the gate (after SiLU) and u the up-projection.
///
/// Summed position by position in f32, so that the bits depend on neither the
/// pieces of the stream nor the threads.
class RowStatistics {
public:
  /// Sums for `rows` ids of `columns` dimensions. `name` stands in messages:
  /// "layer 3". The context outlives the object.
  RowStatistics(stem_context *context, int64_t rows, int64_t columns,
                std::string name);

  /// What an object holds.
  static int64_t bytes(int64_t rows, int64_t columns);

  /// index: the row of each position, -1 where it is left out; gate and up:
  /// index.size() x columns.
  void add(std::span<const int32_t> index, const float *gate, const float *up);

  int64_t rows() const { return int64_t(rowCounts.size()); }
  int64_t columns() const { return width; }
  int64_t positions() const;
  const std::string &name() const { return label; }

  /// n, and G, H, S as rows x columns.
  std::span<const int64_t> counts() const { return rowCounts; }
  const float *gateSquares() const { return matrix(gateSquareSums); }
  const float *gatedUps() const { return matrix(gatedUpSums); }
  const float *ups() const { return matrix(upSums); }

private:
  friend class RowFit;
  static float *matrix(const Arena &arena) {
    return static_cast<float *>(arena.data());
  }

  stem_context *context;
  int64_t width;
  std::string label;
  std::vector<int64_t> rowCounts;
  Arena gateSquareSums, gatedUpSums, upSums;
};

} // namespace stem

#endif // STEM_CALIBRATION_ROWSTATISTICS_H
