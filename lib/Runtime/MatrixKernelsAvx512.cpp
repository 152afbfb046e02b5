//===- MatrixKernelsAvx512.cpp - Kernels of AVX-512 without BF16 ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define STEM_TARGET                                                            \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#include "MatrixKernelsAvx512.h"

using namespace stem;

namespace {

template <int Rows> STEM_TARGET void f32Tile(const PanelTile<float> &tile) {
  __m512 sum[Rows][panelVectors];
  loadC(tile, sum);
  const float *a = tile.a;
  const float *b = tile.b;
  const char *next = tile.prefetch;
  for (int64_t k = 0; k < tile.k;
       ++k, ++a, b += STEM_PANEL, next += cacheLine) {
    _mm_prefetch(next, _MM_HINT_T1);
    __m512 row[panelVectors];
    for (int v = 0; v < panelVectors; ++v)
      row[v] = _mm512_loadu_ps(b + 16 * v);
    for (int r = 0; r < Rows; ++r) {
      __m512 factor = _mm512_set1_ps(a[r * tile.lda]);
      for (int v = 0; v < panelVectors; ++v)
        sum[r][v] = _mm512_fmadd_ps(factor, row[v], sum[r][v]);
    }
  }
  storeC(tile, sum);
}

/// Adds rows `even` and `odd` of B, widened from the low and the high halves of
/// one vector of pairs: a bf16 is the upper half of an f32.
template <int Rows>
STEM_TARGET inline void addPair(__m512 (&sum)[Rows][panelVectors],
                                const uint16_t *b, const int32_t (&pairs)[Rows],
                                bool hasOdd) {
  __m512 even[panelVectors], odd[panelVectors];
  for (int v = 0; v < panelVectors; ++v) {
    __m512i bits = _mm512_loadu_si512(b + 32 * v);
    even[v] = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    odd[v] = _mm512_castsi512_ps(
        _mm512_and_si512(bits, _mm512_set1_epi32(0xffff0000)));
  }
  for (int r = 0; r < Rows; ++r) {
    __m512 a = _mm512_castsi512_ps(_mm512_set1_epi32(
        static_cast<int32_t>(static_cast<uint32_t>(pairs[r]) << 16)));
    for (int v = 0; v < panelVectors; ++v)
      sum[r][v] = _mm512_fmadd_ps(a, even[v], sum[r][v]);
  }
  for (int r = 0; hasOdd && r < Rows; ++r) {
    __m512 a = _mm512_castsi512_ps(
        _mm512_set1_epi32(static_cast<int32_t>(pairs[r] & 0xffff0000)));
    for (int v = 0; v < panelVectors; ++v)
      sum[r][v] = _mm512_fmadd_ps(a, odd[v], sum[r][v]);
  }
}

template <int Rows> STEM_TARGET void bf16Tile(const PanelTile<uint16_t> &tile) {
  __m512 sum[Rows][panelVectors];
  loadC(tile, sum);
  int32_t pairs[Rows];
  const uint16_t *b = tile.b;
  int64_t k = 0;
  const char *next = tile.prefetch;
  for (; k + 2 <= tile.k; k += 2, b += 2 * STEM_PANEL, next += cacheLine) {
    _mm_prefetch(next, _MM_HINT_T1);
    for (int r = 0; r < Rows; ++r)
      pairs[r] = loadPair(tile.a + r * tile.lda + k);
    addPair(sum, b, pairs, /*hasOdd=*/true);
  }
  if (k < tile.k) {
    for (int r = 0; r < Rows; ++r)
      pairs[r] = tile.a[r * tile.lda + k];
    addPair(sum, b, pairs, /*hasOdd=*/false);
  }
  storeC(tile, sum);
}

} // namespace

void stem::avx512F32Tile(const PanelTile<float> &tile) {
  computeRows<float, f32Tile<1>, f32Tile<2>, f32Tile<3>, f32Tile<4>, f32Tile<5>,
              f32Tile<6>>(tile);
}

const MatrixKernels stem::avx512Kernels = {
    avx512F32Kernel,
    {/*blockBytes=*/128 * 1024, /*rows=*/6, /*prefetchTiles=*/4,
     computeRows<uint16_t, bf16Tile<1>, bf16Tile<2>, bf16Tile<3>, bf16Tile<4>,
                 bf16Tile<5>, bf16Tile<6>>}};
