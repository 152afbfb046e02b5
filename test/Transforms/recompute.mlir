// RUN: stem-opt --split-input-file --stem-recompute %s | FileCheck %s
// RUN: stem-opt --split-input-file --stem-recompute='stem-budget=1 stem-tokens=8' %s 2>&1 | FileCheck --check-prefix=BUDGET %s
// RUN: stem-opt --split-input-file --stem-recompute='stem-budget=1 stem-tokens=8' %s 2>&1 | FileCheck --check-prefix=WARNING %s
// RUN: not stem-opt --stem-recompute='stem-tokens=0' %s 2>&1 | FileCheck --check-prefix=TOKENS %s
// RUN: stem-opt --split-input-file --stem-recompute='stem-tokens=8' --remarks-filter=stem-recompute %s 2>&1 | FileCheck --check-prefix=REMARK %s

// TOKENS: stem-tokens is 0 and stem-budget 0; expected 1 or more tokens, and no negative budget

// Rows are looked up again, a product is kept.

// REMARK: StemRecompute {{.*}}KeptBytes=256, RecomputedBytes=256, RecomputedValues=1, Tokens=8

// CHECK-LABEL: func.func private @layer_forward
// CHECK-SAME: -> (tensor<?x8xf32>, tensor<?x8xf32>)
// CHECK: return %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x8xf32>
// CHECK-LABEL: func.func private @layer_backward
// CHECK-SAME: (%[[LINEAR:.*]]: tensor<?x8xf32>, %[[DY:.*]]: tensor<?x8xf32>, %[[ROWS:.*]]: tensor<?x8xf32>, %[[INDEX:.*]]: tensor<?xi32>)
// CHECK: %[[UP:.*]] = stem.lookup %[[ROWS]], %[[INDEX]]
// CHECK: arith.mulf %[[UP]], %[[LINEAR]]
// CHECK-LABEL: func.func @step
// CHECK: %[[Y:.*]]:2 = call @layer_forward(%[[X:.*]], %[[R:.*]], %[[I:.*]], %[[W:.*]]) :
// CHECK: call @layer_backward(%[[Y]]#1, %{{.*}}, %[[R]], %[[I]])

// With a budget the product too; what is over it is said.

// BUDGET-LABEL: func.func private @layer_forward
// BUDGET-SAME: -> tensor<?x8xf32> {
// BUDGET-LABEL: func.func private @layer_backward
// BUDGET-DAG: stem.linear
// BUDGET-DAG: stem.lookup
func.func private @layer_forward(%x: tensor<?x64xf32>, %rows: tensor<?x8xf32>, %index: tensor<?xi32>, %w: tensor<8x64xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %up = stem.lookup %rows, %index : tensor<?x8xf32>, tensor<?xi32> -> tensor<?x8xf32>
  %l = stem.linear %x, %w : tensor<?x64xf32>, tensor<8x64xf32> -> tensor<?x8xf32>
  %y = arith.mulf %up, %l : tensor<?x8xf32>
  return %y, %up, %l : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}
func.func private @layer_backward(%up: tensor<?x8xf32>, %l: tensor<?x8xf32>, %dy: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = arith.mulf %up, %l : tensor<?x8xf32>
  %1 = arith.mulf %0, %dy : tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}
func.func @step(%x: tensor<?x64xf32>, %rows: tensor<?x8xf32>, %index: tensor<?xi32>, %w: tensor<8x64xf32>, %dy: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %y:3 = call @layer_forward(%x, %rows, %index, %w) : (tensor<?x64xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<8x64xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  %d = call @layer_backward(%y#1, %y#2, %dy) : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y#0, %d : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// What comes from a call is kept, and a budget that it breaks is a warning.

// CHECK-LABEL: func.func private @kept_forward
// CHECK-SAME: -> (tensor<?x8xf32>, tensor<?x8xf32>)
// WARNING: warning: residuals of 8 tokens take 256 bytes where stem-budget is 1, with all computed again that can be
func.func private @other(tensor<?x8xf32>) -> tensor<?x8xf32>
func.func private @kept_forward(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %z = call @other(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = arith.mulf %z, %x : tensor<?x8xf32>
  return %y, %z : tensor<?x8xf32>, tensor<?x8xf32>
}
func.func private @kept_backward(%z: tensor<?x8xf32>, %dy: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = arith.mulf %z, %dy : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
func.func @kept_step(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %y:2 = call @kept_forward(%x) : (tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>)
  %d = call @kept_backward(%y#1, %x) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y#0, %d : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// Attention of one token costs little, of many it does not: it is kept.

// CHECK-LABEL: func.func private @attends_forward
// CHECK-SAME: -> (tensor<?x8xf32>, tensor<?x8xf32>)
func.func private @attends_forward(%x: tensor<?x8xf32>, %p: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %a = stem.attention %x, %x, %x at %p of %p {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %y = arith.mulf %a, %x : tensor<?x8xf32>
  return %y, %a : tensor<?x8xf32>, tensor<?x8xf32>
}
func.func private @attends_backward(%a: tensor<?x8xf32>, %dy: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = arith.mulf %a, %dy : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
func.func @attends_step(%x: tensor<?x8xf32>, %p: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %y:2 = call @attends_forward(%x, %p) : (tensor<?x8xf32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>)
  %d = call @attends_backward(%y#1, %x) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y#0, %d : tensor<?x8xf32>, tensor<?x8xf32>
}
