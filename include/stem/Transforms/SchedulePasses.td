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
    `stem.select_up`) stays, with a remark.
  }];
}

def StemSpecializePass : Pass<"stem-specialize", "::mlir::ModuleOp"> {
  let summary = "Give every entry its own copy of the functions it calls";
  let description = [{
    Entries differ in `stem.tile`, the number of tokens that are executed
    together. A function without that attribute is cloned once for each tile
    size of its callers and gets it; the clones are named after it
    (`@layer` becomes `@layer_tile64`, `@layer_tile1`). Runs before tiling.
  }];
}

def StemPackWeightsPass : Pass<"stem-pack-weights", "::mlir::ModuleOp"> {
  let summary = "Read matrices in the layout of the matrix kernels";
  let description = [{
    The value of a `stem.param` that is used only as the weight of matrix
    products becomes `!stem.packed`, through calls too; the loader packs it
    once. A tied embedding reads the packed form as well; a matrix that is also
    read otherwise is loaded in both forms. Matrices that are not parameters stay as they are.

    Runs after `stem-fuse-ffn` and `stem-specialize`, before `stem-bind-params`.
    NOTE: only f32 and bf16 matrices can be packed.
  }];
}

def StemBindParamsPass : Pass<"stem-bind-params", "::mlir::ModuleOp"> {
  let summary = "Turn parameter and table loads into arguments of entries";
  let description = [{
    In each entry, `stem.param_load @p` becomes an argument with the attribute
    `stem.param = @p`, `stem.table_load @t` one with `stem.table = @t`; the
    runtime binds them by the symbol's key. Loads outside entries are errors.
  }];
}

def StemVerifySchedulePass : Pass<"stem-verify-schedule", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for the structured phase";
  let description = [{
    Ends the schedule phase: every function has `stem.tile`, no parameter is
    loaded inside a function, lookups are fused or explicit. Reports every
    offending op, then fails.
  }];
}

#endif // STEM_TRANSFORMS_SCHEDULE_PASSES_TD
