//===- RowStatistics.cpp - What the rows of a table are fitted to ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/RowStatistics.h"
#include "Sizes.h"
#include "Threads.h"
#include "stem/Runtime/Parallel.h"

#include <algorithm>
#include <numeric>
#include <utility>

using namespace stem;

namespace {

int64_t sumsBytes(int64_t rows, int64_t columns) {
  return checkedSize("row statistics",
                     {rows, columns, 3, int64_t(sizeof(float))});
}

ColumnRange checkedRange(ColumnRange range) {
  if (range.first < 0 || range.first > range.width ||
      range.count > range.width - range.first)
    fail("row statistics of the columns [{}, {} + {}) of {}", range.first,
         range.first, range.count, range.width);
  return range;
}

/// Rows are numbered in i32.
size_t checkedRows(int64_t rows) {
  if (rows < 1 || rows > INT32_MAX)
    fail("row statistics of {} ids: wanted 1 to {}", rows, INT32_MAX);
  return static_cast<size_t>(rows);
}

Arena zeros(stem_context *context, int64_t bytes, Arena spent) {
  if (spent.size() != bytes)
    return Arena(bytes, "the sums of a layer's rows");
  constexpr int64_t piece = 1 << 20;
  auto *start = static_cast<std::byte *>(spent.data());
  parallelFor(context, (bytes + piece - 1) / piece, [&](int64_t task) {
    std::fill_n(start + task * piece, std::min(piece, bytes - task * piece),
                std::byte());
  });
  return spent;
}

} // namespace

RowStatistics::RowStatistics(stem_context *context, int64_t rows,
                             ColumnRange range, std::string name, Arena spent)
    : context(context), dimensions(checkedRange(range)), label(std::move(name)),
      rowCounts(checkedRows(rows)),
      memory(zeros(context, sumsBytes(rows, range.count), std::move(spent))),
      sums(static_cast<float *>(memory.data())) {}

int64_t RowStatistics::bytes(int64_t rows, int64_t columns) {
  return sumsBytes(rows, columns) + rows * int64_t(sizeof(int64_t));
}

std::string RowStatistics::rowName(int64_t row) const {
  return rowIds.empty() ? fmt::format("row {}", row)
                        : fmt::format("token id {}", rowIds[size_t(row)]);
}

int64_t RowStatistics::positions() const {
  return std::accumulate(rowCounts.begin(), rowCounts.end(), int64_t(0));
}

void RowStatistics::add(std::span<const int32_t> index, const float *gate,
                        const float *up) {
  if (!index.empty() && (!gate || !up))
    fail("{}: {} positions without a gate or an up-projection", label,
         index.size());
  for (size_t i = 0; i < index.size(); ++i)
    if (index[i] < -1 || index[i] >= rows())
      fail("{}: position {} has row {}: wanted -1 (left out) to {}", label, i,
           index[i], rows() - 1);
  for (int32_t row : index)
    if (row >= 0)
      ++rowCounts[row];

  // Ranges of columns, two a thread: what a thread adds to stays its own.
  int64_t width = columns(), stride = dimensions.width;
  int64_t ranges = 2 * int64_t(stem_context_threads(context));
  int64_t range = std::max<int64_t>(64, ((width - 1) / ranges / 16 + 1) * 16);
  parallelFor(threadsFor(context, int64_t(index.size()) * width),
              (width - 1) / range + 1, [&](int64_t task) {
                int64_t first = task * range;
                int64_t count = std::min(range, width - first);
                for (size_t i = 0; i < index.size(); ++i) {
                  if (index[i] < 0)
                    continue;
                  int64_t to = index[i] * width + first;
                  int64_t from = int64_t(i) * stride + dimensions.first + first;
                  const float *g = gate + from, *u = up + from;
                  float *__restrict squares = matrix(0) + to;
                  float *__restrict gatedUps = matrix(1) + to;
                  float *__restrict ups = matrix(2) + to;
                  for (int64_t c = 0; c < count; ++c) {
                    float square = g[c] * g[c];
                    squares[c] += square;
                    gatedUps[c] += square * u[c];
                    ups[c] += u[c];
                  }
                }
              });
}
