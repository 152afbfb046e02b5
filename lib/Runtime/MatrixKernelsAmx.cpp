//===- MatrixKernelsAmx.cpp - bf16 kernels of AMX -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An AMX instruction adds the products of 32 k to 16 x 16 elements of C: first
// the sum over the even k and that over the odd ones, then both together to C.
// A block of k other than the last is a multiple of 32, so that an element's
// chain of operations is the same for any rows, blocks and panels beside it.
//
//===----------------------------------------------------------------------===//

#define STEM_TARGET                                                            \
  __attribute__((                                                              \
      target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")))
#include "MatrixKernelsAvx512.h"

#include <algorithm>
#include <iterator>

using namespace stem;

namespace {

constexpr int64_t tile = 16;            // Rows and columns of a tile of C.
constexpr int64_t step = 32;            // k of one instruction.
constexpr int64_t blockRows = 2 * tile; // Of C, in registers at a time.
constexpr int64_t mostRows = 2 * blockRows;
constexpr int64_t tileBytes = 64; // Of one row of a tile of A, B or C.
constexpr int64_t pairBytes = 2 * STEM_PANEL * sizeof(uint16_t);

/// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t startRow = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Registers: C in 0 to 3, A in 4 and 5, B in 6 and 7. With up to 16 rows C is
/// one row of four tiles, with more two rows of two.
constexpr TileConfig configFor(int64_t rows) {
  TileConfig config;
  const auto first = static_cast<uint8_t>(std::min(rows, tile));
  const auto second = static_cast<uint8_t>(rows - first);
  for (int i = 0; i < 8; ++i)
    config.bytes[i] = tileBytes;
  for (int i : {0, 1, 4})
    config.rows[i] = first;
  for (int i : {2, 3, 5})
    config.rows[i] = second ? second : first;
  config.rows[6] = config.rows[7] = tile;
  return config;
}

struct TileConfigs {
  TileConfig ofRows[blockRows + 1];
};

/// One for each number of rows: loading what was just stored in pieces takes as
/// long again.
constexpr TileConfigs configs = [] {
  TileConfigs all;
  for (int64_t rows = 1; rows <= blockRows; ++rows)
    all.ofRows[rows] = configFor(rows);
  return all;
}();

/// At most 32 rows of a product.
struct RowBlock {
  const uint16_t *a;
  int64_t rows;
  const char *prefetch;
};

/// What the k beyond a whole step need: both sides continued by zeros, for A
/// ends at k, and what follows in B may be infinite.
struct Tail {
  alignas(64) uint16_t a[2 * tile][step];
  alignas(64) uint16_t b[step / 2][2 * STEM_PANEL];

  void fill(const PanelTile<uint16_t> &from, const RowBlock &block, int64_t k) {
    const int64_t count = from.k - k;
    std::memset(a, 0, sizeof(a));
    std::memset(b, 0, sizeof(b));
    for (int64_t r = 0; r < block.rows; ++r)
      std::memcpy(a[r], block.a + r * from.lda + k, count * sizeof(uint16_t));
    const uint16_t *source = from.b + k * STEM_PANEL;
    std::memcpy(b, source, count / 2 * pairBytes);
    for (int64_t n = 0; count % 2 && n < STEM_PANEL; ++n)
      b[count / 2][2 * n] = source[count / 2 * 2 * STEM_PANEL + 2 * n];
  }
};

/// Asks for `lines` cache lines from `next` on.
inline void prefetch(const char *next, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i)
    _mm_prefetch(next + i * cacheLine, _MM_HINT_T1);
}

/// C of whole tiles.
struct Target {
  float *c;
  int64_t ldc;
  bool accumulate;
};

template <int Register>
STEM_TARGET inline void loadC(const Target &to, int64_t row, int64_t column) {
  if (to.accumulate)
    _tile_loadd(Register, to.c + row * to.ldc + column, to.ldc * sizeof(float));
  else
    _tile_zero(Register);
}

template <int Register>
STEM_TARGET inline void storeC(const Target &to, int64_t row, int64_t column) {
  _tile_stored(Register, to.c + row * to.ldc + column, to.ldc * sizeof(float));
}

STEM_TARGET inline void addWide(const uint16_t *a, int64_t aBytes,
                                const uint16_t *b) {
  _tile_loadd(4, a, aBytes);
  _tile_loadd(6, b, pairBytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, b + step, pairBytes);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(6, b + 2 * step, pairBytes);
  _tile_dpbf16ps(2, 4, 6);
  _tile_loadd(7, b + 3 * step, pairBytes);
  _tile_dpbf16ps(3, 4, 7);
}

STEM_TARGET inline void addSquare(const uint16_t *a, int64_t aBytes,
                                  const uint16_t *b) {
  _tile_loadd(6, b, pairBytes);
  _tile_loadd(4, a, aBytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, b + step, pairBytes);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, reinterpret_cast<const char *>(a) + tile * aBytes, aBytes);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

/// At most 16 rows of all 64 columns of a panel.
STEM_TARGET void wide(const PanelTile<uint16_t> &from, const RowBlock &block,
                      const Target &to, const Tail *tail) {
  loadC<0>(to, 0, 0);
  loadC<1>(to, 0, tile);
  loadC<2>(to, 0, 2 * tile);
  loadC<3>(to, 0, 3 * tile);
  const int64_t whole = from.k / step * step;
  for (int64_t k = 0; k < whole; k += step) {
    prefetch(block.prefetch + k * cacheLine, step);
    addWide(block.a + k, from.lda * sizeof(uint16_t), from.b + k * STEM_PANEL);
  }
  if (tail)
    addWide(tail->a[0], tileBytes, tail->b[0]);
  storeC<0>(to, 0, 0);
  storeC<1>(to, 0, tile);
  storeC<2>(to, 0, 2 * tile);
  storeC<3>(to, 0, 3 * tile);
}

/// 17 to 32 rows of the 32 columns from `column` on.
STEM_TARGET void square(const PanelTile<uint16_t> &from, const RowBlock &block,
                        const Target &to, const Tail *tail, int64_t column) {
  loadC<0>(to, 0, column);
  loadC<1>(to, 0, column + tile);
  loadC<2>(to, tile, column);
  loadC<3>(to, tile, column + tile);
  const int64_t whole = from.k / step * step;
  const char *next = block.prefetch + column / step * whole / 2 * cacheLine;
  for (int64_t k = 0; k < whole; k += step) {
    prefetch(next + k / 2 * cacheLine, step / 2);
    addSquare(block.a + k, from.lda * sizeof(uint16_t),
              from.b + k * STEM_PANEL + 2 * column);
  }
  if (tail)
    addSquare(tail->a[0], tileBytes, tail->b[0] + 2 * column);
  storeC<0>(to, 0, column);
  storeC<1>(to, 0, column + tile);
  storeC<2>(to, tile, column);
  storeC<3>(to, tile, column + tile);
}

/// With the tiles configured for the rows.
STEM_TARGET void multiplyBlock(const PanelTile<uint16_t> &from,
                               const RowBlock &block, const Target &to) {
  Tail tail;
  const Tail *used = nullptr;
  if (from.k % step) {
    tail.fill(from, block, from.k / step * step);
    used = &tail;
  }
  if (block.rows <= tile) {
    wide(from, block, to, used);
  } else {
    square(from, block, to, used, 0);
    square(from, block, to, used, 2 * tile);
  }
}

/// Configuring the tiles takes a good part of the time of a small product:
/// blocks of as many rows share it.
STEM_TARGET void multiplyTile(const PanelTile<uint16_t> &from, float *c,
                              int64_t ldc) {
  int64_t configured = 0;
  for (int64_t row = 0; row < from.rows; row += blockRows) {
    const RowBlock block = {
        from.a + row * from.lda, std::min(blockRows, from.rows - row),
        from.prefetch + row / blockRows * from.k * cacheLine};
    if (block.rows != configured)
      _tile_loadconfig(&configs.ofRows[block.rows]);
    configured = block.rows;
    multiplyBlock(from, block, {c + row * ldc, ldc, from.accumulate});
  }
  _tile_release();
}

STEM_TARGET void bf16Tile(const PanelTile<uint16_t> &from) {
  if (from.columns == STEM_PANEL)
    return multiplyTile(from, from.c, from.ldc);
  // The panel reaches beyond C: compute it in a buffer.
  alignas(64) float buffer[mostRows][STEM_PANEL];
  for (int64_t r = 0; from.accumulate && r < from.rows; ++r)
    std::memcpy(buffer[r], from.c + r * from.ldc, from.columns * sizeof(float));
  multiplyTile(from, buffer[0], STEM_PANEL);
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(from.c + r * from.ldc, buffer[r], from.columns * sizeof(float));
}

} // namespace

const MatrixKernels stem::amxKernels = {avx512F32Kernel,
                                        {/*blockBytes=*/128 * 1024,
                                         /*rows=*/mostRows, /*prefetchTiles=*/1,
                                         bf16Tile}};
