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

template <typename T> T product(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return roundToBF16(value);
}

/// `to` (columns x count) = `from` (count x columns) transposed, in squares of
/// one cache line of f32.
template <typename T>
void transpose(const float *from, int64_t stride, int64_t count,
               int64_t columns, T *to) {
  for (int64_t position = 0; position < count; position += 16)
    for (int64_t column = 0; column < columns; ++column)
      for (int64_t i = position; i < std::min(position + 16, count); ++i)
        to[column * transposedStride + i] =
            product<T>(from[i * stride + column]);
}

/// Positions [position, position + count) of a panel, see stem_packed: rows one
/// after the other, of bf16 in pairs interleaved by column.
template <typename T>
void packRows(const float *from, int64_t stride, int64_t position,
              int64_t count, int64_t columns, T *panel) {
  constexpr int64_t group = sizeof(T) == sizeof(uint16_t) ? 2 : 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = position + i;
    T *to = panel + row / group * group * STEM_PANEL + row % group;
    for (int64_t column = 0; column < columns; ++column)
      to[column * group] = product<T>(from[i * stride + column]);
  }
}

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
  auto storePanel = [&](const Arena &packed, const float *rows, int64_t columns,
                        int64_t panel, bool transposes) {
    int64_t first = panel * STEM_PANEL;
    int64_t width = std::min<int64_t>(STEM_PANEL, columns - first);
    for (int64_t done = 0; done < count;) {
      int64_t block = (pending + done) / blockPositions;
      int64_t position = (pending + done) % blockPositions;
      int64_t taken = std::min(count - done, blockPositions - position);
      const float *source = rows + done * columns + first;
      // The columns behind the last of a panel keep the zeros of the arena.
      packRows(source, columns, position, taken, width,
               panelOf<T>(packed, columns, block, panel));
      if (transposes)
        transpose(source, columns, taken, width,
                  transposedOf<T>(transposed, n, block) +
                      first * transposedStride + position);
      done += taken;
    }
  };
  int64_t panelsX = panelsOf(n);
  parallelFor(threadsFor(context, count * (n + m)), panelsX + panelsOf(m),
              [&](int64_t task) {
                if (task < panelsX)
                  storePanel(packedX, x, n, task, /*transposes=*/true);
                else
                  storePanel(packedY, y, m, task - panelsX,
                             /*transposes=*/false);
              });
  pending += count;
  total += count;
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
