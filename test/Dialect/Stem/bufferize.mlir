// RUN: stem-opt %s -one-shot-bufferize | FileCheck %s

// The kernel reads `a` while it writes sums: they never share a buffer, even
// where the IR names one matrix for both.

// CHECK-LABEL: func @same_matrix
// CHECK: %[[A:.*]] = memref.alloc()
// CHECK: linalg.fill {{.*}} outs(%[[A]]
// CHECK: %[[ACC:.*]] = memref.alloc()
// CHECK: stem.packed_matmul %[[A]], {{.*}} into %[[ACC]] :
func.func @same_matrix(%b: !stem.packed<64x64xf32>) -> tensor<4x64xf32> {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<4x64xf32>
  %a = linalg.fill ins(%one : f32) outs(%empty : tensor<4x64xf32>) -> tensor<4x64xf32>
  %y = stem.packed_matmul %a, %b[%c0, %c0] into %a
      : (tensor<4x64xf32>, !stem.packed<64x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  return %y : tensor<4x64xf32>
}

// A destination that nothing else reads is written in place.

// CHECK-LABEL: func @in_place
// CHECK: %[[ACC:.*]] = memref.alloc()
// CHECK-NOT: memref.alloc
// CHECK: stem.packed_matmul %{{.*}}, {{.*}} into %[[ACC]] :
func.func @in_place(%a: tensor<4x64xf32>, %b: !stem.packed<64x64xf32>) -> tensor<4x64xf32> {
  %c0 = arith.constant 0 : index
  %empty = tensor.empty() : tensor<4x64xf32>
  %y = stem.packed_matmul %a, %b[%c0, %c0] into %empty
      : (tensor<4x64xf32>, !stem.packed<64x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  return %y : tensor<4x64xf32>
}

// Rows and index are the store's: nothing is written to them, and what reads
// the ids reads them where they lie.

// CHECK-LABEL: func @await
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<?xi32>
// CHECK: %[[BUFFER:.*]] = bufferization.to_buffer %[[IDS]]
// CHECK: %[[P:.*]] = stem.plan_rows %[[BUFFER]] : memref<?xi32
// CHECK: %[[K:.*]] = stem.prefetch %{{.*}}, %[[P]]
// CHECK: %[[ROWS:.*]], %[[INDEX:.*]] = stem.await %[[K]] : !stem.ticket<4xf32> -> memref<?x4xf32>, memref<?xi32>
// CHECK: %[[COPY:.*]] = memref.alloc
// CHECK: memref.copy %[[ROWS]], %[[COPY]]
// CHECK: memref.store %{{.*}}, %[[COPY]]
// CHECK-NOT: memref.store
// CHECK: stem.release %[[K]]
func.func @await(%ids: tensor<?xi32>, %t: !stem.table<8x4xf32>, %i: index) -> tensor<?x4xf32> {
  %one = arith.constant 1.0 : f32
  %p = stem.plan_rows %ids : tensor<?xi32>
  %k = stem.prefetch %t, %p : !stem.table<8x4xf32> -> !stem.ticket<4xf32>
  %rows, %index = stem.await %k : !stem.ticket<4xf32> -> tensor<?x4xf32>, tensor<?xi32>
  %y = tensor.insert %one into %rows[%i, %i] : tensor<?x4xf32>
  stem.release %k : !stem.ticket<4xf32>
  return %y : tensor<?x4xf32>
}
