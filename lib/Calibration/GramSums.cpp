//===- GramSums.cpp - Sums of outer products over a stream ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/GramSums.h"
#include "Sizes.h"
#include "Threads.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/BF16.h"

#include <algorithm>

using namespace stem;

namespace {

/// Positions whose products are summed in f32. Part of the result's meaning.
constexpr int64_t blockPositions = 512;
/// Blocks summed in one visit of the totals: fewer visits against more memory.
/// Moves no rounding.
constexpr int64_t heldBlocks = 2;
constexpr int64_t heldPositions = heldBlocks * blockPositions;
/// Row stride of a transposed block: rows a power of two apart would share a
/// few sets of the first-level cache.
constexpr int64_t transposedStride = blockPositions + 16;
/// Rows of a tile of the totals, which share a panel while it is in the cache:
/// whole panels, and a multiple of every kernel's rows.
constexpr int64_t tileRows = 6 * STEM_PANEL;

constexpr int64_t panelElements = blockPositions * STEM_PANEL;

int64_t panelsOf(int64_t columns) { return (columns - 1) / STEM_PANEL + 1; }

int64_t totalsBytes(int64_t n, int64_t m) {
  return checkedSize("the totals of a sum of products",
                     {n, m, int64_t(sizeof(double))});
}

int64_t elementBytes(stem_dtype products) {
  return products == STEM_BF16 ? sizeof(uint16_t) : sizeof(float);
}

int64_t transposedBytes(int64_t n, stem_dtype products) {
  return checkedSize("the blocks of a sum of products",
                     {heldBlocks, transposedStride, n, elementBytes(products)});
}

int64_t packedBlocksBytes(int64_t columns, stem_dtype products) {
  return checkedSize(
      "the blocks of a sum of products",
      {heldBlocks, panelsOf(columns), panelElements, elementBytes(products)});
}

/// Panel `panel` of the packed block `block` of a matrix of `columns` columns.
template <typename T>
T *panelOf(const Arena &packed, int64_t columns, int64_t block, int64_t panel) {
  return static_cast<T *>(packed.data()) +
         (block * panelsOf(columns) + panel) * panelElements;
}

template <typename T>
T *transposedOf(const Arena &transposed, int64_t n, int64_t block) {
  return static_cast<T *>(transposed.data()) + block * n * transposedStride;
}

void convert(const float *from, int64_t count, float *to) {
  std::copy_n(from, count, to);
}

void convert(const float *from, int64_t count, uint16_t *to) {
  std::transform(from, from + count, to, roundToBF16);
}

/// A row at an odd position of a panel of bf16: the second of a pair, the first
/// of which is there.
void packSecond(const uint16_t *row, int64_t columns, uint16_t *pair) {
  for (int64_t n = 0; n < columns; ++n)
    pair[2 * n + 1] = row[n];
}

/// Positions of some columns in the type of the products.
template <typename T> struct ConvertedRows {
  static constexpr int64_t most = 64;

  T values[most * STEM_PANEL];
  stem_dtype type;
  int64_t rows, columns;

  void take(const float *from, int64_t stride) {
    for (int64_t i = 0; i < rows; ++i)
      convert(from + i * stride, columns, values + i * STEM_PANEL);
  }
  /// From position `position` of the panel on.
  void pack(T *panel, int64_t position) const {
    int64_t first = 0;
    if constexpr (sizeof(T) == sizeof(uint16_t))
      if (position % 2) {
        packSecond(values, columns, panel + (position - 1) * STEM_PANEL);
        first = 1;
      }
    stem_pack_tokens(values + first * STEM_PANEL, STEM_PANEL, type,
                     rows - first, columns,
                     panel + (position + first) * STEM_PANEL);
  }
  void transpose(T *to) const {
    stem_transpose_tokens(values, STEM_PANEL, type, rows, columns, to,
                          transposedStride);
  }
};

} // namespace

GramSums::GramSums(stem_context *context, int64_t n, int64_t m,
                   stem_dtype products)
    : context(context), n(n), m(m), products(products),
      gramTotals(totalsBytes(n, n), "the sums of a normal matrix"),
      crossTotals(totalsBytes(n, m), "the sums of a right-hand side"),
      transposed(transposedBytes(n, products), "blocks of activations"),
      packedX(packedBlocksBytes(n, products), "blocks of activations"),
      packedY(packedBlocksBytes(m, products), "blocks of targets") {}

int64_t GramSums::bytes(int64_t n, int64_t m) {
  int64_t sum = 0;
  for (int64_t part :
       {totalsBytes(n, n), totalsBytes(n, m), transposedBytes(n, STEM_F32),
        packedBlocksBytes(n, STEM_F32), packedBlocksBytes(m, STEM_F32)})
    if (__builtin_add_overflow(sum, part, &sum))
      fail("the sums of {} x {} and {} x {} products have no size", n, n, n, m);
  return sum;
}

void GramSums::add(const float *x, const float *y, int64_t count) {
  if (finished)
    fail("positions added to sums of products that are finished: add all of "
         "them before the first solution");
  if (count < 0 || (count > 0 && (!x || !y)))
    fail("{} positions to sum, {}: wanted a count of at least 0 and both "
         "matrices",
         count, x && y ? "both matrices given" : "a matrix missing");
  while (count > 0) {
    int64_t taken = std::min(count, heldPositions - pending);
    if (products == STEM_BF16)
      store<uint16_t>(x, y, taken);
    else
      store<float>(x, y, taken);
    x += taken * n;
    y += taken * m;
    count -= taken;
    if (pending == heldPositions)
      sumBlocks();
  }
}

void GramSums::finish() {
  if (pending > 0)
    sumBlocks();
  finished = true;
}

/// Brings positions into the layouts of the products, a panel a task.
template <typename T>
void GramSums::store(const float *x, const float *y, int64_t count) {
  const int64_t panelsX = panelsOf(n);
  parallelFor(threadsFor(context, count * (n + m)), panelsX + panelsOf(m),
              [&](int64_t task) {
                if (task < panelsX)
                  storePanel<T>(x, count, /*isY=*/false, task);
                else
                  storePanel<T>(y, count, /*isY=*/true, task - panelsX);
              });
  pending += count;
  total += count;
}

template <typename T>
void GramSums::storePanel(const float *rows, int64_t count, bool isY,
                          int64_t panel) {
  const int64_t columns = isY ? m : n;
  const int64_t first = panel * STEM_PANEL;
  ConvertedRows<T> converted;
  converted.type = products;
  converted.columns = std::min<int64_t>(STEM_PANEL, columns - first);
  for (int64_t done = 0; done < count; done += converted.rows) {
    const int64_t block = (pending + done) / blockPositions;
    const int64_t position = (pending + done) % blockPositions;
    converted.rows =
        std::min({converted.most, count - done, blockPositions - position});
    converted.take(rows + done * columns + first, columns);
    converted.pack(panelOf<T>(isY ? packedY : packedX, columns, block, panel),
                   position);
    if (!isY)
      converted.transpose(transposedOf<T>(transposed, n, block) +
                          first * transposedStride + position);
  }
}

void GramSums::sumBlocks() {
  int64_t rowBlocks = (n - 1) / tileRows + 1;
  int64_t panels = panelsOf(n) + panelsOf(m);
  // Tiles of the same rows one after the other: they share the rows of x.
  parallelFor(context, rowBlocks * panels,
              [&](int64_t task) { sumTile(task / panels, task % panels); });
  pending = 0;
}

void GramSums::sumTile(int64_t rowBlock, int64_t panel) {
  bool isCross = panel >= panelsOf(n);
  if (isCross)
    panel -= panelsOf(n);
  int64_t row = rowBlock * tileRows;
  int64_t first = panel * STEM_PANEL;
  if (!isCross && first + STEM_PANEL <= row)
    return; // below the diagonal
  const Arena &packed = isCross ? packedY : packedX;
  int64_t columns = isCross ? m : n;
  int64_t width = std::min<int64_t>(STEM_PANEL, columns - first);
  int64_t rows = std::min(tileRows, n - row);
  if (!isCross)
    rows = std::min(rows, first + width - row);
  double *totals =
      static_cast<double *>((isCross ? crossTotals : gramTotals).data()) +
      row * columns + first;
  alignas(64) float sums[tileRows * STEM_PANEL];
  auto multiply = [&]<typename T>(T, int64_t block, int64_t positions) {
    stem_packed_matmul(
        context, transposedOf<T>(transposed, n, block) + row * transposedStride,
        transposedStride, panelOf<T>(packed, columns, block, panel), products,
        blockPositions, width, 0, 0, sums, STEM_PANEL, rows, positions, width,
        /*accumulate=*/0);
  };
  for (int64_t start = 0; start < pending; start += blockPositions) {
    const int64_t block = start / blockPositions;
    const int64_t positions = std::min(blockPositions, pending - start);
    if (products == STEM_BF16)
      multiply(uint16_t{}, block, positions);
    else
      multiply(float{}, block, positions);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < width; ++j)
        totals[i * columns + j] += sums[i * STEM_PANEL + j];
  }
}
