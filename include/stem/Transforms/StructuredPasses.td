//===- StructuredPasses.td - Phase 4 passes ----------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_STRUCTURED_PASSES_TD
#define STEM_TRANSFORMS_STRUCTURED_PASSES_TD

include "mlir/Pass/PassBase.td"

defvar structuredDialects = [
  "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
  "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
  "::mlir::tensor::TensorDialect"];

def StemSplitAttentionPass : Pass<"stem-split-attention", "::mlir::func::FuncOp"> {
  let summary = "Write keys and values first, then attend";
  let description = [{
    Pattern: attention(q, k, v, cache) -> kv_append(k, v, cache); attend(q,
    cache). All tokens of a step must be in the cache before any of them
    attends, so tiling cuts its loops between the two.
    NOTE: attention without a cache is not lowered to the host; the
    interpreter runs it.
  }];
}

def StemTileTokensPass : Pass<"stem-tile-tokens", "::mlir::func::FuncOp"> {
  let summary = "Run tokenwise ops tile by tile";
  let description = [{
    In a function with `stem.tile = N`, N > 1, each maximal run of tokenwise
    ops becomes one `scf.forall` over tiles of N tokens, and the ops inside
    work on tensors with N rows. A run ends where an op needs every tile of an
    earlier one: `stem.attend` after `stem.kv_append`. A result that is
    returned is built in the argument that it replaces (the residual stream)
    or in the argument marked `stem.output`.

    Runs after `stem-split-attention`. The number of tokens is a multiple of N
    at run time; entries check it.
  }];
  let dependentDialects = structuredDialects;
}

def StemTileColumnsPass : Pass<"stem-tile-columns", "::mlir::func::FuncOp"> {
  let summary = "Run matrix products panel by panel";
  let description = [{
    In a function with `stem.tile = 1` (few tokens, as in decoding) the weights
    are what costs: each matrix product becomes an `scf.forall` over blocks of
    64 output columns, attention one over tokens and key-value heads. Other
    ops stay whole.
  }];
  let dependentDialects = structuredDialects;
}

def StemToLinalgPass : Pass<"stem-to-linalg", "::mlir::func::FuncOp"> {
  let summary = "Lower stem ops on tensors to linalg, scf and matrix kernels";
  let description = [{
    Every op of the transformer and STEM groups becomes `linalg.generic` on
    tensors, `stem.packed_matmul` for packed weights (a plain generic for
    others), and loops. The gated FFNs run over blocks of `d_ff`: gate into a
    tile that stays in cache, SiLU times rows in place, down accumulates; the
    product never has more columns than `stem-ffn-block`.
  }];
  let options = [
    Option<"ffnBlock", "stem-ffn-block", "int64_t", /*default=*/"512",
           "Largest number of d_ff columns of one block.">,
    Option<"vocabularyBlock", "stem-vocabulary-block", "int64_t",
           /*default=*/"1024",
           "Largest number of vocabulary columns of one block of a loss.">
  ];
  let dependentDialects = structuredDialects;
}

def StemVerifyStructuredPass : Pass<"stem-verify-structured", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for bufferization";
  let description = [{
    Ends the structured phase: linalg, tensor, scf, arith, math and the
    schedule ops of stem on tensors. Reports every other op, then fails.
  }];
}

#endif // STEM_TRANSFORMS_STRUCTURED_PASSES_TD
