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

/// Tokens of one product. Longer ones read and write the sums less often; the
/// panels of that many tokens should stay in the last cache.
constexpr int64_t kSumDepth = 2048;

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

/// Room for the panels of kSumDepth tokens of so many columns.
mlir::Value createPanels(mlir::OpBuilder &builder, mlir::Location loc,
                         int64_t columns, mlir::Type element);

/// The tokens of a tile, `[M, N]`, as rows of panels: `panels` is
/// `[N / 64, 64 M]`, their place in those of a chunk.
mlir::Value packTokens(mlir::OpBuilder &builder, mlir::Location loc,
                       mlir::Value x, mlir::Value panels);

/// The panels of `tokens`, kSumDepth at most, of `x`; each thread makes some.
mlir::Value packPanels(mlir::OpBuilder &builder, mlir::Location loc,
                       mlir::Value x, SliceRange tokens);

/// The part of addOuterProducts of one chunk: its x as panels, its dy the rows
/// `tokens`.
mlir::Value addPanelProducts(mlir::OpBuilder &builder, mlir::Location loc,
                             mlir::Value panels, mlir::Value dy,
                             SliceRange tokens, mlir::Value acc,
                             mlir::Value accumulate);

/// `acc[index[t]] += x[t]` over all tokens, in their order. `acc` is `[R, F]`,
/// f32, `x` `[T, G F]`: its groups of F columns are added one after the other.
/// A null `index` is 0. Rows of `skipped` are left out.
mlir::Value addRows(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x,
                    mlir::Value index, mlir::Value acc, bool startsFromZero,
                    std::optional<uint64_t> skipped = std::nullopt);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_TOKENSUMS_H
