// RUN: stem-opt %s --stem-differential='stem-function=ffn stem-pipeline=canonicalize,func.func(cse),symbol-dce stem-tokens=5' 2>&1 | FileCheck %s --check-prefix=AGREE
// RUN: not stem-opt %s --stem-differential='stem-pipeline=cse,transform-interpreter,canonicalize' -o /dev/null 2>&1 | FileCheck %s --check-prefix=CHANGE
// RUN: stem-opt %s --stem-differential='stem-function=gone stem-pipeline=cse,symbol-dce,symbol-privatize,symbol-dce' -o /dev/null 2>&1 | FileCheck %s --check-prefix=GONE
// RUN: not stem-opt %s --stem-differential='stem-pipeline=builtin.module(no-such-pass)' -o /dev/null 2>&1 | FileCheck %s --check-prefix=SYNTAX
// RUN: not stem-opt %s --stem-differential='stem-pipeline=builtin.module(cse' -o /dev/null 2>&1 | FileCheck %s --check-prefix=PARENTHESIS
// RUN: not stem-opt %s --stem-differential -o /dev/null 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not stem-opt %s --stem-differential='stem-function=g stem-pipeline=cse' -o /dev/null 2>&1 | FileCheck %s --check-prefix=FUNCTION
// RUN: not stem-opt %s --stem-differential='stem-function=nothing stem-pipeline=cse' -o /dev/null 2>&1 | FileCheck %s --check-prefix=RESULTS

// AGREE: remark: 3 comparisons agree, largest difference 0
// CHANGE: error: 'transform-interpreter' changes the numbers of @half: result 0, element 0: 0.5 before, 2 after
// CHANGE-NOT: changes the numbers
// GONE: remark: not compared after 'symbol-dce': @gone: the function is gone
// SYNTAX: error: stem-pipeline is not a pipeline of passes: {{.*}}'no-such-pass' does not refer to a registered pass
// PARENTHESIS: error: stem-pipeline is not a pipeline of passes: missing ')'
// EMPTY: error: stem-pipeline is not a pipeline of passes: it is empty
// FUNCTION: error: there is no function 'g'
// RESULTS: error: no public function returns anything to compare

// The module comes out as it went in.
// AGREE-LABEL: func.func @ffn
// AGREE: stem.lookup
// AGREE: stem.gated_ffn
module attributes {transform.with_named_sequence} {
  func.func @ffn(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %rows: tensor<?x3xf32>, %i: tensor<?xi32>, %d: tensor<2x3xf32>) -> tensor<?x2xf32> {
    %up = stem.lookup %rows, %i : tensor<?x3xf32>, tensor<?xi32> -> tensor<?x3xf32>
    %0 = stem.gated_ffn %x gate %g rows %up down %d : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>) -> tensor<?x2xf32>
    return %0 : tensor<?x2xf32>
  }

  func.func @half() -> tensor<1xf32> {
    %half = arith.constant 0.5 : f32
    %0 = tensor.from_elements %half : tensor<1xf32>
    return %0 : tensor<1xf32>
  }

  func.func @gone() -> f32 {
    %0 = arith.constant 1.0 : f32
    return %0 : f32
  }

  func.func @nothing() {
    return
  }

  // A pass that is wrong: it makes every constant two.
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %constants = transform.structured.match ops{["arith.constant"]} in %root : (!transform.any_op) -> !transform.any_op
    %two = transform.param.constant 2.0 : f32 -> !transform.any_param
    transform.annotate %constants "value" = %two : !transform.any_op, !transform.any_param
    transform.yield
  }
}
