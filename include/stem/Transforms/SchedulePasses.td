//===- SchedulePasses.td - Phase 3 passes ------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_SCHEDULE_PASSES_TD
#define STEM_TRANSFORMS_SCHEDULE_PASSES_TD

include "mlir/Pass/PassBase.td"

def StemFuseFFNPass : Pass<"stem-fuse-ffn", "::mlir::func::FuncOp"> {
  let summary = "Put the lookup inside the STEM FFN";
  let description = [{
    Pattern: gated_ffn(x, gate, lookup(rows, index), down) ->
    fused_ffn(x, gate, rows[index], down), when the lookup has no other use and
    does not narrow the rows. Neither the gathered rows nor their product with
    the gate is written to memory afterwards.

    ```mlir
    %u = stem.lookup %rows, %index : tensor<?x64xbf16>, tensor<?xi32> -> tensor<?x64xbf16>
    %y = stem.gated_ffn %x gate %g rows %u down %d : ...
    // becomes
    %y = stem.fused_ffn %x gate %g rows %rows[%index] down %d : ...
    ```

    A `stem.gated_ffn` whose rows come from elsewhere (`stem.mix`,
    `stem.select_up`), from a lookup with other uses or one that rounds, stays,
    with a remark of the category `stem-fuse-ffn`.

    Runs before `stem-pack-weights`: the FFN says what reads its matrices.
  }];
}

def StemResultsToArgumentsPass
    : Pass<"stem-results-to-arguments", "::mlir::ModuleOp"> {
  let summary = "Give functions with several results arguments to build them in";
  let description = [{
    After bufferization a function returns nothing: what it gives is built in
    arguments. A layer of inference has one result, which takes the place of
    the residual stream, the argument that it adds to. Every other function gets
    an argument with `stem.output` for each result that has none, and its callers pass a new
    tensor, or the argument of theirs that the result is returned in. In an
    entry the argument of a gradient has its result's `stem.gradient_of`, and
    dynamic rows count `outputs`.

    ```mlir
    func.func private @f(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<4xf32>)
    %0:2 = call @f(%x)
    // becomes
    func.func private @f(%x: tensor<?x4xf32>, %y: tensor<?x4xf32> {stem.output},
                         %z: tensor<4xf32> {stem.output}) -> ...
    %y = tensor.empty(%tokens) : tensor<?x4xf32>
    %z = tensor.empty() : tensor<4xf32>
    %0:2 = call @f(%x, %y, %z)
    ```

    Runs in the schedule phase, after `stem-specialize`. NOTE: a result has no
    dynamic size but its tokens, which an operand of the call tells.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def StemSpecializePass : Pass<"stem-specialize", "::mlir::ModuleOp"> {
  let summary = "Give every entry its own copy of the functions it calls";
  let description = [{
    Entries differ in `stem.tile`, the number of tokens that are executed
    together. A function without that attribute is cloned once for each tile
    size of its callers and gets it; private functions that nothing calls any
    more are removed.

    ```mlir
    func.func private @layer(...)
    func.func @prefill(...) attributes {stem.entry, stem.tile = 64 : i64} { call @layer }
    func.func @decode(...) attributes {stem.entry, stem.tile = 1 : i64} { call @layer }
    // becomes
    func.func private @layer_tile64(...) attributes {stem.tile = 64 : i64}
    func.func private @layer_tile1(...) attributes {stem.tile = 1 : i64}
    func.func @prefill(...) attributes {stem.entry, stem.tile = 64 : i64} { call @layer_tile64 }
    func.func @decode(...) attributes {stem.entry, stem.tile = 1 : i64} { call @layer_tile1 }
    ```

    Runs first in the schedule phase: a matrix may be read differently in two
    clones.

    NOTE: an entry without a tile size is an error, and so is a call of a
    function whose own tile size does not divide the caller's.
  }];
}

def StemPackWeightsPass : Pass<"stem-pack-weights", "::mlir::ModuleOp"> {
  let summary = "Read matrices in the layout of the matrix kernels";
  let description = [{
    The value of a `stem.param` that is used only as the weight of matrix
    products becomes `!stem.packed`, through calls too; the loader packs it
    once. A tied embedding reads the packed form as well; a matrix that is also
    read otherwise is loaded in both forms. Matrices that are not parameters
    stay as they are. A missed remark of the category `stem-pack-weights` says
    why a product reads a plain matrix, and which are held twice.

    ```mlir
    %w = stem.param_load @w : tensor<1536x576xbf16>
    %y = stem.linear %x, %w : tensor<?x576xbf16>, tensor<1536x576xbf16> -> tensor<?x1536xf32>
    // becomes
    %w = stem.param_load @w : !stem.packed<576x1536xbf16>
    %y = stem.linear %x, %w : tensor<?x576xbf16>, !stem.packed<576x1536xbf16> -> tensor<?x1536xf32>
    ```

    Runs after `stem-fuse-ffn` and `stem-specialize`, before `stem-bind-params`.
    NOTE: only f32 and bf16 matrices can be packed.
  }];
}

def StemBindParamsPass : Pass<"stem-bind-params", "::mlir::ModuleOp"> {
  let summary = "Turn parameter and table loads into arguments of entries";
  let description = [{
    In each entry, `stem.param_load @p` becomes an argument with the attribute
    `stem.param = @p`, `stem.table_load @t` one with `stem.table = @t`; the
    runtime binds them by the symbol's key. Entries become private: the
    module's description names them, nothing links against them.

    ```mlir
    func.func @decode(%x: tensor<?x576xf32>) attributes {stem.entry} {
      %w = stem.param_load @w : tensor<576xf32>
      ...
    // becomes
    func.func private @decode(%x: tensor<?x576xf32>, %w: tensor<576xf32> {stem.param = @w})
        attributes {stem.entry} {
      ...
    ```

    Runs after `stem-pack-weights`, which decides the types of loads.

    NOTE: loads outside entries are errors, and so are calls of entries.
  }];
}

def StemVerifySchedulePass : Pass<"stem-verify-schedule", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for the structured phase";
  let description = [{
    Ends the schedule phase. Reports every offending op, then fails.
    Constraints: S1 functions hold what the graph phase allows and
    `stem.fused_ffn`, but load no parameter or table; S2 every function has
    `stem.tile` and a body.

    The host compiles entries: a module for it has at least one function with
    `stem.entry` and `stem.tile`; an entry's arguments with dynamic rows have
    `stem.rows`, and the one that takes a result is marked `stem.output`.
  }];
}

#endif // STEM_TRANSFORMS_SCHEDULE_PASSES_TD
