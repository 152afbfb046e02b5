// RUN: stem-opt %s --stem-to-linalg -verify-diagnostics --remarks-filter=stem-to-linalg --remark-format=emitRemark | FileCheck %s

// A product that no matrix kernel runs says so.

// CHECK-LABEL: func.func @linear
// CHECK: linalg.generic
func.func @linear(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>) -> tensor<4x16xf32> {
  // expected-remark @+1 {{a weight, tensor<16x8xf32>, is not packed: a plain loop nest multiplies by it}}
  %0 = stem.linear %x, %w : tensor<4x8xf32>, tensor<16x8xf32> -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// CHECK-LABEL: func.func @backwards
// CHECK: linalg.generic
func.func @backwards(%c: tensor<4x16xf32>, %w: tensor<16x8xf32>) -> tensor<4x8xf32> {
  // expected-remark @+1 {{a weight, tensor<16x8xf32>, is not transposed: a plain loop nest multiplies by it}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// The whole head, although a block of it is multiplied at a time.
// CHECK-LABEL: func.func @loss
// CHECK: scf.for
func.func @loss(%x: tensor<4x8xf32>, %h: tensor<200x8xf32>, %i: tensor<4xi32>) -> tensor<4xf32> {
  // expected-remark @+1 {{a weight, tensor<200x8xf32>, is not packed: a plain loop nest multiplies by it}}
  %0 = stem.cross_entropy %x, %h, %i : tensor<4x8xf32>, tensor<200x8xf32>, tensor<4xi32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// An FFN whose matrices are packed in another type has kernels, but no blocks.
// CHECK-LABEL: func.func @ffn
// CHECK-NOT: scf.for
// CHECK: stem.packed_matmul
func.func @ffn(%x: tensor<64x32xf32>, %g: !stem.packed<32x128xbf16>, %u: tensor<64x128xf32>, %d: !stem.packed<128x32xbf16>) -> tensor<64x32xf32> {
  // expected-remark @+1 {{its matrices are not packed in the type of x, f32: the gate and the product are written whole}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<64x32xf32>, !stem.packed<32x128xbf16>, tensor<64x128xf32>, !stem.packed<128x32xbf16>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}
