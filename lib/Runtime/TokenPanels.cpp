//===- TokenPanels.cpp - Operands of products over tokens -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a weight is a product whose depth are tokens. Its left side
// is transposed, its right side laid out in panels (see stem_packed).
//
//===----------------------------------------------------------------------===//

#include "stem-c/Runtime.h"

#include <algorithm>
#include <cstring>

static void packFloats(const float *x, int64_t ldx, int64_t rows,
                       int64_t columns, float *panel) {
  for (int64_t t = 0; t < rows; ++t, panel += STEM_PANEL) {
    std::memcpy(panel, x + t * ldx, columns * sizeof(float));
    std::fill(panel + columns, panel + STEM_PANEL, 0.0f);
  }
}

/// Pairs of rows, interleaved by column.
static void packPairs(const uint16_t *x, int64_t ldx, int64_t rows,
                      int64_t columns, uint16_t *panel) {
  static constexpr uint16_t zeros[STEM_PANEL] = {};
  for (int64_t t = 0; t < rows; t += 2, panel += 2 * STEM_PANEL) {
    const uint16_t *first = x + t * ldx;
    const uint16_t *second = t + 1 < rows ? first + ldx : zeros;
    for (int64_t n = 0; n < columns; ++n) {
      panel[2 * n] = first[n];
      panel[2 * n + 1] = second[n];
    }
    std::fill(panel + 2 * columns, panel + 2 * STEM_PANEL, uint16_t{0});
  }
}

void stem_pack_tokens(const void *x, int64_t ldx, int32_t dtype, int64_t rows,
                      int64_t columns, void *panel) {
  if (dtype == STEM_F32)
    packFloats(static_cast<const float *>(x), ldx, rows, columns,
               static_cast<float *>(panel));
  else
    packPairs(static_cast<const uint16_t *>(x), ldx, rows, columns,
              static_cast<uint16_t *>(panel));
}

/// In squares, so that both sides stay in the first-level cache.
template <typename T>
static void transpose(const T *x, int64_t ldx, int64_t rows, int64_t columns,
                      T *out, int64_t ldo) {
  constexpr int64_t square = 16;
  for (int64_t t0 = 0; t0 < rows; t0 += square)
    for (int64_t n0 = 0; n0 < columns; n0 += square) {
      int64_t t1 = std::min(t0 + square, rows);
      int64_t n1 = std::min(n0 + square, columns);
      for (int64_t n = n0; n < n1; ++n)
        for (int64_t t = t0; t < t1; ++t)
          out[n * ldo + t] = x[t * ldx + n];
    }
}

void stem_transpose_tokens(const void *x, int64_t ldx, int32_t dtype,
                           int64_t rows, int64_t columns, void *out,
                           int64_t ldo) {
  if (dtype == STEM_F32)
    transpose(static_cast<const float *>(x), ldx, rows, columns,
              static_cast<float *>(out), ldo);
  else
    transpose(static_cast<const uint16_t *>(x), ldx, rows, columns,
              static_cast<uint16_t *>(out), ldo);
}
