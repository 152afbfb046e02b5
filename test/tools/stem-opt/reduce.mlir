// RUN: stem-reduce %s -reduction-tree='traversal-mode=0 test=%S/Inputs/keeps-map.sh' | FileCheck %s

// What the failure needs stays, here a map of ids that must not go.
// CHECK-NOT: stem.param
// CHECK-NOT: @other
// CHECK: stem.map_ids
// CHECK-NOT: @other

stem.param @w = "w" : tensor<8x8xf32>
func.func @other() {
  return
}
func.func @f(%ids: tensor<?xi32>, %map: tensor<4xi32>) -> tensor<?xi32> {
  %0 = stem.map_ids %ids, %map {unknown = 0 : i32} : tensor<?xi32>, tensor<4xi32> -> tensor<?xi32>
  return %0 : tensor<?xi32>
}
func.func @other2() {
  return
}
