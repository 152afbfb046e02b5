//===- GraphPasses.td - Phase 1 passes ---------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def StemVerifyGraphPass : Pass<"stem-verify-graph", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for the schedule phase";
  let description = [{
    Ends the graph phase. Reports every offending op, then fails.
    Constraints: G1 functions hold `stem` ops that no later phase makes,
    `arith` and `math`, `tensor.extract` and `from_elements`, and what exporters
    leave around them: `tensor.cast`, `collapse_shape`, `dim`, `empty` and
    `expand_shape`, and linalg ops on tensors whose loops are all parallel; G2 nothing calls an entry
    (`stem.entry`); G3 no function calls itself, directly or through others.
  }];
}

def StemDenseToLookupPass : Pass<"stem-dense-to-lookup", "::mlir::ModuleOp"> {
  let summary = "Replace up-projections by tables";
  let description = [{
    In the chosen layers the up-projection of `stem.dense_ffn` becomes a table
    of rows by token id: the layer's function gets a variant that takes rows
    and index in place of the weight (and bias), entries read them with
    `stem.table_rows` on their ids, and a `stem.table` symbol takes the place
    of the parameter. Its attributes say how its rows start: `stem.init` is
    `stem-init`, `stem.from` the key of the matrix that it replaces.

    ```mlir
    stem.param @"model.layers.2.mlp.up_proj.weight" = ... : tensor<1536x576xbf16>
    %up = stem.param_load @"model.layers.2.mlp.up_proj.weight" : tensor<1536x576xbf16>
    %y = call @layer_dense(%x, ..., %c2, ..., %gate, %up, %down)
    // becomes
    stem.table @"model.layers.2.mlp.up_table.weight" = ... {stem.from = ..., stem.init = "embedding"}
    %t = stem.table_load @"model.layers.2.mlp.up_table.weight" : !stem.table<49152x1536xbf16>
    %rows, %index = stem.table_rows %t, %ids : ...
    %y = call @layer_dense_stem(%x, ..., %c2, ..., %gate, %down, %rows, %index)
    ```

    A layer is a call, in an entry, of a function with one `stem.dense_ffn`;
    its number is the call's operand that the function's attention uses as its
    layer. The rows of a table are as many as the entry's ids have values
    (`stem.id_bound`). Parameters that nothing loads afterwards are removed.

    Runs in the graph phase, in no pipeline: whoever wants tables asks for it
    before `stem-graph-pipeline`. NOTE: a layer that is chosen and cannot be
    converted is an error; layers that have a table already are left alone.
  }];
  let options = [
    Option<"layers", "stem-layers", "std::string", /*default=*/"\"1/3\"",
           "1/3, 1/2, all (but the first), or numbers separated by commas.">,
    Option<"init", "stem-init", "std::string", /*default=*/"\"embedding\"",
           "How rows start: calibrated, embedding, row-mean or xavier.">
  ];
}
