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

/// Some of the columns of matrices that are `width` wide.
struct ColumnRange {
  int64_t first, count, width;
};

/// Of one layer, for each row t of a list of token ids and each dimension of
/// d_ff, over the positions that hold this id: n = Σ 1, G = Σ g², H = Σ g² u
/// and S = Σ u, where g is the gate (after SiLU) and u the up-projection.
///
/// Summed position by position in f32, so that the bits depend on neither the
/// pieces of the stream nor the threads. The dimensions are independent: sums
/// of some of them have the bits that they have among all.
class RowStatistics {
public:
  /// Sums for `rows` ids of these dimensions. `name` stands in messages:
  /// "layer 3". The context outlives the object. `spent` is memory of a fit
  /// before, which is used again where it has the size: new pages take longer
  /// than what is written to them.
  RowStatistics(stem_context *context, int64_t rows, ColumnRange range,
                std::string name, Arena spent = {});
  /// Of all dimensions.
  RowStatistics(stem_context *context, int64_t rows, int64_t columns,
                std::string name)
      : RowStatistics(context, rows, ColumnRange{0, columns, columns},
                      std::move(name)) {}

  /// For messages: the token id of each row. Outlives the object.
  void nameRows(std::span<const int32_t> ids) { rowIds = ids; }

  /// What an object holds.
  static int64_t bytes(int64_t rows, int64_t columns);

  /// index: the row of each position, -1 where it is left out; gate and up:
  /// index.size() x range().width.
  void add(std::span<const int32_t> index, const float *gate, const float *up);

  int64_t rows() const { return int64_t(rowCounts.size()); }
  int64_t columns() const { return dimensions.count; }
  const ColumnRange &range() const { return dimensions; }
  int64_t positions() const;
  const std::string &name() const { return label; }

  /// n, and G, H, S as rows x columns.
  std::span<const int64_t> counts() const { return rowCounts; }
  const float *gateSquares() const { return matrix(0); }
  const float *gatedUps() const { return matrix(1); }
  const float *ups() const { return matrix(2); }

private:
  friend class RowFit;
  /// "token id 7".
  std::string rowName(int64_t row) const;
  float *matrix(int64_t number) const {
    return sums + number * rows() * columns();
  }

  stem_context *context;
  ColumnRange dimensions;
  std::string label;
  std::span<const int32_t> rowIds; ///< empty: not known
  std::vector<int64_t> rowCounts;
  Arena memory;
  float *sums; ///< G, H and S: `memory`, or the place that a fit moved them to
};

} // namespace stem

#endif // STEM_CALIBRATION_ROWSTATISTICS_H
