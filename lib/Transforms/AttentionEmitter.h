//===- AttentionEmitter.h - What attention and its VJP are made of --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_ATTENTIONEMITTER_H
#define STEM_LIB_TRANSFORMS_ATTENTIONEMITTER_H

#include "TilingUtils.h"

namespace stem {

/// Scores that a row must not see. Finite, so that no difference of two of them
/// is NaN; no real score comes near.
constexpr float kMasked = -1.0e30f;

/// What the pages of one head share: M rows, E = head_dim, P positions a page.
class AttentionEmitter {
protected:
  AttentionEmitter(mlir::OpBuilder &builder, mlir::Location loc,
                   mlir::Type elementType, int64_t headDim, int64_t window)
      : b(builder), loc(loc), elementType(elementType), headDim(headDim),
        window(window), f32(builder.getF32Type()) {}

  mlir::Value index(int64_t value);
  mlir::Value constant(float value);
  mlir::Value empty(llvm::ArrayRef<int64_t> shape, mlir::Type type);
  mlir::Value filled(llvm::ArrayRef<int64_t> shape, mlir::Value value);

  using LoopBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::ValueRange)>;
  /// for i in [first, last) { state = body(i, state) }
  llvm::SmallVector<mlir::Value> loop(mlir::Value first, mlir::Value last,
                                      mlir::ValueRange state, LoopBody body);

  /// The first page that a query sees, by the position of the first query.
  mlir::Value firstPage(mlir::Value position);
  mlir::Value page(mlir::Value cache, mlir::Value layer, mlir::Value sequence,
                   mlir::Value number, mlir::Value head, bool values);
  mlir::Value multiply(mlir::Value a, mlir::Value packed, mlir::Value acc,
                       bool accumulate);
  /// i1 from i32: whether a query sees the key that is so far before it.
  mlir::Value isVisible(mlir::OpBuilder &nested, mlir::Location l,
                        mlir::Value distance);

  /// The maximum; which of two it is when one is NaN does not matter.
  static mlir::Value largerOf(mlir::OpBuilder &b, mlir::Location loc,
                              mlir::Value x, mlir::Value y);
  mlir::Value rowSum(mlir::Value weights, mlir::Value initial);
  /// The new maximum in place of the old, and exp(old - new), or exp2. One
  /// loop, so that the old one need not be kept.
  mlir::ValueRange moveMax(mlir::Value oldMax, mlir::Value pageMax,
                           bool isBase2);
  mlir::Value scale1D(mlir::Value vector, mlir::Value factors);
  mlir::Value scale2D(mlir::Value matrix, mlir::Value factors);

  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type elementType;
  int64_t headDim, window;
  mlir::Type f32;
};

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_ATTENTIONEMITTER_H
