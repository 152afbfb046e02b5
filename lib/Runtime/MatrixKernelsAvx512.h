//===- MatrixKernelsAvx512.h - The AVX-512 tile and its C -------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the f32 and the bf16 kernels of AVX-512 share: reading and writing a
// tile of C, and pairs of bf16. Included where STEM_TARGET names the features.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_MATRIXKERNELSAVX512_H
#define STEM_LIB_RUNTIME_MATRIXKERNELSAVX512_H

#include "MatrixKernels.h"

#include <cstring>
#include <immintrin.h>

namespace stem {
/// The f32 kernel, which AVX-512 BF16 and AMX share.
void avx512F32Tile(const PanelTile<float> &tile);
constexpr PanelKernel<float> avx512F32Kernel = {/*blockBytes=*/128 * 1024,
                                                /*rows=*/6, /*prefetchTiles=*/4,
                                                avx512F32Tile};
} // namespace stem

namespace {

constexpr int panelVectors = STEM_PANEL / 16;

/// Lanes of vector v that lie within the tile's columns.
inline __mmask16 columnMask(int64_t columns, int v) {
  int64_t left = columns - 16 * v;
  if (left >= 16)
    return 0xffff;
  return left <= 0 ? 0 : static_cast<__mmask16>((1u << left) - 1);
}

/// Two bf16 of a row of A that face a pair of rows of B.
inline int32_t loadPair(const uint16_t *a) {
  int32_t pair;
  std::memcpy(&pair, a, sizeof(pair));
  return pair;
}

template <int Rows, typename T>
STEM_TARGET inline void loadC(const stem::PanelTile<T> &tile,
                              __m512 (&sum)[Rows][panelVectors]) {
  if (!tile.accumulate) {
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < panelVectors; ++v)
        sum[r][v] = _mm512_setzero_ps();
    return;
  }
  for (int v = 0; v < panelVectors; ++v) {
    __mmask16 mask = columnMask(tile.columns, v);
    for (int r = 0; r < Rows; ++r)
      sum[r][v] = _mm512_maskz_loadu_ps(mask, tile.c + r * tile.ldc + 16 * v);
  }
}

template <int Rows, typename T>
STEM_TARGET inline void storeC(const stem::PanelTile<T> &tile,
                               const __m512 (&sum)[Rows][panelVectors]) {
  for (int v = 0; v < panelVectors; ++v) {
    __mmask16 mask = columnMask(tile.columns, v);
    for (int r = 0; r < Rows; ++r)
      _mm512_mask_storeu_ps(tile.c + r * tile.ldc + 16 * v, mask, sum[r][v]);
  }
}

} // namespace

#endif // STEM_LIB_RUNTIME_MATRIXKERNELSAVX512_H
