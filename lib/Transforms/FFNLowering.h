//===- FFNLowering.h - Pieces of the gated FFNs ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_FFNLOWERING_H
#define STEM_LIB_TRANSFORMS_FFNLOWERING_H

#include "stem/Dialect/Stem/StemDialect.h"

namespace stem {

/// `acc (+)= x * weight[k0 :, n0 :]` for a packed weight; a null offset is 0.
/// `x` has the weight's element type.
mlir::Value multiplyPacked(mlir::OpBuilder &builder, mlir::Location loc,
                           mlir::Value x, mlir::Value weight, mlir::Value acc,
                           mlir::Value rowOffset, mlir::Value columnOffset,
                           bool accumulate);

/// A missed remark: a loop nest multiplies by `weight`, no matrix kernel,
/// because `reason`.
void explainPlainProduct(mlir::Location loc, mlir::Value weight,
                         llvm::StringRef reason);

/// x * weight^T into `acc`, f32 `[T, N]`: by the matrix kernels when packed.
mlir::Value multiplyInto(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::Value x, mlir::Value weight, mlir::Value acc);

/// `matrix[t, n] + bias[n]`, in place.
mlir::Value addBias(mlir::OpBuilder &builder, mlir::Location loc,
                    mlir::Value matrix, mlir::Value bias);

/// `SiLU(x)` for one element, f32.
mlir::Value buildSilu(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value x);

/// `SiLU(gate) * up` for one element, f32.
mlir::Value gateTimesUp(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value gate, mlir::Value up);

/// Whether the FFN multiplies by an up-projection.
inline bool usesUpMatrix(DenseFFNOp) { return true; }
inline bool usesUpMatrix(GatedFFNOp) { return false; }
inline bool usesUpMatrix(FusedFFNOp) { return false; }

/// Whether the matrices of the FFN are packed and gate and up have the type of
/// x, as the matrix kernels need.
template <typename FFNOp> bool isPackedFFN(FFNOp op) {
  mlir::Type element = op.getX().getType().getElementType();
  auto isPacked = [&](mlir::Value weight) {
    auto type = llvm::dyn_cast<PackedType>(weight.getType());
    return type && type.getElementType() == element;
  };
  if constexpr (std::is_same_v<FFNOp, DenseFFNOp>)
    if (!isPacked(op.getUp()))
      return false;
  return isPacked(op.getGate()) &&
         llvm::isa<PackedType>(op.getDown().getType());
}

/// The products SiLU(gate) * up of columns `[first, first + width)`. `buffers`
/// are blocks of `[T, width]`: gate (f32), product, and for a dense FFN up
/// (f32); then, where they are kept, gate and for a dense FFN up as they go
/// into the product. Gives their new values in that order.
template <typename FFNOp>
mlir::SmallVector<mlir::Value>
buildGatedBlock(mlir::OpBuilder &builder, mlir::Location loc, FFNOp op,
                mlir::Value first, mlir::OpFoldResult width,
                llvm::ArrayRef<mlir::Value> buffers);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_FFNLOWERING_H
