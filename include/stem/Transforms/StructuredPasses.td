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

def StemScratchAttentionPass : Pass<"stem-scratch-attention", "::mlir::ModuleOp"> {
  let summary = "Give attention without a cache one to work in";
  let description = [{
    Attention of the tokens of a step among themselves, as in training, goes
    the same way as attention over a cache: appending to pages packs the
    matrices, and products read pages. Functions with `stem.attention` without
    a cache, and all their callers, take a scratch cache as last argument,
    named `scratch` and marked `stem.scratch_cache`; attention works in its
    layer 0. It makes its `stem.attention_logsumexp` as well, where the two have
    the same operands.

    `stem.attention_vjp` takes a second one, `scratch_queries`, whose heads
    are the query heads, and uses layers 0 and 1 of both: each of its matrices
    is appended as keys and as values, so that every product finds the side
    that it reads packed.

    ```mlir
    func.func private @layer(...) {
      %a = stem.attention %q, %k, %v at %p of %s {head_dim = 64 : i64, scale = 0.125 : f64} : ...
    }
    func.func private @layer_backward(...) {
      %dq, %dk, %dv = stem.attention_vjp %q, %k, %v, %g at %p of %s {...} : ...
    }
    // becomes
    func.func private @layer(..., %scratch: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache}) {
      %a = stem.attention %q, %k, %v at %p of %s cache %scratch[%c0] {head_dim = 64 : i64, scale = 0.125 : f64} : ...
    }
    func.func private @layer_backward(..., %keys: !stem.kv_cache {...}, %queries: !stem.kv_cache {...}) {
      stem.kv_append %k, %k at %p of %s in %keys[%c0] : ...
      stem.kv_append %v, %v at %p of %s in %keys[%c1] : ...
      stem.kv_append %q, %q at %p of %s in %queries[%c0] : ...
      stem.kv_append %g, %g at %p of %s in %queries[%c1] : ...
      %dq, %dk, %dv = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %keys queries %queries {...} : ...
    }
    ```

    Runs first in the structured phase, before `stem-split-attention`.

    NOTE: a sequence's positions start at 0 and have no gaps, and its tiles
    follow each other in order; `stem.attention_vjp` needs a `stem.tile` that
    is a multiple of 64. Before a step the caller empties the caches (a
    position that is not appended must hold zeros) and reserves for each
    sequence as many positions as it has in the step. All attention of an
    entry has the same heads. A function that something other than a call
    refers to is an error.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def StemSplitAttentionPass : Pass<"stem-split-attention", "::mlir::func::FuncOp"> {
  let summary = "Write keys and values first, then attend";
  let description = [{
    Pattern: attention(q, k, v, cache) -> kv_append(k, v, cache); attend(q,
    cache). All tokens of a step must be in the cache before any of them
    attends, so tiling cuts its loops between the two.

    ```mlir
    %a = stem.attention %q, %k, %v at %p of %s cache %c[%l] {head_dim = 64 : i64, scale = 0.125 : f64} : ...
    // becomes
    stem.kv_append %k, %v at %p of %s in %c[%l] : ...
    %a = stem.attend %q at %p of %s cache %c[%l] {head_dim = 64 : i64, kv_heads = 3 : i64, scale = 0.125 : f64} : ...
    ```

    Runs after `stem-scratch-attention`, before both tiling passes.

    NOTE: attention without a cache is an error. Queries, keys and values have
    one type, f32 or bf16.
  }];
}

def StemTileTokensPass : Pass<"stem-tile-tokens", "::mlir::func::FuncOp"> {
  let summary = "Run tokenwise ops tile by tile";
  let description = [{
    In a function with `stem.tile = N`, N > 1, each maximal run of tokenwise
    ops becomes one `scf.forall` over tiles of N tokens, and the ops inside
    work on tensors with N rows. A run ends where an op needs every tile of an
    earlier one: `stem.attend` after `stem.kv_append`, or an op that reads a
    result whole. A `stem.linear_weight_vjp` that reads what the tiles make does
    not end the run: the loop then goes over chunks of 2048 tokens, of each over
    its tiles, and behind them adds the chunk to the gradient, in the order and
    pieces of `stem-to-linalg`. What such sums alone read is there for one
    chunk: as `stem.pack_tokens` panels what is only their `x`, as a matrix what
    is a cotangent. A result that is returned is built in the argument marked
    `stem.output`, or in the argument that it replaces (the residual stream).

    ```mlir
    func.func @layer(%x: tensor<?x576xf32>, %n: tensor<576xf32>) -> tensor<?x576xf32>
        attributes {stem.tile = 64 : i64} {
      %h = stem.rms_norm %x, %n {eps = 1.0e-5 : f64} : ...
      %y = arith.addf %h, %x : tensor<?x576xf32>
      return %y : tensor<?x576xf32>
    }
    // becomes
      %y = scf.forall (%i) in (%tiles) shared_outs(%out = %x) -> (tensor<?x576xf32>) {
        %at = arith.muli %i, %c64 : index
        %tile = tensor.extract_slice %out[%at, 0] [64, 576] [1, 1] : ...
        %h = stem.rms_norm %tile, %n {eps = 1.0e-5 : f64} : ...
        %sum = arith.addf %h, %tile : tensor<64x576xf32>
        scf.forall.in_parallel {
          tensor.parallel_insert_slice %sum into %out[%at, 0] [64, 576] [1, 1] : ...
        }
      }
    ```

    Runs after `stem-split-attention` and before `stem-to-linalg`.

    NOTE: the number of tokens is a multiple of N at run time (entries check
    it), and the same for all token operands of a function. Functions of
    several blocks, dynamic columns, and a static number of tokens that N does
    not divide are errors. Chunks need an N that divides 2048, and sums of f32 or
    bf16 whose sides have one type; others are left to `stem-to-linalg`, with a
    missed remark of the category `stem-tile-tokens`. A chunk has 2048 / N
    tiles: more threads than that wait at its end.
  }];
  let dependentDialects = structuredDialects;
}

def StemTileColumnsPass : Pass<"stem-tile-columns", "::mlir::func::FuncOp"> {
  let summary = "Run matrix products panel by panel";
  let description = [{
    In a function with `stem.tile = 1` (few tokens, as in decoding) the weights
    are what costs: each product with a packed matrix becomes an `scf.forall`
    over blocks of 64 output columns, attention one over tokens and key-value
    heads. Other ops stay whole. A returned result is built in an argument, as
    in `stem-tile-tokens`.

    ```mlir
    %y = stem.linear %x, %w : tensor<?x576xf32>, !stem.packed<576x1536xf32> -> tensor<?x1536xf32>
    // becomes
    %y = scf.forall (%i) in (24) shared_outs(%out = %empty) -> (tensor<?x1536xf32>) {
      %n = arith.muli %i, %c64 : index
      %block = tensor.extract_slice %out[0, %n] [%tokens, 64] [1, 1] : ...
      %product = stem.packed_matmul %x, %w[%c0, %n] into %block : ...
      scf.forall.in_parallel {
        tensor.parallel_insert_slice %product into %out[0, %n] [%tokens, 64] [1, 1] : ...
      }
    }
    ```

    Runs after `stem-split-attention` and before `stem-to-linalg`, which lowers
    products with matrices that are not packed.

    NOTE: dynamic columns are errors.
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
    product never has more columns than `stem-ffn-block`. Where a `stem.linear`
    behind the FFN computes its gate again, and for `stem.dense_ffn` another one
    the up-projection, the loop gives out both: what the backward pass keeps.

    ```mlir
    %y = stem.fused_ffn %x gate %g rows %rows[%index] down %d : (tensor<64x576xf32>, ...
    // becomes
    %y = scf.for %f = %c0 to %c1536 step %c512 iter_args(%acc = %zeros) -> (tensor<64x576xf32>) {
      %gate = stem.packed_matmul %x, %g[%c0, %f] into %empty : ... -> tensor<64x512xf32>
      %block = tensor.extract_slice %rows[0, %f] [%count, 512] [1, 1] : ...
      %product = linalg.generic ... ins(%gate, %index) { SiLU(gate) * block[index] }
      %sum = stem.packed_matmul accumulate %product, %d[%f, %c0] into %acc : ...
      scf.yield %sum : tensor<64x576xf32>
    }
    ```

    In an entry, arguments that are not outputs become read-only for
    bufferization, and a returned value that no op builds in its `stem.output`
    argument is copied there. What a block of an FFN takes is a remark of the
    category `stem-to-linalg`, and so is each product that no matrix kernel
    runs.

    Runs after the tiling passes, before bufferization.

    NOTE: f64, attention on a dynamic number of tokens, and dynamic sizes other
    than those of tokens and gathered rows are errors.
  }];
  let options = [
    Option<"ffnBlock", "stem-ffn-block", "int64_t", /*default=*/"::stem::kDefaultFFNBlock",
           "Largest number of d_ff columns of one block; a multiple of 64.">,
    Option<"vocabularyBlock", "stem-vocabulary-block", "int64_t",
           /*default=*/"::stem::kDefaultVocabularyBlock",
           "Largest number of vocabulary columns of one block of a loss; a "
           "multiple of 64.">
  ];
  let dependentDialects =
      structuredDialects # ["::mlir::bufferization::BufferizationDialect"];
}

def StemVerifyStructuredPass : Pass<"stem-verify-structured", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for bufferization";
  let description = [{
    Ends the structured phase. Reports every offending op, then fails.
    Constraints: T1 ops are those of functions, linalg, tensor and scf, `arith`
    and `math`, and of stem `param`, `table`, `plan_rows`, `prefetch`, `await`,
    `release`, `packed_matmul`, `packed_gather`, `pack_tokens`, `transpose_tokens`, `panel_matmul`,
    `kv_append` and `kv_page`; T2 `arith` and `math` give scalars, or are
    constants. Bodies of linalg ops are not looked into.

    ```mlir
    %y = arith.addf %x, %x : tensor<?x8xf32>
    // error: 'arith.addf' op does not belong at the end of the structured phase
    ```

    Runs after `stem-to-linalg` and `convert-elementwise-to-linalg`.
  }];
}

#endif // STEM_TRANSFORMS_STRUCTURED_PASSES_TD
