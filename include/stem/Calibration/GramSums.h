//===- GramSums.h - Sums of outer products over a stream --------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Products are summed in f32 over blocks of 512 positions, counted from the
// stream's start, and the blocks in f64. The bits depend on neither the sizes
// of the pieces that a stream comes in nor the number of threads. With products
// in bf16, x and y are rounded to it first: what a model of that type computes
// with is rounded alike.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_CALIBRATION_GRAMSUMS_H
#define STEM_CALIBRATION_GRAMSUMS_H

#include "stem-c/Runtime.h"
#include "stem/Runtime/Arena.h"

namespace stem {

/// Σ x xᵀ (n x n) and Σ x yᵀ (n x m) over positions.
class GramSums {
public:
  /// The context outlives the sums.
  GramSums(stem_context *context, int64_t n, int64_t m,
           stem_dtype products = STEM_F32);

  /// What an object holds; with bf16 a few MB less.
  static int64_t bytes(int64_t n, int64_t m);

  /// Takes `count` rows of x (count x n) and of y (count x m).
  void add(const float *x, const float *y, int64_t count);

  /// Ends the stream: adds the last block, which may be short. Nothing can be
  /// added after it.
  void finish();

  int64_t positions() const { return total; }

  /// Row-major; after finish. The upper triangle of Σ x xᵀ holds, what lies
  /// below the diagonal is the caller's to use.
  double *gram() { return static_cast<double *>(gramTotals.data()); }
  const double *cross() const {
    return static_cast<const double *>(crossTotals.data());
  }

private:
  template <typename T>
  void store(const float *x, const float *y, int64_t count);
  template <typename T>
  void storePanel(const float *rows, int64_t count, bool isY, int64_t panel);
  void sumBlocks();
  void sumTile(int64_t rowBlock, int64_t panel);

  stem_context *context;
  int64_t n, m;
  stem_dtype products;
  int64_t total = 0;   ///< positions taken
  int64_t pending = 0; ///< of them, stored and not yet summed
  bool finished = false;
  Arena gramTotals, crossTotals;
  /// The blocks that wait: x transposed, x packed, y packed.
  Arena transposed, packedX, packedY;
};

} // namespace stem

#endif // STEM_CALIBRATION_GRAMSUMS_H
