// RUN: stem-opt %s -split-input-file --stem-interpret='stem-tokens=4' -verify-diagnostics -o /dev/null

// Sizes and labels that only a run knows.

func.func @teacher_rows(%x: tensor<?x2xf32>, %h: tensor<3x2xf32>, %l: tensor<?xi32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the teacher is 3, expected 4}}
  %0:2 = stem.distillation %x, %h, %l from %three, %h : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xi32>, tensor<?x2xf32>, tensor<3x2xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  return
}

// -----

func.func @kl_cotangent(%x: tensor<?x2xf32>, %h: tensor<3x2xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>, %t: tensor<3xf32>) {
  %three = tensor.cast %t : tensor<3xf32> to tensor<?xf32>
  // expected-error @+1 {{length of the cotangent of kl is 3, expected 4}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %x, %h by %c, %three : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xi32>, tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xf32>, tensor<?xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>)
  return
}

// -----

func.func @label(%x: tensor<?x2xf32>, %h: tensor<3x2xf32>) {
  %b = arith.constant dense<[0, 3, 1, 1]> : tensor<4xi32>
  %bad = tensor.cast %b : tensor<4xi32> to tensor<?xi32>
  // expected-error @+1 {{label 3 at token 1 is outside of a vocabulary of 3}}
  %0:2 = stem.distillation %x, %h, %bad from %x, %h : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xi32>, tensor<?x2xf32>, tensor<3x2xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  return
}
