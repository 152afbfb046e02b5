// RUN: stem-opt %s --verify-roundtrip | FileCheck %s
// RUN: stem-opt %s --mlir-print-op-generic | stem-opt | FileCheck %s

// The ops of a compiled training step, printed and parsed again.

// CHECK: stem.param @w
stem.param @w = "w" : tensor<32x8xbf16>
// CHECK-LABEL: func.func @loads
func.func @loads() -> (tensor<8x32xbf16>, !stem.packed<32x8xbf16>) {
  // CHECK: stem.param_load transposed @w : tensor<8x32xbf16>
  %0 = stem.param_load transposed @w : tensor<8x32xbf16>
  // CHECK: stem.param_load transposed @w : !stem.packed<32x8xbf16>
  %1 = stem.param_load transposed @w : !stem.packed<32x8xbf16>
  return %0, %1 : tensor<8x32xbf16>, !stem.packed<32x8xbf16>
}

// CHECK-LABEL: func.func @pieces
func.func @pieces(%x: tensor<?x8xf32>, %h: tensor<?x8xbf16>, %w: tensor<4xf32>, %c: tensor<?x8xf32>, %i: tensor<?xi32>) -> (tensor<5x8xf32>, tensor<4xf32>) {
  // CHECK: stem.rms_norm_input_vjp %{{.*}}, %{{.*}}, %{{.*}} {eps = {{.*}} : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %0 = stem.rms_norm_input_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  // CHECK: stem.gate_vjp %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8xf32>, tensor<?x8xbf16>, tensor<?x8xf32>) -> (tensor<?x8xbf16>, tensor<?x8xf32>, tensor<?x8xbf16>)
  %1:3 = stem.gate_vjp %x, %h, %0 : (tensor<?x8xf32>, tensor<?x8xbf16>, tensor<?x8xf32>) -> (tensor<?x8xbf16>, tensor<?x8xf32>, tensor<?x8xbf16>)
  // CHECK: stem.sum_tokens %{{.*}} : tensor<?x8xbf16> -> tensor<4xf32>
  %2 = stem.sum_tokens %1#0 : tensor<?x8xbf16> -> tensor<4xf32>
  // CHECK: %[[SUM:.*]] = stem.sum_rows %{{.*}} by %{{.*}} : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<5x8xf32>
  %3 = stem.sum_rows %0 by %i : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<5x8xf32>
  // CHECK: stem.sum_rows %{{.*}} by %{{.*}} onto %[[SUM]] {padding_id = 2 : i64} : (tensor<?xi32>, tensor<?x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
  %4 = stem.sum_rows %1#1 by %i onto %3 {padding_id = 2 : i64} : (tensor<?xi32>, tensor<?x8xf32>, tensor<5x8xf32>) -> tensor<5x8xf32>
  // CHECK: stem.sum_rows %{{.*}} by %{{.*}} : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %5 = stem.sum_rows %0 by %i : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %4, %2 : tensor<5x8xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @loss
func.func @loss(%x: tensor<?x8xf32>, %head: tensor<32x8xbf16>, %packed: !stem.packed<8x32xbf16>, %back: !stem.packed<32x8xbf16>, %l: tensor<?xi32>, %c: tensor<?xf32>) -> tensor<?xf32> {
  // CHECK: stem.cross_entropy_step %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8xf32>, tensor<32x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  %0:3 = stem.cross_entropy_step %x, %head, %l, %c : (tensor<?x8xf32>, tensor<32x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  // CHECK: stem.cross_entropy_step %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} transposed %{{.*}} : (tensor<?x8xf32>, !stem.packed<8x32xbf16>, tensor<?xi32>, tensor<?xf32>, !stem.packed<32x8xbf16>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  %1:3 = stem.cross_entropy_step %0#1, %packed, %l, %c transposed %back : (tensor<?x8xf32>, !stem.packed<8x32xbf16>, tensor<?xi32>, tensor<?xf32>, !stem.packed<32x8xbf16>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  return %1#0 : tensor<?xf32>
}

// CHECK-LABEL: func.func @panels
func.func @panels(%x: tensor<?x40xbf16>, %p: tensor<1x4096xbf16>, %o: tensor<40x?xbf16>, %ps: tensor<2x4096xbf16>, %y: tensor<40x100xf32>, %adds: i1) -> (tensor<1x4096xbf16>, tensor<40x100xf32>) {
  // CHECK: stem.pack_tokens %{{.*}} into %{{.*}} : (tensor<?x40xbf16>, tensor<1x4096xbf16>) -> tensor<1x4096xbf16>
  %0 = stem.pack_tokens %x into %p : (tensor<?x40xbf16>, tensor<1x4096xbf16>) -> tensor<1x4096xbf16>
  // CHECK: stem.transpose_tokens %{{.*}} into %{{.*}} : (tensor<?x40xbf16>, tensor<40x?xbf16>) -> tensor<40x?xbf16>
  %1 = stem.transpose_tokens %x into %o : (tensor<?x40xbf16>, tensor<40x?xbf16>) -> tensor<40x?xbf16>
  // CHECK: stem.panel_matmul %{{.*}}, %{{.*}} into %{{.*}} accumulate %{{.*}} {depth = 64 : i64} : (tensor<40x?xbf16>, tensor<2x4096xbf16>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  %2 = stem.panel_matmul %1, %ps into %y accumulate %adds {depth = 64 : i64} : (tensor<40x?xbf16>, tensor<2x4096xbf16>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  return %0, %2 : tensor<1x4096xbf16>, tensor<40x100xf32>
}

// CHECK-LABEL: func.func @panels_in_buffers
func.func @panels_in_buffers(%x: memref<?x40xf32, strided<[80, 1], offset: ?>>, %p: memref<1x4096xf32>, %o: memref<40x?xf32>, %ps: memref<2x4096xf32>, %y: memref<40x100xf32>, %adds: i1) {
  // CHECK: stem.pack_tokens %{{.*}} into %{{.*}} : (memref<?x40xf32, strided<[80, 1], offset: ?>>, memref<1x4096xf32>) -> ()
  stem.pack_tokens %x into %p : (memref<?x40xf32, strided<[80, 1], offset: ?>>, memref<1x4096xf32>) -> ()
  // CHECK: stem.transpose_tokens %{{.*}} into %{{.*}} : (memref<?x40xf32, strided<[80, 1], offset: ?>>, memref<40x?xf32>) -> ()
  stem.transpose_tokens %x into %o : (memref<?x40xf32, strided<[80, 1], offset: ?>>, memref<40x?xf32>) -> ()
  // CHECK: stem.panel_matmul %{{.*}}, %{{.*}} into %{{.*}} accumulate %{{.*}} {depth = 64 : i64} : (memref<40x?xf32>, memref<2x4096xf32>, memref<40x100xf32>, i1) -> ()
  stem.panel_matmul %o, %ps into %y accumulate %adds {depth = 64 : i64} : (memref<40x?xf32>, memref<2x4096xf32>, memref<40x100xf32>, i1) -> ()
  return
}

// CHECK: func.func private @attributes(tensor<?xi32> {stem.output_index}, !stem.packed<32x8xbf16> {stem.param = @w, stem.transposed}, tensor<32x8xf32> {stem.gradient_of = @w, stem.output})
func.func private @attributes(tensor<?xi32> {stem.output_index}, !stem.packed<32x8xbf16> {stem.param = @w, stem.transposed}, tensor<32x8xf32> {stem.gradient_of = @w, stem.output})
