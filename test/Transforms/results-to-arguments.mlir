// RUN: stem-opt %s -split-input-file --stem-results-to-arguments -verify-diagnostics | FileCheck %s

// A layer's results are built in new arguments, at the caller in new tensors of
// as many tokens as an operand has: not in one of a table's rows. What is
// returned is built in the entry's own arguments.

stem.param @w = "w" : tensor<4x8xf32>
stem.table @t = "t" : !stem.table<100x8xf32>
// CHECK-LABEL: func.func private @backward
// CHECK-SAME: (%{{[a-z0-9]+}}: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<?xi32>, %{{[a-z0-9]+}}: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<?x8xf32> {stem.output}, %{{[a-z0-9]+}}: tensor<4x8xf32> {stem.output}) -> (tensor<?x8xf32>, tensor<4x8xf32>)
func.func private @backward(%rows: tensor<?x8xf32>, %i: tensor<?xi32>, %x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<4x8xf32>) {
  %0 = stem.lookup %rows, %i : tensor<?x8xf32>, tensor<?xi32> -> tensor<?x8xf32>
  %1 = arith.addf %0, %x : tensor<?x8xf32>
  %2 = arith.constant dense<0.0> : tensor<4x8xf32>
  return %1, %2 : tensor<?x8xf32>, tensor<4x8xf32>
}

// One result takes the place of the residual stream, in its own argument.
// CHECK-LABEL: func.func private @forward(%{{[a-z0-9]+}}: tensor<?x8xf32>) -> tensor<?x8xf32>
func.func private @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}

// CHECK-LABEL: func.func private @layer(%{{[a-z0-9]+}}: tensor<?x8xf32>) -> tensor<?x8xf32>
func.func private @layer(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = arith.negf %x : tensor<?x8xf32>
  %1 = arith.addf %0, %x : tensor<?x8xf32>
  %2 = arith.negf %1 : tensor<?x8xf32>
  %3 = arith.addf %1, %2 : tensor<?x8xf32>
  return %3 : tensor<?x8xf32>
}

// One that adds to no argument gets a place, whatever their types: the
// cotangent of a table's rows.
// CHECK-LABEL: func.func private @lowest
// CHECK-SAME: (%{{[a-z0-9]+}}: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<?x8xf32> {stem.output}) -> tensor<?x8xf32>
func.func private @lowest(%rows: tensor<?x8xf32>, %x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = arith.mulf %x, %rows : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<?xi32>, %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[NLL:[a-z0-9]+]]: tensor<?xf32> {stem.name = "nll", stem.output, stem.rows = "tokens"}
// CHECK-SAME: %[[DW:[a-z0-9]+]]: tensor<4x8xf32> {stem.gradient_of = @w, stem.name = "gradient of w", stem.output}
// CHECK-SAME: %[[DT:[a-z0-9]+]]: tensor<?x8xf32> {stem.gradient_of = @t, stem.name = "gradient of t", stem.output, stem.rows = "outputs"})
// CHECK: %[[ROWS:.*]], %[[INDEX:.*]] = stem.table_rows
// CHECK: call @forward(%[[X]]) : (tensor<?x8xf32>) -> tensor<?x8xf32>
// CHECK: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK: %[[TOKENS:.*]] = tensor.dim %[[INDEX]], %[[ZERO]] : tensor<?xi32>
// CHECK: %[[DX:.*]] = tensor.empty(%[[TOKENS]]) : tensor<?x8xf32>
// CHECK: %[[CALL:.*]]:2 = call @backward(%[[ROWS]], %[[INDEX]], %{{.*}}, %[[DX]], %[[DW]])
// CHECK: return %{{.*}}, %[[CALL]]#1
func.func @step(%ids: tensor<?xi32>, %x: tensor<?x8xf32>, %nll: tensor<?xf32> {stem.name = "nll", stem.output, stem.rows = "tokens"}) -> (tensor<?xf32>, tensor<4x8xf32> {stem.gradient_of = @w}, tensor<?x8xf32> {stem.gradient_of = @t}) attributes {stem.entry, stem.tile = 64 : i64} {
  %t = stem.table_load @t : !stem.table<100x8xf32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<100x8xf32>, tensor<?xi32> -> tensor<?x8xf32>, tensor<?xi32>
  %y = call @forward(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %0:2 = call @backward(%rows, %index, %y) : (tensor<?x8xf32>, tensor<?xi32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<4x8xf32>)
  %sum = stem.sum_rows %0#0 by %index : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %nll, %0#1, %sum : tensor<?xf32>, tensor<4x8xf32>, tensor<?x8xf32>
}

// -----

// Nor as many as a list of ids has.

stem.param @ids = "ids" : tensor<3xi32>
// CHECK-LABEL: func.func @list
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x4xf32>
// CHECK: %[[TOKENS:.*]] = tensor.dim %[[X]]
// CHECK: tensor.empty(%[[TOKENS]]) : tensor<?x4xf32>
func.func private @both(%s: tensor<?xi32>, %x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = arith.negf %x : tensor<?x4xf32>
  return %x, %0 : tensor<?x4xf32>, tensor<?x4xf32>
}
func.func @list(%x: tensor<?x4xf32>) {
  %l = stem.param_load @ids : tensor<3xi32>
  %s = tensor.cast %l : tensor<3xi32> to tensor<?xi32>
  %0:2 = call @both(%s, %x) : (tensor<?xi32>, tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
  return
}

// -----

// A result that is returned twice is built in one of the arguments.

// CHECK-LABEL: func.func @returned_twice
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<4xf32> {stem.output}, %[[B:[a-z0-9]+]]: tensor<4xf32> {stem.output}
// CHECK: %[[PLACE:.*]] = tensor.empty() : tensor<4xf32>
// CHECK: call @pair(%{{[a-z0-9]+}}, %[[B]], %[[PLACE]])
func.func private @pair(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = arith.negf %x : tensor<4xf32>
  return %x, %0 : tensor<4xf32>, tensor<4xf32>
}
func.func @returned_twice(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0:2 = call @pair(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#0 : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @+1 {{'func.func' op result 1 is 'index'; only tensors are built in arguments}}
func.func private @number(%x: tensor<4xf32>, %i: index) -> (tensor<4xf32>, index) {
  return %x, %i : tensor<4xf32>, index
}

// -----

func.func private @untold(%n: index) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = tensor.empty(%n) : tensor<?x4xf32>
  return %0, %0 : tensor<?x4xf32>, tensor<?x4xf32>
}
func.func @caller(%n: index) {
  // expected-error @+1 {{'func.call' op has a result 'tensor<?x4xf32>' with dynamic sizes, and no operand has tokens that would tell them}}
  %0:2 = call @untold(%n) : (index) -> (tensor<?x4xf32>, tensor<?x4xf32>)
  return
}

// -----

func.func private @columns(%x: tensor<?x4xf32>, %y: tensor<4x?xf32>) -> (tensor<?x4xf32>, tensor<4x?xf32>) {
  return %x, %y : tensor<?x4xf32>, tensor<4x?xf32>
}
func.func @caller(%x: tensor<?x4xf32>, %y: tensor<4x?xf32>) {
  // expected-error @+1 {{'func.call' op has a result 'tensor<4x?xf32>' with dynamic sizes, and no operand has tokens that would tell them}}
  %0:2 = call @columns(%x, %y) : (tensor<?x4xf32>, tensor<4x?xf32>) -> (tensor<?x4xf32>, tensor<4x?xf32>)
  return
}
