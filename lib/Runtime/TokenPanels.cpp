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

/// Vectors that every x86-64 has.
using Shorts = uint16_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));

/// 8 x 8: three rounds of interleaving, each with the row half as far away.
static void transposeSquare(const uint16_t *x, int64_t ldx, uint16_t *out,
                            int64_t ldo) {
  Shorts rows[8], next[8];
  for (int i = 0; i < 8; ++i)
    std::memcpy(&rows[i], x + i * ldx, sizeof(Shorts));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2,
                                            10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5,
                                                13, 6, 14, 7, 15);
    }
    std::copy(next, next + 8, rows);
  }
  for (int i = 0; i < 8; ++i)
    std::memcpy(out + i * ldo, &rows[i], sizeof(Shorts));
}

/// 4 x 4, in the same way.
static void transposeSquare(const float *x, int64_t ldx, float *out,
                            int64_t ldo) {
  Floats rows[4], next[4];
  for (int i = 0; i < 4; ++i)
    std::memcpy(&rows[i], x + i * ldx, sizeof(Floats));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 2; ++i) {
      next[2 * i] = __builtin_shufflevector(rows[i], rows[i + 2], 0, 4, 1, 5);
      next[2 * i + 1] =
          __builtin_shufflevector(rows[i], rows[i + 2], 2, 6, 3, 7);
    }
    std::copy(next, next + 4, rows);
  }
  for (int i = 0; i < 4; ++i)
    std::memcpy(out + i * ldo, &rows[i], sizeof(Floats));
}

/// By squares of one vector, column after column of out, so that a line of it
/// is written whole.
template <typename T>
static void transpose(const T *x, int64_t ldx, int64_t rows, int64_t columns,
                      T *out, int64_t ldo) {
  constexpr int64_t square = 16 / sizeof(T);
  const int64_t t1 = rows / square * square, n1 = columns / square * square;
  for (int64_t n = 0; n < n1; n += square)
    for (int64_t t = 0; t < t1; t += square)
      transposeSquare(x + t * ldx + n, ldx, out + n * ldo + t, ldo);
  for (int64_t n = 0; n < columns; ++n)
    for (int64_t t = n < n1 ? t1 : 0; t < rows; ++t)
      out[n * ldo + t] = x[t * ldx + n];
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
