// RUN: stem-opt %s --stem-fuse-ffn -verify-diagnostics --remarks-filter=stem-fuse-ffn --remark-format=emitRemark | FileCheck %s

// CHECK-LABEL: func.func @fuse
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[G:[a-z0-9]+]]: tensor<16x8xf32>, %[[R:[a-z0-9]+]]: tensor<?x16xbf16>, %[[I:[a-z0-9]+]]: tensor<?xi32>, %[[D:[a-z0-9]+]]: tensor<8x16xf32>, %[[BG:[a-z0-9]+]]: tensor<16xf32>, %[[BD:[a-z0-9]+]]: tensor<8xf32>
// CHECK-NOT: stem.lookup
// CHECK: stem.fused_ffn %[[X]] gate %[[G]] rows %[[R]][%[[I]]] down %[[D]] gate_bias %[[BG]] down_bias %[[BD]]
func.func @fuse(%x: tensor<?x8xf32>, %g: tensor<16x8xf32>, %rows: tensor<?x16xbf16>, %i: tensor<?xi32>, %d: tensor<8x16xf32>, %bg: tensor<16xf32>, %bd: tensor<8xf32>) -> tensor<?x8xf32> {
  // A lookup that widens changes nothing.
  %u = stem.lookup %rows, %i : tensor<?x16xbf16>, tensor<?xi32> -> tensor<?x16xf32>
  %y = stem.gated_ffn %x gate %g rows %u down %d gate_bias %bg down_bias %bd : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @narrowing_lookup
// CHECK: stem.lookup
// CHECK: stem.gated_ffn
func.func @narrowing_lookup(%x: tensor<?x8xbf16>, %g: tensor<16x8xbf16>, %rows: tensor<?x16xf32>, %i: tensor<?xi32>, %d: tensor<8x16xbf16>) -> tensor<?x8xbf16> {
  %u = stem.lookup %rows, %i : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xbf16>
  // Its rows are rounded before the product.
  // expected-remark @+1 {{the lookup rounds its rows, so they are written to memory}}
  %y = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<?x16xbf16>, tensor<8x16xbf16>) -> tensor<?x8xbf16>
  return %y : tensor<?x8xbf16>
}

// As wide as each other, but bf16 lacks three of the bits of f16.
// CHECK-LABEL: func.func @rounding_lookup
// CHECK: stem.lookup
// CHECK: stem.gated_ffn
func.func @rounding_lookup(%x: tensor<?x8xbf16>, %g: tensor<16x8xbf16>, %rows: tensor<?x16xf16>, %i: tensor<?xi32>, %d: tensor<8x16xbf16>) -> tensor<?x8xbf16> {
  %u = stem.lookup %rows, %i : tensor<?x16xf16>, tensor<?xi32> -> tensor<?x16xbf16>
  // expected-remark @+1 {{the lookup rounds its rows, so they are written to memory}}
  %y = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<?x16xbf16>, tensor<8x16xbf16>) -> tensor<?x8xbf16>
  return %y : tensor<?x8xbf16>
}

// CHECK-LABEL: func.func @two_uses
// CHECK: stem.lookup
// CHECK: stem.gated_ffn
func.func @two_uses(%x: tensor<?x8xf32>, %g: tensor<16x8xf32>, %rows: tensor<?x16xf32>, %i: tensor<?xi32>, %d: tensor<8x16xf32>) -> (tensor<?x8xf32>, tensor<?x16xf32>) {
  %u = stem.lookup %rows, %i : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  // expected-remark @+1 {{the lookup of its rows has other uses, so they are written to memory}}
  %y = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y, %u : tensor<?x8xf32>, tensor<?x16xf32>
}

// CHECK-LABEL: func.func @no_lookup
// CHECK: stem.gated_ffn
func.func @no_lookup(%x: tensor<?x8xf32>, %g: tensor<16x8xf32>, %u: tensor<?x16xf32>, %d: tensor<8x16xf32>) -> tensor<?x8xf32> {
  // expected-remark @+1 {{its rows do not come from a lookup, so they are written to memory}}
  %y = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// A lookup in another block, and a function without a body.
// CHECK-LABEL: func.func @blocks
// CHECK: ^bb1:
// CHECK: stem.fused_ffn
func.func @blocks(%x: tensor<?x8xf32>, %g: tensor<16x8xf32>, %rows: tensor<?x16xf32>, %i: tensor<?xi32>, %d: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %u = stem.lookup %rows, %i : tensor<?x16xf32>, tensor<?xi32> -> tensor<?x16xf32>
  cf.br ^bb1
^bb1:
  %y = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func private @external(tensor<?x8xf32>)
