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

def StemInsertPrefetchPass : Pass<"stem-insert-prefetch", "::mlir::ModuleOp"> {
  let summary = "Ask for the rows of a step before they are needed";
  let description = [{
    Replaces each `stem.table_rows` of an entry by `stem.prefetch`, an
    `stem.await` in front of the first op that reads the rows, and a
    `stem.release` behind the last one. Lookups count in the order in which they
    are first read. With a distance of `N` the rows of the first `N` tables are
    asked for where the entry's first lookup stands, and those of any other one
    where the table `N` before it is awaited; so rows of `N + 1` tables at most
    are held where each is done with before the next is read. Lookups by the
    same ids share a `stem.plan_rows`.

    `auto` is as far ahead as `stem-staging` bytes hold the rows of
    `stem-tokens` different ids, without that option all at the start. It is
    never slower than a shorter distance: the same reads begin earlier, in the
    same order, and only memory is spent. Analysis remarks of the category
    `stem-insert-prefetch` say what was chosen for an entry and what it takes, a
    missed one that staging was too small for all at the start.

    ```mlir
    // stem-insert-prefetch{stem-distance=1}
    %r0, %i0 = stem.table_rows %t0, %ids : ...
    %r1, %i1 = stem.table_rows %t1, %ids : ...
    %1 = call @layer(%x, %r0, %i0)
    %2 = call @layer(%1, %r1, %i1)
    // becomes
    %plan = stem.plan_rows %ids : tensor<?xi32>
    %k0 = stem.prefetch %t0, %plan : ...
    %k1 = stem.prefetch %t1, %plan : ...
    %r0, %i0 = stem.await %k0 : ...
    %1 = call @layer(%x, %r0, %i0)
    stem.release %k0 : ...
    %r1, %i1 = stem.await %k1 : ...
    %2 = call @layer(%1, %r1, %i1)
    stem.release %k1 : ...
    ```

    Runs after `stem-fuse-ffn`, which changes who reads rows, and after
    `stem-bind-params`: tables are arguments, which are there from the start.
    Lookups whose rows nothing reads are removed.

    NOTE: lookups outside of an entry's top level are errors, and so are rows
    that an entry returns. Less staging than the distance takes is refused.
  }];
  let options = [
    Option<"distance", "stem-distance", "std::string", /*default=*/"\"auto\"",
           "How many tables ahead rows are asked for, or auto.">,
    Option<"staging", "stem-staging", "int64_t", /*default=*/"0",
           "Bytes that rows may take from being asked for to being given back; "
           "0: any.">,
    Option<"tokens", "stem-tokens", "int64_t", /*default=*/"1",
           "Different ids of a step, for the staging.">
  ];
}

def StemVerifyTablesPass : Pass<"stem-verify-tables", "::mlir::ModuleOp"> {
  let summary = "Check that every ticket is awaited and released";
  let description = [{
    Proves that no step reads rows before they are there or after they were
    given back, and that it gives all of them back. Reports every offending op,
    then fails. Constraints: V1 no `stem.table_rows` is left; V2 `stem.plan_rows`,
    `stem.prefetch`, `stem.await` and `stem.release` stand at the top level of
    an entry of one block, so that every path takes all of them; V3 tables and
    plans go to `stem.prefetch` alone, tickets to `stem.await` and
    `stem.release`, and plans and tickets come from the entry's own ops; V4
    every ticket is awaited; V5 it is released, once; V6 behind that neither it
    is awaited nor its rows or index are read, through views of their memory and
    functions that return them either.

    ```mlir
    %r, %i = stem.await %k : ...
    stem.release %k : ...
    %y = call @layer(%x, %r, %i) : ...
    // error: 'func.call' op may read rows, or their index, that were given back
    ```

    Runs at the end of the schedule phase, and on buffers at the end of their
    phase. NOTE: on tensors the result of an op of another dialect counts as a
    view of its operands, but for that of an `scf.forall`.
  }];
}

def StemVerifySchedulePass : Pass<"stem-verify-schedule", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for the structured phase";
  let description = [{
    Ends the schedule phase. Reports every offending op, then fails.
    Constraints: S1 functions hold what the graph phase allows and
    `stem.fused_ffn`, but load no parameter or table and look none up without a
    ticket; S2 every function has
    `stem.tile` and a body.

    The host compiles entries: a module for it has at least one function with
    `stem.entry` and `stem.tile`; an entry's arguments with dynamic rows have
    `stem.rows`, and the one that takes a result is marked `stem.output`.
  }];
}

#endif // STEM_TRANSFORMS_SCHEDULE_PASSES_TD
