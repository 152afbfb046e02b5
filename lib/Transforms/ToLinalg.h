//===- ToLinalg.h - Patterns of stem-to-linalg, by family -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_TOLINALG_H
#define STEM_LIB_TRANSFORMS_TOLINALG_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"

namespace stem {

struct ToLinalgOptions {
  int64_t ffnBlock;
  int64_t vocabularyBlock;
};

/// The widest block of at most `limit` columns that is a multiple of one panel
/// and divides `columns`; all columns when there is none.
int64_t chooseBlock(int64_t columns, int64_t limit);

/// rms_norm, rotary_angles, rope, embedding, lookup, map_ids.
void populateElementwisePatterns(mlir::RewritePatternSet &patterns);
/// linear, cross_entropy, mix, select_up.
void populateMatrixPatterns(mlir::RewritePatternSet &patterns,
                            const ToLinalgOptions &options);
/// dense_ffn, gated_ffn, fused_ffn.
void populateFFNPatterns(mlir::RewritePatternSet &patterns,
                         const ToLinalgOptions &options);
/// FFNs whose gate, and up-projection of a dense one, a linear op of the same
/// operands gives as well: as one, before the patterns. Blocks as theirs.
void lowerKeptGates(mlir::func::FuncOp function, int64_t limit);
/// silu_vjp, gate_vjp, rms_norm_input_vjp, keep_selected.
void populateGradientPatterns(mlir::RewritePatternSet &patterns);
/// What adds up over tokens: linear_weight_vjp, sum_tokens, sum_rows,
/// cross_entropy_step; linear_input_vjp of a weight that is no parameter.
void populateStepPatterns(mlir::RewritePatternSet &patterns);
/// Says why such an op has no lowering; succeeds for every other one.
mlir::LogicalResult verifyStepOp(mlir::Operation *op);
/// sum_squares, gradient_scale, adamw.
void populateOptimizerPatterns(mlir::RewritePatternSet &patterns);
/// attend on a tile of one sequence.
void populateAttentionPatterns(mlir::RewritePatternSet &patterns);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_TOLINALG_H
