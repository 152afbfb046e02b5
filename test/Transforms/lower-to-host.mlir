// RUN: stem-opt %s --split-input-file --stem-lower-to-host=stem-isa=2 | FileCheck %s

// A layer gets the context in front; kernels get addresses, strides and sizes.

// CHECK-LABEL: llvm.func internal @layer
// CHECK-SAME:    (%[[CONTEXT:[^:]*]]: !llvm.ptr, %{{[^:]*}}: !llvm.ptr, %{{[^:]*}}: !llvm.ptr, %{{[^:]*}}: i64, %{{[^:]*}}: i64, %{{[^:]*}}: i64, %{{[^:]*}}: i64, %{{[^:]*}}: i64, %[[W:[^:]*]]: !llvm.ptr
// CHECK:         llvm.call @stem_packed_matmul(%[[CONTEXT]], %{{[^,]*}}, %{{[^,]*}}, %[[W]],
// CHECK:         llvm.return
func.func private @layer(%x: memref<?x64xf32>, %w: !stem.packed<64x128xf32>, %y: memref<?x64xf32, strided<[128, 1], offset: ?>>) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  stem.packed_matmul accumulate %x, %w[%c0, %c64] into %y : (memref<?x64xf32>, !stem.packed<64x128xf32>, memref<?x64xf32, strided<[128, 1], offset: ?>>, index, index) -> ()
  return
}

// CHECK-LABEL: llvm.func @stem_module_query
// CHECK:         %[[KNOWN:.*]] = llvm.icmp "eq"
// CHECK:         llvm.select %[[KNOWN]], %{{.*}}, %{{.*}} : i1, !llvm.ptr

// -----

// A page of the cache is the same as the data of a weight.

// CHECK-LABEL: llvm.func internal @cache
// CHECK:         llvm.call @stem_kv_append(
// CHECK:         %[[VALUES:.*]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         %[[PAGE:.*]] = llvm.call @stem_kv_page(%{{.*}}, %[[VALUES]]) : (!llvm.ptr, i64, i32, i64, i64, i32) -> !llvm.ptr
// CHECK:         llvm.call @stem_packed_matmul(%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[PAGE]],
func.func private @cache(%k: memref<?x64xbf16>, %p: memref<?xi32>, %s: memref<?xi32>, %cache: !stem.kv_cache, %n: i32, %i: index, %y: memref<?x64xf32>) {
  stem.kv_append %k, %k at %p of %s in %cache[%i] : memref<?x64xbf16>, memref<?x64xbf16>, memref<?xi32>, memref<?xi32>
  %page = stem.kv_page values %cache[%i, %n, %i, %i] : !stem.packed<64x64xbf16>
  stem.packed_matmul %k, %page[%i, %i] into %y : (memref<?x64xbf16>, !stem.packed<64x64xbf16>, memref<?x64xf32>, index, index) -> ()
  return
}

// -----

// Captures and the context travel in a record on the stack, whose slot lies
// outside of the loop. A body has one function that unpacks it.

// CHECK-LABEL: llvm.func internal @parallel
// CHECK-SAME:    (%[[CONTEXT:[^:]*]]: !llvm.ptr
// CHECK:         %[[TASK:.*]] = llvm.mlir.addressof @body_task
// CHECK:         %[[SLOT:.*]] = llvm.alloca %{{.*}} x !llvm.struct<(ptr, struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>, f32)>
// CHECK:         llvm.br
// CHECK:         llvm.store %{{.*}}, %[[SLOT]]
// CHECK:         llvm.call @stem_parallel_for(%[[CONTEXT]], %{{[^,]*}}, %[[TASK]], %[[SLOT]])
// CHECK-LABEL: llvm.func internal @body_task
// CHECK-SAME:    (%[[RECORD:.*]]: !llvm.ptr, %[[TASK:.*]]: i64, %[[THREAD:.*]]: i64)
// CHECK:         llvm.load %[[RECORD]]
// CHECK:         llvm.call @body(%{{[^,]*}}, %[[TASK]], %[[THREAD]],
// CHECK-LABEL: llvm.func internal @again
// CHECK:         llvm.mlir.addressof @body_task :
// CHECK-NOT:   llvm.func {{.*}}@body_task_
func.func private @parallel(%x: memref<?xf32>, %f: f32, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    stem.parallel_call @body tasks %n(%x, %f) : memref<?xf32>, f32
  }
  return
}
func.func private @again(%x: memref<?xf32>, %f: f32, %n: index) {
  stem.parallel_call @body tasks %n(%x, %f) : memref<?xf32>, f32
  return
}
func.func private @body(%task: index, %thread: index, %x: memref<?xf32>, %f: f32) {
  memref.store %f, %x[%task] : memref<?xf32>
  return
}

// -----

// Conversions to bf16 are spelled out for a CPU without them, and the lanes of
// a sum are added as a tree.

// CHECK-LABEL: llvm.func internal @vectors
// CHECK-NOT:     fptrunc
// CHECK:         llvm.intr.vector.reduce.fadd{{.*}}reassoc
func.func private @vectors(%x: memref<64xf32>, %y: memref<64xbf16>) {
  %c0 = arith.constant 0 : index
  %v = vector.load %x[%c0] : memref<64xf32>, vector<16xf32>
  %t = arith.truncf %v : vector<16xf32> to vector<16xbf16>
  vector.store %t, %y[%c0] : memref<64xbf16>, vector<16xbf16>
  %s = vector.reduction <add>, %v : vector<16xf32> into f32
  memref.store %s, %x[%c0] : memref<64xf32>
  return
}

// -----

// Operands of products over tokens: element types by their numbers, rows with
// their strides. A product with panels is one with a packed matrix of as many
// columns as the panels have.

// CHECK-LABEL: llvm.func internal @panels
// CHECK-SAME:    (%[[CONTEXT:[^:]*]]: !llvm.ptr
// CHECK:         %[[BF16:.*]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         llvm.call @stem_pack_tokens(%{{[^,]*}}, %{{[^,]*}}, %[[BF16]], %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}) : (!llvm.ptr, i64, i32, i64, i64, !llvm.ptr) -> ()
// CHECK:         %[[BF16:.*]] = llvm.mlir.constant(1 : i32) : i32
// CHECK:         llvm.call @stem_transpose_tokens(%{{[^,]*}}, %{{[^,]*}}, %[[BF16]], %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}) : (!llvm.ptr, i64, i32, i64, i64, !llvm.ptr, i64) -> ()
// CHECK:         %[[PANEL:.*]] = llvm.mlir.constant(64 : i64) : i64
// CHECK:         %[[COLUMNS:.*]] = llvm.mul %{{.*}}, %[[PANEL]] : i64
// CHECK:         %[[ADDS:.*]] = llvm.zext %{{.*}} : i1 to i32
// CHECK:         %[[DEPTH:.*]] = llvm.mlir.constant(62 : i64) : i64
// CHECK:         llvm.call @stem_packed_matmul(%[[CONTEXT]], %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %[[DEPTH]], %[[COLUMNS]], {{.*}}, %[[ADDS]])
func.func private @panels(%x: memref<?x40xbf16, strided<[80, 1], offset: ?>>, %p: memref<1x3968xbf16, strided<[3968, 1], offset: ?>>, %o: memref<40x?xbf16, strided<[64, 1]>>, %ps: memref<2x3968xbf16>, %y: memref<40x100xf32>, %adds: i1) {
  stem.pack_tokens %x into %p : (memref<?x40xbf16, strided<[80, 1], offset: ?>>, memref<1x3968xbf16, strided<[3968, 1], offset: ?>>) -> ()
  stem.transpose_tokens %x into %o : (memref<?x40xbf16, strided<[80, 1], offset: ?>>, memref<40x?xbf16, strided<[64, 1]>>) -> ()
  stem.panel_matmul %o, %ps into %y accumulate %adds {depth = 62 : i64} : (memref<40x?xbf16, strided<[64, 1]>>, memref<2x3968xbf16>, memref<40x100xf32>, i1) -> ()
  return
}

// CHECK-LABEL: llvm.func internal @panels_f32
// CHECK:         %[[F32:.*]] = llvm.mlir.constant(0 : i32) : i32
// CHECK:         llvm.call @stem_pack_tokens(%{{[^,]*}}, %{{[^,]*}}, %[[F32]],
func.func private @panels_f32(%x: memref<?x40xf32>, %p: memref<1x4096xf32>) {
  stem.pack_tokens %x into %p : (memref<?x40xf32>, memref<1x4096xf32>) -> ()
  return
}
