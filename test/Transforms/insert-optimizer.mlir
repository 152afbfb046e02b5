// RUN: stem-opt %s -split-input-file --stem-insert-optimizer | FileCheck %s
// RUN: stem-opt %s -split-input-file --stem-insert-optimizer='stem-beta1=0.8 stem-beta2=0.99 stem-epsilon=1e-6' | FileCheck %s --check-prefix=OTHER

// Updates follow their gradients, in the order in which these are complete;
// norms have the places of the results. The rows of a table stay a result.

stem.param @n = "norm.weight" : tensor<8xf32>
stem.param @w = "w.weight" : tensor<4x8xf32>
stem.table @t = "t" : !stem.table<100x8xf32>

// CHECK-LABEL: func.func @loss_vjp
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: tensor<?xf32> {stem.name = "nll", stem.output, stem.rows = "tokens"},
// CHECK-SAME: %[[STEP:[a-z0-9]+]]: tensor<3xf32> {stem.name = "optimizer_step"},
// CHECK-SAME: %[[N:[a-z0-9]+]]: tensor<8xf32> {stem.name = "weight of n", stem.output, stem.state_of = @n},
// CHECK-SAME: %[[N1:[a-z0-9]+]]: tensor<8xf32> {stem.name = "first moment of n", stem.output, stem.state_of = @n},
// CHECK-SAME: %[[N2:[a-z0-9]+]]: tensor<8xf32> {stem.name = "second moment of n", stem.output, stem.state_of = @n},
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<4x8xf32> {stem.name = "weight of w", stem.output, stem.state_of = @w},
// CHECK-SAME: %[[W1:[a-z0-9]+]]: tensor<4x8xf32> {stem.name = "first moment of w", stem.output, stem.state_of = @w},
// CHECK-SAME: %[[W2:[a-z0-9]+]]: tensor<4x8xf32> {stem.name = "second moment of w", stem.output, stem.state_of = @w},
// CHECK-SAME: tensor<3xf32> {stem.name = "gradient_norms", stem.output})
// CHECK-SAME: -> (tensor<?xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<3xf32>, tensor<?x8xf32> {stem.gradient_of = @t})
// CHECK: %[[DW:.*]] = stem.linear_weight_vjp
// CHECK-NEXT: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<1xf64>
// CHECK-NEXT: %[[P1:.*]] = stem.sum_squares %[[DW]] into %[[ZERO]][0] : tensor<4x8xf32>, tensor<1xf64>
// CHECK-NEXT: arith.constant 0 : index
// CHECK-NEXT: %[[S1:.*]] = tensor.extract %[[P1]]
// CHECK-NEXT: %[[T1:.*]] = tensor.from_elements %[[S1]] : tensor<1xf64>
// CHECK-NEXT: %[[C1:.*]] = stem.gradient_scale %[[T1]] : tensor<1xf64>
// CHECK-NEXT: %[[UW:.*]], %[[UW1:.*]], %[[UW2:.*]] = stem.adamw %[[DW]] into %[[W]], %[[W1]], %[[W2]] step %[[STEP]] scale %[[C1]] {beta1 = 9.000000e-01 : f64, beta2 = 0.94999999999999996 : f64, decays, epsilon = 1.000000e-08 : f64} : tensor<4x8xf32>
// CHECK-NEXT: %[[DX:.*]] = stem.linear_input_vjp
// CHECK-NEXT: %[[ROWS:.*]] = stem.sum_rows
// CHECK: %[[P2:.*]] = stem.sum_squares %[[ROWS]] into %{{.*}}[0] : tensor<?x8xf32>, tensor<1xf64>
// CHECK: %[[S2:.*]] = tensor.extract %[[P2]]
// CHECK-NEXT: %[[SUM2:.*]] = arith.addf %[[S1]], %[[S2]] : f64
// CHECK-NEXT: %[[DN:.*]] = stem.sum_tokens
// CHECK: %[[P0:.*]] = stem.sum_squares %[[DN]] into %{{.*}}[0] : tensor<8xf32>, tensor<1xf64>
// CHECK: %[[S0:.*]] = tensor.extract %[[P0]]
// CHECK-NEXT: %[[SUM0:.*]] = arith.addf %[[SUM2]], %[[S0]] : f64
// CHECK-NEXT: %[[T0:.*]] = tensor.from_elements %[[SUM0]] : tensor<1xf64>
// CHECK-NEXT: %[[C0:.*]] = stem.gradient_scale %[[T0]]
// CHECK-NEXT: %[[UN:.*]], %[[UN1:.*]], %[[UN2:.*]] = stem.adamw %[[DN]] into %[[N]], %[[N1]], %[[N2]] step %[[STEP]] scale %[[C0]] {beta1 = 9.000000e-01 : f64, beta2 = 0.94999999999999996 : f64, epsilon = 1.000000e-08 : f64} : tensor<8xf32>
// CHECK-NEXT: %[[SUMS:.*]] = tensor.from_elements %[[S0]], %[[S1]], %[[S2]] : tensor<3xf64>
// CHECK-NEXT: %[[ROOTS:.*]] = math.sqrt %[[SUMS]] : tensor<3xf64>
// CHECK-NEXT: %[[NORMS:.*]] = arith.truncf %[[ROOTS]] : tensor<3xf64> to tensor<3xf32>
// CHECK-NEXT: return %[[OUT]], %[[UN]], %[[UN1]], %[[UN2]], %[[UW]], %[[UW1]], %[[UW2]], %[[NORMS]], %[[ROWS]]

// OTHER: stem.adamw {{.*}} {beta1 = 8.000000e-01 : f64, beta2 = 0.98999999999999999 : f64, decays, epsilon = 9.9999999999999995E-7 : f64} : tensor<4x8xf32>
// OTHER: stem.adamw {{.*}} {beta1 = 8.000000e-01 : f64, beta2 = 0.98999999999999999 : f64, epsilon = 9.9999999999999995E-7 : f64} : tensor<8xf32>
func.func @loss_vjp(%x: tensor<?x8xf32>, %c: tensor<?x4xf32>, %i: tensor<?xi32>, %out: tensor<?xf32> {stem.name = "nll", stem.output, stem.rows = "tokens"}) -> (tensor<?xf32>, tensor<8xf32> {stem.gradient_of = @n}, tensor<4x8xf32> {stem.gradient_of = @w}, tensor<?x8xf32> {stem.gradient_of = @t}) attributes {stem.entry, stem.tile = 64 : i64} {
  %w = stem.param_load @w : tensor<4x8xf32>
  %dw = stem.linear_weight_vjp %x, %c : (tensor<?x8xf32>, tensor<?x4xf32>) -> tensor<4x8xf32>
  %dx = stem.linear_input_vjp %c, %w : (tensor<?x4xf32>, tensor<4x8xf32>) -> tensor<?x8xf32>
  %rows = stem.sum_rows %dx by %i : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %dn = stem.sum_tokens %dx : tensor<?x8xf32> -> tensor<8xf32>
  return %out, %dn, %dw, %rows : tensor<?xf32>, tensor<8xf32>, tensor<4x8xf32>, tensor<?x8xf32>
}

// -----

// Two gradients of one op, and one that no op of the step makes.

stem.param @a = "a" : tensor<4xf32>
stem.param @b = "b" : tensor<4xf32>
stem.param @z = "z" : tensor<4xf32>

// CHECK-LABEL: func.func @loss_vjp
// CHECK: %[[Z:.*]] = arith.constant dense<0.000000e+00> : tensor<4xf32>
// CHECK: stem.sum_squares %[[Z]]
// CHECK: %[[S2:.*]] = tensor.extract
// CHECK: stem.adamw
// CHECK: %[[CALL:.*]]:2 = call @layer_backward
// CHECK: stem.sum_squares %[[CALL]]#0
// CHECK: %[[S0:.*]] = tensor.extract
// CHECK-NEXT: arith.addf %[[S2]], %[[S0]]
// CHECK: stem.adamw %[[CALL]]#0
// CHECK: stem.sum_squares %[[CALL]]#1
// CHECK: %[[S1:.*]] = tensor.extract
// CHECK: stem.adamw %[[CALL]]#1
// CHECK: tensor.from_elements %[[S0]], %[[S1]], %[[S2]]
func.func private @layer_backward(%x: tensor<?x4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
func.func @loss_vjp(%x: tensor<?x4xf32>) -> (tensor<4xf32> {stem.gradient_of = @a}, tensor<4xf32> {stem.gradient_of = @b}, tensor<4xf32> {stem.gradient_of = @z}) {
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %0:2 = call @layer_backward(%x) : (tensor<?x4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1, %zero : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Only rows are trained: nothing to do here.

stem.table @t = "t" : !stem.table<100x8xf32>
// CHECK-LABEL: func.func @loss_vjp
// CHECK-SAME: (%{{[a-z0-9]+}}: tensor<?x8xf32>) -> (tensor<?x8xf32> {stem.gradient_of = @t})
// CHECK-NEXT: return
func.func @loss_vjp(%x: tensor<?x8xf32>) -> (tensor<?x8xf32> {stem.gradient_of = @t}) {
  return %x : tensor<?x8xf32>
}
