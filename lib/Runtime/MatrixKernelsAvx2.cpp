//===- MatrixKernelsAvx2.cpp - Kernels of AVX2 with FMA -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sixteen registers hold at most 12 sums: a panel is computed in strips of
// columns, narrower the more rows there are.
//
//===----------------------------------------------------------------------===//

#include "MatrixKernels.h"

#include <cstring>
#include <immintrin.h>

#define STEM_TARGET __attribute__((target("avx2,fma")))

using namespace stem;

namespace {

/// Vectors of 8 columns in a strip: as wide as the registers allow.
constexpr int stripVectors(int rows) {
  return rows == 1 ? 8 : rows == 2 ? 4 : 2;
}

/// Asks for the part of the next block that falls to one row of a strip: the
/// strips of a tile together ask for all of it.
template <int Vectors> STEM_TARGET inline void prefetchNext(const char *next) {
  for (int line = 0; line < Vectors / 2; ++line)
    _mm_prefetch(next + line * cacheLine, _MM_HINT_T1);
}

template <int Rows, int Vectors>
STEM_TARGET inline void addProducts(const PanelTile<float> &tile,
                                    const float *b, const char *next,
                                    __m256 (&sum)[Rows][Vectors]) {
  for (int64_t k = 0; k < tile.k; ++k, b += STEM_PANEL) {
    prefetchNext<Vectors>(next + k * (Vectors / 2) * cacheLine);
    __m256 row[Vectors];
    for (int v = 0; v < Vectors; ++v)
      row[v] = _mm256_loadu_ps(b + 8 * v);
    for (int r = 0; r < Rows; ++r) {
      __m256 a = _mm256_set1_ps(tile.a[r * tile.lda + k]);
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] = _mm256_fmadd_ps(a, row[v], sum[r][v]);
    }
  }
}

/// A bf16 is the upper half of an f32: of a pair, the even one moves up and the
/// odd one stays.
template <bool Odd> STEM_TARGET inline __m256 widen(__m256i pairs) {
  return _mm256_castsi256_ps(
      Odd ? _mm256_and_si256(pairs,
                             _mm256_set1_epi32(static_cast<int>(0xffff0000)))
          : _mm256_slli_epi32(pairs, 16));
}

/// Adds the even or the odd row of a pair of rows of B; `a` points at the pair
/// of the first row.
template <bool Odd, int Rows, int Vectors>
STEM_TARGET inline void addHalf(const uint16_t *a, int64_t lda,
                                const uint16_t *b,
                                __m256 (&sum)[Rows][Vectors]) {
  __m256 row[Vectors];
  for (int v = 0; v < Vectors; ++v)
    row[v] = widen<Odd>(
        _mm256_loadu_si256(reinterpret_cast<const __m256i *>(b) + v));
  for (int r = 0; r < Rows; ++r) {
    int32_t pair;
    std::memcpy(&pair, a + r * lda, sizeof(pair));
    __m256 factor = widen<Odd>(_mm256_set1_epi32(pair));
    for (int v = 0; v < Vectors; ++v)
      sum[r][v] = _mm256_fmadd_ps(factor, row[v], sum[r][v]);
  }
}

template <int Rows, int Vectors>
STEM_TARGET inline void addProducts(const PanelTile<uint16_t> &tile,
                                    const uint16_t *b, const char *next,
                                    __m256 (&sum)[Rows][Vectors]) {
  const uint16_t *a = tile.a;
  int64_t k = 0;
  for (; k + 2 <= tile.k; k += 2, a += 2, b += 2 * STEM_PANEL) {
    prefetchNext<Vectors>(next + k / 2 * (Vectors / 2) * cacheLine);
    addHalf<false>(a, tile.lda, b, sum);
    // There are no registers to keep the pairs for the other half: load again.
    asm volatile("" ::: "memory");
    addHalf<true>(a, tile.lda, b, sum);
  }
  // Of an odd k's last pair only the even half may be read.
  if (k < tile.k) {
    alignas(4) uint16_t last[Rows][2] = {};
    for (int r = 0; r < Rows; ++r)
      last[r][0] = a[r * tile.lda];
    addHalf<false>(last[0], 2, b, sum);
  }
}

/// One strip of whole vectors, from `column` of the panel on; `c` is at it.
template <int Rows, int Vectors, typename T>
STEM_TARGET inline void strip(const PanelTile<T> &tile, int64_t column,
                              float *c, int64_t ldc) {
  __m256 sum[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v)
      sum[r][v] = tile.accumulate ? _mm256_loadu_ps(c + r * ldc + 8 * v)
                                  : _mm256_setzero_ps();
  // Elements of B from one column, or one stored row of columns, to the next.
  constexpr int64_t group = sizeof(T) == 2 ? 2 : 1;
  int64_t storedRows = (tile.k + group - 1) / group;
  addProducts(tile, tile.b + column * group,
              tile.prefetch + column / 16 * storedRows * cacheLine, sum);
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v)
      _mm256_storeu_ps(c + r * ldc + 8 * v, sum[r][v]);
}

template <int Rows, typename T>
STEM_TARGET void panelTile(const PanelTile<T> &tile) {
  constexpr int vectors = stripVectors(Rows);
  constexpr int64_t width = 8 * vectors;
  for (int64_t column = 0; column < tile.columns; column += width) {
    int64_t left = tile.columns - column;
    if (left >= width) {
      strip<Rows, vectors>(tile, column, tile.c + column, tile.ldc);
      continue;
    }
    // The strip reaches beyond C: compute it in a buffer.
    float buffer[Rows][width] = {};
    for (int r = 0; tile.accumulate && r < Rows; ++r)
      std::memcpy(buffer[r], tile.c + r * tile.ldc + column,
                  left * sizeof(float));
    strip<Rows, vectors>(tile, column, buffer[0], width);
    for (int r = 0; r < Rows; ++r)
      std::memcpy(tile.c + r * tile.ldc + column, buffer[r],
                  left * sizeof(float));
  }
}

} // namespace

const MatrixKernels stem::avx2Kernels = {
    {/*blockBytes=*/32 * 1024, /*rows=*/6, /*prefetchTiles=*/4,
     computeRows<float, panelTile<1, float>, panelTile<2, float>,
                 panelTile<3, float>, panelTile<4, float>, panelTile<5, float>,
                 panelTile<6, float>>},
    {/*blockBytes=*/32 * 1024, /*rows=*/6, /*prefetchTiles=*/4,
     computeRows<uint16_t, panelTile<1, uint16_t>, panelTile<2, uint16_t>,
                 panelTile<3, uint16_t>, panelTile<4, uint16_t>,
                 panelTile<5, uint16_t>, panelTile<6, uint16_t>>}};
