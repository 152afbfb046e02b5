//===- MatrixKernels.h - Micro-kernels by instruction set -------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A micro-kernel computes some rows of one panel of C:
//
//   C[r, 0:columns] = (accumulate ? C[r, :] : 0) + sum over k of A[r, k] B[k,
//   :]
//
// One accumulator an element, k in rising order, starting from C: the sum is
// the same chain of operations whatever the rows, the blocks of k (all but the
// last are multiples of STEM_PANEL) or the panels beside it. `b` points at row
// k0 of a panel. A is read within [0, k) only.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_MATRIXKERNELS_H
#define STEM_LIB_RUNTIME_MATRIXKERNELS_H

#include "stem-c/Runtime.h"

namespace stem {

template <typename T> struct PanelTile {
  const T *a;
  int64_t lda;
  const T *b;
  float *c;
  int64_t ldc;
  int64_t k;
  int64_t rows;    /* 1 to PanelKernel::rows */
  int64_t columns; /* 1 to STEM_PANEL */
  bool accumulate;
  /// A tile asks for its share, 1 / PanelKernel::prefetchTiles, of the block of
  /// B that comes next, in cache lines from here on.
  const char *prefetch;
};

constexpr int64_t cacheLine = 64;

template <typename T> struct PanelKernel {
  /// Bytes of a panel that the row tiles share before k moves on.
  int64_t blockBytes;
  /// Rows of C that a tile has at most.
  int64_t rows;
  /// Tiles that share the request for the next block.
  int64_t prefetchTiles;
  void (*compute)(const PanelTile<T> &tile);
};

struct MatrixKernels {
  PanelKernel<float> f32;
  PanelKernel<uint16_t> bf16;
};

/// Calls function R - 1 for R rows: kernels whose rows are registers.
template <typename T, void (*...Functions)(const PanelTile<T> &)>
void computeRows(const PanelTile<T> &tile) {
  static constexpr void (*functions[])(const PanelTile<T> &) = {Functions...};
  functions[tile.rows - 1](tile);
}

extern const MatrixKernels avx2Kernels;
extern const MatrixKernels avx512Kernels;
extern const MatrixKernels avx512Bf16Kernels;
extern const MatrixKernels amxKernels;

const MatrixKernels &matrixKernelsFor(stem_isa isa);

} // namespace stem

#endif // STEM_LIB_RUNTIME_MATRIXKERNELS_H
