//===- TrainingPasses.td - Phase 2 passes ------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def StemAutodiffPass : Pass<"stem-autodiff", "::mlir::ModuleOp"> {
  let summary = "Derive the gradient of a function by reverse mode";
  let description = [{
    From function `F` (`stem-function`) makes `F_vjp`. It takes the arguments
    of `F`, then a cotangent for each of its results that depends on a weight,
    and returns the results of `F`, then the gradients:

    - of each floating-point tensor argument, where there are such;
    - of each `stem.param` that `F` loads, dense, in the order of the symbols;
    - of each `stem.table` that `F` reads: the ids that occur, each once and
      rising, and one row for each. No matrix of the table's size is made.

    Result attributes name the symbol (`stem.gradient_of`,
    `stem.gradient_ids_of`). What is loaded from a symbol with `stem.frozen` is
    a constant; a symbol that the results do not depend on has no gradient.

    A function that `F` calls, such as that of a layer, is derived once,
    whoever calls it, as two: `G_forward` returns the results of `G` and what
    its derivative needs of it (residuals); `G_backward` takes those, the
    arguments that the derivative needs, and cotangents. Rules are the ops' own
    (VjpOpInterface); an op that a derivative flows through and that has none is
    an error.

    ```mlir
    func.func @loss(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %w = stem.param_load @w : tensor<4x4xf32>
      %y = stem.linear %x, %w : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
      return %y : tensor<?x4xf32>
    }
    // adds
    func.func @loss_vjp(%x: tensor<?x4xf32>, %dy: tensor<?x4xf32>)
        -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<4x4xf32> {stem.gradient_of = @w})
    ```

    Runs in the graph phase, before anything is fused, packed or tiled.
  }];
  let options = [
    Option<"function", "stem-function", "std::string", /*default=*/"\"loss\"",
           "The function to derive.">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::tensor::TensorDialect"
  ];
}
