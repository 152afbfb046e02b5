//===- TokenSums.h - Sums over the tokens of a step -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_TOKENSUMS_H
#define STEM_LIB_TRANSFORMS_TOKENSUMS_H

#include "TilingUtils.h"

namespace stem {

/// The argument that `result` is returned in, or a new tensor of `sizes`.
mlir::Value destinationOf(mlir::OpBuilder &builder, mlir::Value result,
                          llvm::ArrayRef<mlir::OpFoldResult> sizes);

/// `acc (+)= dy^T x` over all tokens: `x` is `[T, K]`, `dy` `[T, N]` of one
/// type, f32 or bf16, `acc` `[N, K]`, f32. The old `acc` counts where the i1
/// `accumulate` is true. In chunks of tokens, so that each sum is in one order
/// whatever the threads.
mlir::Value addOuterProducts(mlir::OpBuilder &builder, mlir::Location loc,
                             mlir::Value x, mlir::Value dy, mlir::Value acc,
                             mlir::Value accumulate);

/// `acc[index[t]] += x[t]` over all tokens, in their order. `acc` is `[R, F]`,
/// f32, `x` `[T, G F]`: its groups of F columns are added one after the other.
/// A null `index` is 0. Rows of `skipped` are left out.
mlir::Value addRows(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x,
                    mlir::Value index, mlir::Value acc, bool startsFromZero,
                    std::optional<uint64_t> skipped = std::nullopt);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_TOKENSUMS_H
