//===- MatrixKernels.h - Micro-kernels by instruction set -------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A micro-kernel computes `rows` rows (1 to tileRows) of one panel of C:
//
//   C[r, 0:columns] = (accumulate ? C[r, :] : 0) + sum over k of A[r, k] B[k,
//   :]
//
// One accumulator an element, k in rising order, starting from C: the sum is
// the same chain of operations whatever the rows, the blocks of k or the panels
// beside it. `b` points at row k0 of a panel. A is read within [0, k) only.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_MATRIXKERNELS_H
#define STEM_LIB_RUNTIME_MATRIXKERNELS_H

#include "stem-c/Runtime.h"

namespace stem {

/// Rows of C that a micro-kernel keeps in registers.
constexpr int64_t tileRows = 6;

template <typename T> struct PanelTile {
  const T *a;
  int64_t lda;
  const T *b;
  float *c;
  int64_t ldc;
  int64_t k;
  int64_t columns; /* 1 to STEM_PANEL */
  bool accumulate;
  /// A tile asks for one cache line for each row (bf16: pair of rows) of its
  /// block from here on: the block of B that comes next.
  const char *prefetch;
};

constexpr int64_t cacheLine = 64;

/// Entry r - 1 computes r rows.
struct MatrixKernels {
  /// Bytes of a panel that the row tiles share before k moves on.
  int64_t blockBytes;
  void (*f32[tileRows])(const PanelTile<float> &tile);
  void (*bf16[tileRows])(const PanelTile<uint16_t> &tile);
};

extern const MatrixKernels avx2Kernels;
extern const MatrixKernels avx512Kernels;
extern const MatrixKernels avx512Bf16Kernels;

const MatrixKernels &matrixKernelsFor(stem_isa isa);

} // namespace stem

#endif // STEM_LIB_RUNTIME_MATRIXKERNELS_H
