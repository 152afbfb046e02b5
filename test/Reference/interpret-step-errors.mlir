// RUN: stem-opt %s -split-input-file --stem-interpret='stem-tokens=4' -verify-diagnostics -o /dev/null

// Sizes that the IR does not know, and numbers that are no rows: %three has
// three rows where the others have four.

func.func @norm(%x: tensor<?x2xf32>, %w: tensor<2xf32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0 = stem.rms_norm_input_vjp %x, %w, %three {eps = 1.0 : f64} : (tensor<?x2xf32>, tensor<2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @gate(%x: tensor<?x2xf32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0:3 = stem.gate_vjp %x, %x, %three : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

func.func @rows(%x: tensor<?x2xf32>) {
  %i = arith.constant dense<[0, 1, 2]> : tensor<3xi32>
  %three = tensor.cast %i : tensor<3xi32> to tensor<?xi32>
  // expected-error @+1 {{rows of x is 4, expected 3}}
  %0 = stem.sum_rows %x by %three : (tensor<?xi32>, tensor<?x2xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @row(%x: tensor<3x2xf32>) {
  %i = arith.constant dense<[0, 3, 2]> : tensor<3xi32>
  // expected-error @+1 {{id 3 at token 1 is outside of a matrix of 3 rows}}
  %0 = stem.sum_rows %x by %i : (tensor<3xi32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @negative_row(%x: tensor<3x2xf32>) {
  %i = arith.constant dense<[0, -1, 2]> : tensor<3xi32>
  // expected-error @+1 {{id -1 at token 1 is outside of a matrix of 3 rows}}
  %0 = stem.sum_rows %x by %i : (tensor<3xi32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @label(%x: tensor<2x2xf32>, %h: tensor<3x2xf32>, %c: tensor<2xf32>) {
  %l = arith.constant dense<[0, 3]> : tensor<2xi32>
  // expected-error @+1 {{label 3 at token 1 is outside of a vocabulary of 3}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<2x2xf32>, tensor<3x2xf32>, tensor<2xi32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2x2xf32>, tensor<3x2xf32>)
  return
}
