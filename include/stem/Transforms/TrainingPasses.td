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

    Rules are the ops' own (VjpOpInterface). What a rule wants kept of the
    forward op, such as the gate of an FFN, it puts beside it as ops. An op that a derivative flows
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

def StemRecomputePass : Pass<"stem-recompute", "::mlir::ModuleOp"> {
  let summary = "Choose what is kept for the backward pass";
  let description = [{
    What a layer's forward function returns for its backward function alone
    lives from one to the other, in every layer at once. A value that costs
    little to compute again (rows looked up, a norm: token by token, and no more
    than 16 FLOPs for each of its bytes) is: its ops move into the backward function, which gets the
    arguments that they read. With `stem-budget` further values are, the one
    with the fewest FLOPs for a byte first, until what is kept of `stem-tokens`
    tokens fits, or nothing is left that can be. A remark of the category
    `stem-recompute` tells bytes and FLOPs; a budget that cannot be met is a
    warning.

    ```mlir
    %y:2 = call @layer_forward(%x, %rows, %index)    // the result, the rows
    %dx = call @layer_backward(%y#1, %dy)
    // becomes
    %y = call @layer_forward(%x, %rows, %index)
    %dx = call @layer_backward(%dy, %rows, %index)   // looks up again
    ```

    Runs after `stem-autodiff`. NOTE: calls, reads of memory and what depends on
    them are kept.
  }];
  let options = [
    Option<"budget", "stem-budget", "int64_t", /*default=*/"0",
           "Bytes that residuals may take; 0: as many as are not cheap.">,
    Option<"tokens", "stem-tokens", "int64_t", /*default=*/"1",
           "Tokens of a step, for bytes and FLOPs.">
  ];
}

def StemDecomposeGradientsPass
    : Pass<"stem-decompose-gradients", "::mlir::func::FuncOp"> {
  let summary = "Take VJPs apart: what works on tiles, and sums over tokens";
  let description = [{
    The VJPs of FFNs and norms do two things: they compute cotangents of tokens,
    each from its own token, and add up a weight's over all tokens. Apart, the
    first part of several ops is one loop over token tiles.

    Patterns: rms_norm_vjp -> rms_norm_input_vjp and sum_tokens; dense_ffn_vjp,
    gated_ffn_vjp (of which the gate is not kept) -> gate_vjp between products,
    and linear_weight_vjp;
    embedding_vjp -> sum_rows, onto what it is added to where that is a matrix;
    cross_entropy and its VJP -> cross_entropy_step. The cotangent that a
    linear_weight_vjp multiplies is rounded to the type of `x`.

    ```mlir
    %dx, %dw = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : ...
    // becomes
    %dx = stem.rms_norm_input_vjp %x, %w, %c {eps = 1.0e-5 : f64} : ...
    %n = stem.rms_norm %x, %ones {eps = 1.0e-5 : f64} : ...
    %t = arith.mulf %n, %c : tensor<?x64xf32>
    %dw = stem.sum_tokens %t : tensor<?x64xf32> -> tensor<64xf32>
    ```

    Runs after `stem-autodiff`, in the graph phase.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def StemUnpairRowGradientsPass
    : Pass<"stem-unpair-row-gradients", "::mlir::ModuleOp"> {
  let summary = "Give the rows of tables' gradients a matrix and an order";
  let description = [{
    A `!stem.row_gradient` pairs rows with their numbers. In a compiled step the
    numbers are known before it starts: the caller sorts the ids of a batch, and
    the entry's new argument `row_index` (`stem.output_index`) says which of
    them each token has. Functions return the rows alone, and
    `stem.table_gradient` becomes `stem.sum_rows` by that index: a row for each
    id of the batch. The ids are no result any more.

    ```mlir
    %ids, %rows = stem.table_gradient %pairs index %i ids %t : ...
    return ..., %ids, %rows
    // becomes, with the argument %row_index
    %rows = stem.sum_rows %c by %row_index : ...
    return ..., %rows
    ```

    Runs after `stem-autodiff`. NOTE: a table that is looked up twice is an
    error.
  }];
}

def StemTransposeWeightsPass
    : Pass<"stem-transpose-weights", "::mlir::ModuleOp"> {
  let summary = "Load weights transposed where products run backwards";
  let description = [{
    `stem.linear_input_vjp` multiplies by a weight in the other direction than
    `stem.linear`. The kernels read the right-hand side in panels, so each
    direction needs a packed form of its own: the weight is loaded a second
    time, `transposed`, in the entry, and passed through the functions that the
    first goes through. Arguments that nothing reads any more are removed.

    ```mlir
    %w = stem.param_load @w : tensor<64x32xbf16>
    %dx = stem.linear_input_vjp %c, %w : ...
    // becomes
    %w = stem.param_load transposed @w : tensor<32x64xbf16>
    %dx = stem.linear %c, %w : ...
    ```

    Runs after `stem-decompose-gradients` and before `stem-pack-weights`. NOTE:
    a weight that is no parameter stays, and is multiplied by plain loops; a
    missed remark of the category `stem-transpose-weights` says why.
  }];
}

def StemInsertOptimizerPass
    : Pass<"stem-insert-optimizer", "::mlir::ModuleOp"> {
  let summary = "Update dense parameters in the step, where their gradients are";
  let description = [{
    Where the function `stem-function` returns the gradient of a `stem.param`
    (`stem.gradient_of`), puts a `stem.adamw` behind the op that makes it. The
    weight in f32 and its moments are arguments that are updated in place
    (`stem.state_of`), in this order for each parameter; the gradient is no
    result any more, and its buffer is free for those of the next layer. What
    changes with a step comes as `optimizer_step`, see `stem.adamw`; tensors of
    two dimensions decay, others do not.

    An update waits for the sum of squares of its gradient: once a sum is NaN
    or infinite that weight and all later ones stay as they are. The step gives
    the norm of each gradient in f32, `gradient_norms`, dense ones first and
    then tables, each in the order of the results.

    ```mlir
    func.func @loss_vjp(...) -> (tensor<?xf32>, tensor<4x8xf32> {stem.gradient_of = @w})
    %dw = stem.linear_weight_vjp ...
    return %nll, %dw
    // becomes, with the arguments %step, %w, %m, %v, %out
    %dw = stem.linear_weight_vjp ...
    %sum = stem.sum_squares %dw into %zero[0] : tensor<4x8xf32>, tensor<1xf64>
    %own = tensor.extract %sum[%c0] : tensor<1xf64>
    %total = arith.addf %before, %own : f64
    %all = tensor.from_elements %total : tensor<1xf64>
    %scale = stem.gradient_scale %all : tensor<1xf64>
    %w1, %m1, %v1 = stem.adamw %dw into %w, %m, %v step %step scale %scale {...} : ...
    return %nll, %w1, %m1, %v1, %norms
    ```

    The rows of tables stay results: their optimizers bring a row up to date
    before a step reads it and know the step that it was last in, so they need
    the ids of a batch before the step begins. What is frozen has no gradient and stays as it
    is. The executed weight, packed or rounded, is the caller's to make anew:
    panels of both directions are another program than a parameter's elements.

    Runs after `stem-transpose-weights` and before `stem-results-to-arguments`.
    NOTE: a function without gradients of parameters stays as it is. Nothing is
    scaled to a global norm: that needs all gradients before the first update,
    and so the memory of all of them.
  }];
  let options = [
    Option<"function", "stem-function", "std::string",
           /*default=*/"\"loss_vjp\"",
           "The function that gives gradients.">,
    Option<"beta1", "stem-beta1", "double", /*default=*/"::stem::kDefaultBeta1",
           "How much of the first moment stays.">,
    Option<"beta2", "stem-beta2", "double", /*default=*/"::stem::kDefaultBeta2",
           "How much of the second moment stays.">,
    Option<"epsilon", "stem-epsilon", "double", /*default=*/"::stem::kDefaultEpsilon",
           "What is added to the root of the second moment.">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::tensor::TensorDialect"
  ];
}
