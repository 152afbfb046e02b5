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
    of `F`, then a cotangent for each of its results that may depend on a
    weight or an argument, and returns the results of `F`, then the gradients:

    - of each floating-point tensor argument, `stem.gradient_of_argument`; of
      one that `stem.lookup` reads it is a `!stem.row_gradient`;
    - of each `stem.param` that `F` loads, dense, in the order of the symbols,
      `stem.gradient_of`;
    - of each `stem.table` that `F` reads: the ids that occur, each once and
      rising (`stem.gradient_ids_of`), and one row for each
      (`stem.gradient_of`). No matrix of the table's size is made.

    The attributes are those of the results; cotangents and gradients are f32,
    of f64 values alone f64. What is loaded from a symbol with `stem.frozen` is
    a constant. What no result depends on has no gradient, and so has an
    argument that ops take as data alone (the angles of `stem.rope`).

    A function that `F` calls, such as that of a layer, is derived once,
    whoever calls it, as two: `G_forward` returns the results of `G` and what
    its derivative needs of it (residuals); `G_backward` takes the arguments
    that the derivative needs, the residuals, and cotangents. Such a function
    loads no weight itself: it gets them as arguments.

    Rules are the ops' own (VjpOpInterface). An op that a derivative flows
    through and that has none is an error, whatever it is: a call of a function
    without a body, of several blocks or that calls itself, an op with regions,
    a read of memory. Where nothing flows through, anything may stand.

    ```mlir
    func.func @loss(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %w = stem.param_load @w : tensor<4x4xf32>
      %y = stem.linear %x, %w : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
      return %y : tensor<?x4xf32>
    }
    // adds
    func.func @loss_vjp(%x: tensor<?x4xf32>, %dy: tensor<?x4xf32>)
        -> (tensor<?x4xf32>, tensor<?x4xf32> {stem.gradient_of_argument = 0 : i64},
            tensor<4x4xf32> {stem.gradient_of = @w})
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
