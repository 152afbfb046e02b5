// RUN: stem-opt %s -split-input-file --stem-insert-optimizer -verify-diagnostics
// RUN: not stem-opt %s -split-input-file --stem-insert-optimizer=stem-beta1=1 2>&1 | FileCheck %s --check-prefix=BETA1
// RUN: not stem-opt %s -split-input-file --stem-insert-optimizer=stem-beta2=-0.5 2>&1 | FileCheck %s --check-prefix=BETA2
// RUN: not stem-opt %s -split-input-file --stem-insert-optimizer=stem-epsilon=0 2>&1 | FileCheck %s --check-prefix=EPSILON

// BETA1: error: stem-beta1 is 1.000000e+00; wanted 0 or more, less than 1
// BETA2: error: stem-beta2 is -5.000000e-01; wanted 0 or more, less than 1
// EPSILON: error: stem-epsilon is 0.000000e+00; wanted 1e-12 to 1, for moments are kept in f32

// expected-error @+1 {{stem-function is 'loss_vjp', and the module has no function of that name with a body}}
module {
  func.func private @loss_vjp()
}

// -----

// expected-error @+1 {{'func.func' op result 0 is the gradient of 'w', which is neither a stem.param nor a stem.table}}
func.func @loss_vjp(%x: tensor<4xf32>) -> (tensor<4xf32> {stem.gradient_of = @w}) {
  return %x : tensor<4xf32>
}

// -----

stem.param @w = "w" : tensor<4xf64>
// expected-error @+1 {{'func.func' op result 0, the gradient of 'w', is 'tensor<4xf64>'; wanted a vector or matrix of f32 with static sizes}}
func.func @loss_vjp(%x: tensor<4xf64>) -> (tensor<4xf64> {stem.gradient_of = @w}) {
  return %x : tensor<4xf64>
}

// -----

stem.table @t = "t" : !stem.table<100x8xf32>
// expected-error @+1 {{'func.func' op result 0, the gradient of 't', is '!stem.row_gradient<8xf32>'; wanted a matrix of f32 rows: run stem-unpair-row-gradients before}}
func.func @loss_vjp(%x: !stem.row_gradient<8xf32>) -> (!stem.row_gradient<8xf32> {stem.gradient_of = @t}) {
  return %x : !stem.row_gradient<8xf32>
}

// -----

stem.param @w = "w" : tensor<4xf32>
// expected-error @+1 {{'func.func' op has more than one block: gradients are complete in an order that is known}}
func.func @loss_vjp(%x: tensor<4xf32>) -> (tensor<4xf32> {stem.gradient_of = @w}) {
  cf.br ^bb1
^bb1:
  return %x : tensor<4xf32>
}

// -----

stem.param @w = "w" : tensor<4xf32>
// expected-error @+1 {{'func.func' op is called: only an entry that nothing calls can get the arguments of an optimizer}}
func.func @loss_vjp(%x: tensor<4xf32>) -> (tensor<4xf32> {stem.gradient_of = @w}) {
  return %x : tensor<4xf32>
}
func.func @caller(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @loss_vjp(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

stem.param @v = "v" : tensor<4xf32>
stem.param @w = "w" : tensor<4xf32>
// expected-error @+1 {{'func.func' op updates 'v' already: argument 1 has 'stem.state_of'}}
func.func @loss_vjp(%x: tensor<4xf32>, %v: tensor<4xf32> {stem.output, stem.state_of = @v}) -> (tensor<4xf32>, tensor<4xf32> {stem.gradient_of = @w}) {
  return %v, %x : tensor<4xf32>, tensor<4xf32>
}

// -----

stem.param @w = "w" : tensor<4xf32>
// expected-error @+1 {{'func.func' op result 0, the gradient of 'w', is built in an argument already; run stem-insert-optimizer before stem-results-to-arguments}}
func.func @loss_vjp(%x: tensor<4xf32>, %dw: tensor<4xf32> {stem.output}) -> (tensor<4xf32> {stem.gradient_of = @w}) {
  return %x : tensor<4xf32>
}
