//===- MatrixKernelsAvx512Bf16.cpp - Kernels of AVX-512 BF16 --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define STEM_TARGET                                                            \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#include "MatrixKernelsAvx512.h"

using namespace stem;

namespace {

template <int Rows> STEM_TARGET void bf16Tile(const PanelTile<uint16_t> &tile) {
  __m512 sum[Rows][panelVectors];
  loadC(tile, sum);
  const uint16_t *a = tile.a;
  const uint16_t *b = tile.b;
  int64_t k = 0;
  const char *next = tile.prefetch;
  for (; k + 2 <= tile.k;
       k += 2, a += 2, b += 2 * STEM_PANEL, next += cacheLine) {
    _mm_prefetch(next, _MM_HINT_T1);
    __m512bh row[panelVectors];
    for (int v = 0; v < panelVectors; ++v)
      row[v] = (__m512bh)_mm512_loadu_si512(b + 32 * v);
    for (int r = 0; r < Rows; ++r) {
      __m512bh pair = (__m512bh)_mm512_set1_epi32(loadPair(a + r * tile.lda));
      for (int v = 0; v < panelVectors; ++v)
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], pair, row[v]);
    }
  }
  // The last row of an odd k: the half that faces it is zero on both sides, so
  // that nothing beyond the row of A is read and no 0 * inf appears.
  if (k < tile.k)
    for (int v = 0; v < panelVectors; ++v) {
      __m512bh row = (__m512bh)_mm512_and_si512(_mm512_loadu_si512(b + 32 * v),
                                                _mm512_set1_epi32(0xffff));
      for (int r = 0; r < Rows; ++r)
        sum[r][v] = _mm512_dpbf16_ps(
            sum[r][v], (__m512bh)_mm512_set1_epi32(a[r * tile.lda]), row);
    }
  storeC(tile, sum);
}

} // namespace

const MatrixKernels stem::avx512Bf16Kernels = {
    avx512F32Kernel,
    {/*blockBytes=*/128 * 1024, /*rows=*/6, /*prefetchTiles=*/4,
     computeRows<uint16_t, bf16Tile<1>, bf16Tile<2>, bf16Tile<3>, bf16Tile<4>,
                 bf16Tile<5>, bf16Tile<6>>}};
