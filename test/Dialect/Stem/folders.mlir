// RUN: stem-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @mix_of_rank_zero
// CHECK-SAME: (%[[UP:.*]]: tensor<?x16xf32>, %{{.*}}: tensor<?x8xf32>
// CHECK-NEXT: return %[[UP]]
func.func @mix_of_rank_zero(%up: tensor<?x16xf32>, %x: tensor<?x8xf32>, %a: tensor<16x0xf32>, %b: tensor<0x8xf32>) -> tensor<?x16xf32> {
  %0 = stem.mix %up, %x a %a b %b : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x0xf32>, tensor<0x8xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// The result is converted: nothing folds.
// CHECK-LABEL: func.func @mix_that_converts
// CHECK: stem.mix
func.func @mix_that_converts(%up: tensor<?x16xbf16>, %x: tensor<?x8xf32>, %a: tensor<16x0xf32>, %b: tensor<0x8xf32>) -> tensor<?x16xf32> {
  %0 = stem.mix %up, %x a %a b %b : (tensor<?x16xbf16>, tensor<?x8xf32>, tensor<16x0xf32>, tensor<0x8xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @select_of_nothing
// CHECK-SAME: (%[[UP:.*]]: tensor<?x16xf32>, %{{.*}}: tensor<?x8xf32>
// CHECK-NEXT: return %[[UP]]
func.func @select_of_nothing(%up: tensor<?x16xf32>, %x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %ids: tensor<?xi32>, %selected: tensor<0xi32>) -> tensor<?x16xf32> {
  %0 = stem.select_up %up, %x weight %w ids %ids in %selected : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<0xi32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @select_of_some
// CHECK: stem.select_up
func.func @select_of_some(%up: tensor<?x16xf32>, %x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %ids: tensor<?xi32>, %selected: tensor<?xi32>) -> tensor<?x16xf32> {
  %0 = stem.select_up %up, %x weight %w ids %ids in %selected : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}
