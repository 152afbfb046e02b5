// RUN: stem-opt %s -split-input-file --stem-unpair-row-gradients -verify-diagnostics | FileCheck %s

// A layer returns rows in place of pairs; the entry adds them up by an argument
// that numbers each token's row, which all its tables share. Ids are no result
// any more, and what stands behind them keeps its attributes.

stem.table @t = "t" : !stem.table<100x4xbf16>
stem.table @u = "u" : !stem.table<100x4xf32>
// CHECK-LABEL: func.func private @layer_backward
// CHECK-SAME: -> (tensor<?x4xf32>, tensor<?x4xf32>)
// CHECK-NOT: stem.row_gradient
// CHECK: return %{{.*}}, %{{.*}} : tensor<?x4xf32>, tensor<?x4xf32>
func.func private @layer_backward(%c: tensor<?x4xf32>, %i: tensor<?xi32>) -> (tensor<?x4xf32>, !stem.row_gradient<4xf32>) {
  %0 = arith.negf %c : tensor<?x4xf32>
  %1 = stem.row_gradient %i, %0 : tensor<?xi32>, tensor<?x4xf32> -> !stem.row_gradient<4xf32>
  return %c, %1 : tensor<?x4xf32>, !stem.row_gradient<4xf32>
}
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<?xi32> {stem.name = "ids"}, %[[C:[a-z0-9]+]]: tensor<?x4xf32>, %[[INDEX:[a-z0-9_]+]]: tensor<?xi32> {stem.name = "row_index", stem.output_index, stem.rows = "tokens"})
// CHECK-SAME: -> (tensor<?x4xf32>, tensor<?x4xf32> {stem.gradient_of = @t}, tensor<?x4xf32> {stem.gradient_of = @u}, tensor<?x4xf32> {stem.gradient_of_argument = 1 : i64})
// CHECK: %[[LAYER:.*]]:2 = call @layer_backward({{.*}}) : (tensor<?x4xf32>, tensor<?xi32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
// CHECK: %[[T:.*]] = stem.sum_rows %[[LAYER]]#1 by %[[INDEX]] : (tensor<?xi32>, tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK: %[[U:.*]] = stem.sum_rows %[[C]] by %[[INDEX]]
// CHECK-NOT: stem.table_gradient
// CHECK: return %[[C]], %[[T]], %[[U]], %[[LAYER]]#0
func.func @step(%ids: tensor<?xi32> {stem.name = "ids"}, %c: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?xi32> {stem.gradient_ids_of = @t}, tensor<?x4xf32> {stem.gradient_of = @t}, tensor<?xi32> {stem.gradient_ids_of = @u}, tensor<?x4xf32> {stem.gradient_of = @u}, tensor<?x4xf32> {stem.gradient_of_argument = 1 : i64}) attributes {stem.entry, stem.tile = 64 : i64} {
  %t = stem.table_load @t : !stem.table<100x4xbf16>
  %u = stem.table_load @u : !stem.table<100x4xf32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<100x4xbf16>, tensor<?xi32> -> tensor<?x4xbf16>, tensor<?xi32>
  %more, %other = stem.table_rows %u, %ids : !stem.table<100x4xf32>, tensor<?xi32> -> tensor<?x4xf32>, tensor<?xi32>
  %0:2 = call @layer_backward(%c, %index) : (tensor<?x4xf32>, tensor<?xi32>) -> (tensor<?x4xf32>, !stem.row_gradient<4xf32>)
  %1:2 = stem.table_gradient %0#1 index %index ids %ids : (!stem.row_gradient<4xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x4xf32>)
  %2 = stem.row_gradient %other, %c : tensor<?xi32>, tensor<?x4xf32> -> !stem.row_gradient<4xf32>
  %3:2 = stem.table_gradient %2 index %other ids %ids : (!stem.row_gradient<4xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x4xf32>)
  return %c, %1#0, %1#1, %3#0, %3#1, %0#0 : tensor<?x4xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

// An argument with the numbers that is there already is taken.

// CHECK-LABEL: func.func @given
// CHECK-SAME: (%[[I:[a-z0-9]+]]: tensor<?xi32> {stem.output_index}, %{{[a-z0-9]+}}: tensor<?xi32>, %[[C:[a-z0-9]+]]: tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK: stem.sum_rows %[[C]] by %[[I]]
func.func @given(%n: tensor<?xi32> {stem.output_index}, %i: tensor<?xi32>, %c: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %0 = stem.row_gradient %i, %c : tensor<?xi32>, tensor<?x4xf32> -> !stem.row_gradient<4xf32>
  %1:2 = stem.table_gradient %0 index %i ids %i : (!stem.row_gradient<4xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x4xf32>)
  return %1#1 : tensor<?x4xf32>
}

// A function without gradients stays as it is.

// CHECK-LABEL: func.func @loss(%{{[a-z0-9]+}}: tensor<?xf32>) -> tensor<?xf32>
func.func @loss(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}

// -----

// expected-error @+1 {{'func.func' op returns a row gradient, and only private functions can be changed to return its rows}}
func.func @public(%c: tensor<?x4xf32>, %i: tensor<?xi32>) -> !stem.row_gradient<4xf32> {
  %0 = stem.row_gradient %i, %c : tensor<?xi32>, tensor<?x4xf32> -> !stem.row_gradient<4xf32>
  return %0 : !stem.row_gradient<4xf32>
}

// -----

// expected-error @+1 {{'func.func' op returns a row gradient that is not of one stem.lookup, and compiled code has one matrix of rows for each table}}
func.func private @merged(%c: tensor<?x4xf32>, %i: tensor<?xi32>) -> !stem.row_gradient<4xf32> {
  %0 = stem.row_gradient %i, %c : tensor<?xi32>, tensor<?x4xf32> -> !stem.row_gradient<4xf32>
  %1 = stem.merge_row_gradients %0, %0 : !stem.row_gradient<4xf32>
  return %1 : !stem.row_gradient<4xf32>
}

// -----

func.func @looked_up_twice(%c: tensor<?x4xf32>, %i: tensor<?xi32>) -> (tensor<?xi32>, tensor<?x4xf32>) {
  %0 = stem.row_gradient %i, %c : tensor<?xi32>, tensor<?x4xf32> -> !stem.row_gradient<4xf32>
  %1 = stem.merge_row_gradients %0, %0 : !stem.row_gradient<4xf32>
  // expected-error @+1 {{'stem.table_gradient' op adds up the rows of several stem.lookup, and compiled code has one matrix of rows for each table}}
  %2:2 = stem.table_gradient %1 index %i ids %i : (!stem.row_gradient<4xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x4xf32>)
  return %2#0, %2#1 : tensor<?xi32>, tensor<?x4xf32>
}

// -----

func.func @reads_ids(%c: tensor<?x4xf32>, %i: tensor<?xi32>) -> (tensor<?x4xf32>, tensor<?xi32>) {
  %0 = stem.row_gradient %i, %c : tensor<?xi32>, tensor<?x4xf32> -> !stem.row_gradient<4xf32>
  // expected-error @+1 {{'stem.table_gradient' op has ids that something else than the return reads; compiled code does not give them out}}
  %1:2 = stem.table_gradient %0 index %i ids %i : (!stem.row_gradient<4xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x4xf32>)
  %2 = arith.addi %1#0, %1#0 : tensor<?xi32>
  return %1#1, %2 : tensor<?x4xf32>, tensor<?xi32>
}
