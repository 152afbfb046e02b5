//===- MatrixKernels.cpp - Products with packed matrices ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loops around the micro-kernels: which panel, which rows, which part of k
// next. They move no rounding: see MatrixKernels.h.
//
//===----------------------------------------------------------------------===//

#include "MatrixKernels.h"
#include "ContextImpl.h"

#include <algorithm>

using namespace stem;

namespace {

struct Product {
  int64_t lda, k0, n0, ldc, m, k, n;
  bool accumulate;
};

/// K of the panels as stored: bf16 rows lie in pairs.
int64_t storedRows(int32_t dtype, int64_t rows) {
  return dtype == STEM_BF16 ? rows + (rows & 1) : rows;
}

/// Panels outside, so that a panel of C stays in the cache while k advances in
/// blocks; rows inside, so that they share a block of B.
template <typename T>
void multiplyPart(const PanelKernel<T> &kernel, const Product &product,
                  const T *a, const T *b, int64_t panelElements, float *c) {
  int64_t block = kernel.blockBytes / (STEM_PANEL * sizeof(T));
  for (int64_t n = 0; n < product.n; n += STEM_PANEL) {
    int64_t columns = std::min<int64_t>(STEM_PANEL, product.n - n);
    const T *panel = b + (product.n0 + n) / STEM_PANEL * panelElements +
                     product.k0 * STEM_PANEL;
    // An empty k still writes C once.
    int64_t k = 0;
    do {
      int64_t kCount = std::min(block, product.k - k);
      const T *current = panel + k * STEM_PANEL;
      PanelTile<T> tile = {nullptr,    product.lda, current,
                           nullptr,    product.ldc, kCount,
                           /*rows=*/0, columns,     product.accumulate || k > 0,
                           nullptr};
      const T *next = k + kCount < product.k ? current + kCount * STEM_PANEL
                      : n + STEM_PANEL < product.n ? panel + panelElements
                                                   : current;
      const int64_t share =
          kCount * STEM_PANEL * int64_t(sizeof(T)) / kernel.prefetchTiles;
      for (int64_t row = 0; row < product.m; row += kernel.rows) {
        tile.a = a + row * product.lda + k;
        tile.c = c + row * product.ldc + n;
        tile.rows = std::min(kernel.rows, product.m - row);
        tile.prefetch = reinterpret_cast<const char *>(next) +
                        row / kernel.rows % kernel.prefetchTiles * share;
        kernel.compute(tile);
      }
      k += kCount;
    } while (k < product.k);
  }
}

/// Bytes of A and of one panel that stay in the second-level cache together,
/// and the bytes of both that k is cut into where they do not.
constexpr int64_t kCachedBytes = 3 << 19, kPartBytes = 3 << 18;

/// All panels for one part of k after the other, where A would come from
/// further away for each panel: C is written once for each part instead.
template <typename T>
void multiply(const PanelKernel<T> &kernel, Product product, const T *a,
              const T *b, int64_t panelElements, float *c) {
  const int64_t rowBytes = (product.m + STEM_PANEL) * int64_t(sizeof(T));
  if (product.k <= kCachedBytes / rowBytes || product.n <= STEM_PANEL)
    return multiplyPart(kernel, product, a, b, panelElements, c);
  const int64_t block = kernel.blockBytes / (STEM_PANEL * sizeof(T));
  const int64_t part =
      std::max<int64_t>(kPartBytes / rowBytes / block, 1) * block;
  for (int64_t left = product.k; left > 0; left -= part) {
    product.k = std::min(part, left);
    multiplyPart(kernel, product, a, b, panelElements, c);
    a += part;
    product.k0 += part;
    product.accumulate = true;
  }
}

} // namespace

const MatrixKernels &stem::matrixKernelsFor(stem_isa isa) {
  switch (isa) {
  case STEM_ISA_AMX:
    return amxKernels;
  case STEM_ISA_AVX512_BF16:
    return avx512Bf16Kernels;
  case STEM_ISA_AVX512:
    return avx512Kernels;
  default:
    return avx2Kernels;
  }
}

int64_t stem_packed_bytes(int32_t dtype, int64_t rows, int64_t columns) {
  if ((dtype != STEM_F32 && dtype != STEM_BF16) || rows < 0 || columns < 0 ||
      rows > INT64_MAX - 1 || columns > INT64_MAX - STEM_PANEL)
    return -1;
  int64_t padded = (columns + STEM_PANEL - 1) / STEM_PANEL * STEM_PANEL;
  int64_t bytes;
  if (__builtin_mul_overflow(storedRows(dtype, rows), padded, &bytes) ||
      __builtin_mul_overflow(bytes, elementBytes(dtype), &bytes))
    return -1;
  return bytes;
}

// Called from compiled code, whose verified shapes and lowering keep the
// contract of the header; it has no status to fail with.
void stem_packed_matmul(stem_context *context, const void *a, int64_t lda,
                        const void *b, int32_t b_dtype, int64_t b_rows,
                        int64_t b_columns, int64_t k0, int64_t n0, float *c,
                        int64_t ldc, int64_t m, int64_t k, int64_t n,
                        int32_t accumulate) {
  if (m <= 0 || n <= 0 || k < 0)
    return;
  Product product = {lda, k0, n0, ldc, m, k, n, accumulate != 0};
  const MatrixKernels &kernels = *context->kernels;
  int64_t panelElements = storedRows(b_dtype, b_rows) * STEM_PANEL;
  if (b_dtype == STEM_F32)
    multiply(kernels.f32, product, static_cast<const float *>(a),
             static_cast<const float *>(b), panelElements, c);
  else
    multiply(kernels.bf16, product, static_cast<const uint16_t *>(a),
             static_cast<const uint16_t *>(b), panelElements, c);
}
