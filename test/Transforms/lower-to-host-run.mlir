// RUN: stem-opt %s --stem-plan-memory --stem-outline-parallel --stem-lower-to-host=stem-isa=1 | mlir-translate --mlir-to-llvmir -o %t.ll
// RUN: clang-22 -Wno-override-module -O1 -march=native -I%stem_src/include %t.ll %S/Inputs/dump_module.c %S/Inputs/run_decode.c -o %t
// RUN: %t | FileCheck %s

// What a module says of itself, and what a step computes and calls. The runtime
// is Inputs/run_decode.c.

// CHECK:      module size 1 abi 3 isa 1
// CHECK-NEXT: entry 'decode' function 1 tile 1 bytes 0 512 0 256
// CHECK-NEXT:   argument 'ids' key '' kind 0 dtype 2 packed 0 sizes [-1] strides [0] rows 1 ids 1 10
// CHECK-NEXT:   argument 'x' key '' kind 0 dtype 0 packed 0 sizes [-1, 64] strides [0, 0] rows 1 ids 0 0
// CHECK-NEXT:   argument 'l0.w' key 'layers.0.w' kind 2 dtype 0 packed 1 sizes [64, 64] strides [] rows 0 ids 0 0
// CHECK-NEXT:   argument 'bias' key 'layers.0.bias' kind 2 dtype 0 packed 0 sizes [64] strides [0] rows 0 ids 0 0
// CHECK-NEXT:   argument 'y' key '' kind 1 dtype 0 packed 0 sizes [-1, 64] strides [0, 0] rows 2 ids 0 0
// CHECK-NEXT:   argument 'cache' key '' kind 4 dtype 5 packed 0 sizes [0, -1, -1] strides [0, 0, 0] rows 0 ids 0 0 element -1
// CHECK-NEXT:   argument 'tables' key '' kind 3 dtype 5 packed 0 sizes [] strides [] rows 0 ids 0 0
// CHECK-NEXT:   tables 2 1
// CHECK-NEXT: entry 'attend' function 1 tile 1 bytes 0 0 0 0
// CHECK-NEXT:   argument 'k' key '' kind 0 dtype 1 packed 0 sizes [-1, 64] strides [0, 0] rows 1 ids 0 0
// CHECK-NEXT:   argument 'positions' key '' kind 0 dtype 2 packed 0 sizes [-1] strides [0] rows 1 ids 0 0
// CHECK-NEXT:   argument 'labels' key '' kind 0 dtype 2 packed 0 sizes [-1] strides [0] rows 1 ids 2 10
// CHECK-NEXT:   argument 'output_rows' key '' kind 0 dtype 2 packed 0 sizes [-1] strides [0] rows 2 ids 3 0
// CHECK-NEXT:   argument 'cache' key '' kind 4 dtype 5 packed 0 sizes [4, 64, 16] strides [0, 0, 0] rows 0 ids 0 0 element 1
// CHECK-NEXT:   tables 2 1
// CHECK-NEXT: entry 'step' function 1 tile 1 bytes 0 0 0 0
// CHECK-NEXT:   argument 'row_index' key '' kind 0 dtype 2 packed 0 sizes [-1] strides [0] rows 1 ids 4 0
// CHECK-NEXT:   argument 'l0.w' key 'layers.0.w' kind 2 dtype 0 packed 2 sizes [64, 64] strides [] rows 0 ids 0 0
// CHECK-NEXT:   argument 'gradient of l0.w' key 'layers.0.w' kind 1 dtype 0 packed 0 sizes [64, 64] strides [0, 0] rows 0 ids 0 0
// CHECK-NEXT:   argument 'gradient of t0' key 'layers.0.table' kind 1 dtype 0 packed 0 sizes [-1, 64] strides [0, 0] rows 2 ids 0 0
// CHECK-NEXT:   tables 2 1
// CHECK-NEXT: table 't0' key 'layers.0.table' 10 x 64 dtype 0
// CHECK-NEXT: table 't1' key 'layers.1.table' 10 x 64 dtype 0

// One plan for both tables; everything is given back, in the opposite order.
// CHECK-NEXT: step: check 7; plan 3; prefetch 0; prefetch 1; await 100; release 100; await 101; release 101; release_plan 1; status 0
// CHECK-NEXT: values right
// What a failure leaves outstanding ends with the plan.
// CHECK-NEXT: check 7: check 7; status 4
// CHECK-NEXT: plan 3: check 7; plan 3; status 4
// CHECK-NEXT: prefetch 0: check 7; plan 3; prefetch 0; release_plan 1; status 4
// CHECK-NEXT: prefetch 1: check 7; plan 3; prefetch 0; prefetch 1; release_plan 1; status 4
// CHECK-NEXT: await 100: check 7; plan 3; prefetch 0; prefetch 1; await 100; release_plan 1; status 4
// CHECK-NEXT: await 101: check 7; plan 3; prefetch 0; prefetch 1; await 100; release 100; await 101; release_plan 1; status 4

stem.param @l0.w = "layers.0.w" : tensor<64x64xf32>
stem.param @bias = "layers.0.bias" : tensor<64xf32>
stem.table @t0 = "layers.0.table" : !stem.table<10x64xf32>
stem.table @t1 = "layers.1.table" : !stem.table<10x64xf32>
// y = (x w + rows[index]) + bias, per token.
func.func private @layer(%x: memref<?x64xf32>, %w: !stem.packed<64x64xf32>, %rows: memref<?x64xf32>, %index: memref<?xi32>, %bias: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %t = memref.dim %x, %c0 : memref<?x64xf32>
  %a = memref.alloc(%t) {alignment = 64 : i64} : memref<?x64xf32>
  scf.forall (%n) in (1) {
    %off = arith.muli %n, %c64 : index
    stem.packed_matmul %x, %w[%c0, %off] into %a : (memref<?x64xf32>, !stem.packed<64x64xf32>, memref<?x64xf32>, index, index) -> ()
  }
  %zero = arith.constant 0.0 : f32
  scf.forall (%i, %h) = (0, 0) to (%t, 64) step (1, 32) {
    %tmp = memref.alloc() : memref<64xf32>
    %j = memref.load %index[%i] : memref<?xi32>
    %row = arith.index_cast %j : i32 to index
    %end = affine.apply affine_map<(d0) -> (d0 + 32)>(%h)
    scf.for %c = %h to %end step %c16 {
      %v = vector.load %a[%i, %c] : memref<?x64xf32>, vector<16xf32>
      %r = vector.load %rows[%row, %c] : memref<?x64xf32>, vector<16xf32>
      %b = vector.load %bias[%c] : memref<64xf32>, vector<16xf32>
      %s = arith.addf %v, %r : vector<16xf32>
      %s2 = arith.addf %s, %b : vector<16xf32>
      vector.store %s2, %tmp[%c] : memref<64xf32>, vector<16xf32>
    }
    %from = memref.subview %tmp[%h] [32] [1] : memref<64xf32> to memref<32xf32, strided<[1], offset: ?>>
    scf.for %c = %c0 to %c16 step %c16 {
      %q = vector.transfer_read %from[%c], %zero : memref<32xf32, strided<[1], offset: ?>>, vector<32xf32>
      %to = memref.subview %x[%i, %h] [1, 32] [1, 1] : memref<?x64xf32> to memref<32xf32, strided<[1], offset: ?>>
      vector.transfer_write %q, %to[%c] : vector<32xf32>, memref<32xf32, strided<[1], offset: ?>>
    }
  }
  return
}
func.func @decode(%ids: memref<?xi32> {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 10 : i64},
    %x: memref<?x64xf32> {stem.name = "x", stem.rows = "tokens"},
    %w: !stem.packed<64x64xf32> {stem.param = @l0.w},
    %bias: memref<64xf32> {stem.param = @bias},
    %t0: !stem.table<10x64xf32> {stem.table = @t0},
    %t1: !stem.table<10x64xf32> {stem.table = @t1},
    %y: memref<?x64xf32> {stem.name = "y", stem.output, stem.rows = "outputs"},
    %cache: !stem.kv_cache {stem.name = "cache"}) attributes {stem.entry, stem.tile = 1 : i64} {
  %c0 = arith.constant 0 : index
  %t = memref.dim %ids, %c0 : memref<?xi32>
  %h = memref.alloc(%t) : memref<?x64xf32>
  memref.copy %x, %h : memref<?x64xf32> to memref<?x64xf32>
  %plan = stem.plan_rows %ids : memref<?xi32>
  %k0 = stem.prefetch %t0, %plan : !stem.table<10x64xf32> -> !stem.ticket<64xf32>
  %k1 = stem.prefetch %t1, %plan : !stem.table<10x64xf32> -> !stem.ticket<64xf32>
  %rows, %index = stem.await %k0 : !stem.ticket<64xf32> -> memref<?x64xf32>, memref<?xi32>
  call @layer(%h, %w, %rows, %index, %bias) : (memref<?x64xf32>, !stem.packed<64x64xf32>, memref<?x64xf32>, memref<?xi32>, memref<64xf32>) -> ()
  stem.release %k0 : !stem.ticket<64xf32>
  %rows1, %index1 = stem.await %k1 : !stem.ticket<64xf32> -> memref<?x64xf32>, memref<?xi32>
  call @layer(%h, %w, %rows1, %index1, %bias) : (memref<?x64xf32>, !stem.packed<64x64xf32>, memref<?x64xf32>, memref<?xi32>, memref<64xf32>) -> ()
  stem.release %k1 : !stem.ticket<64xf32>
  // The last rows are the outputs.
  %r = memref.dim %y, %c0 : memref<?x64xf32>
  %first = arith.subi %t, %r : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %r step %c1 {
    %s = arith.addi %i, %first : index
    scf.for %j = %c0 to %c64 step %c1 {
      %v = memref.load %h[%s, %j] : memref<?x64xf32>
      memref.store %v, %y[%i, %j] : memref<?x64xf32>
    }
  }
  return
}
// Described and not run: what is appended and read says what the cache is, the
// calls how many layers it has.
func.func private @cache_layer(%k: memref<?x64xbf16>, %p: memref<?xi32>, %n: i32, %cache: !stem.kv_cache, %number: index) {
  stem.kv_append %k, %k at %p of %p in %cache[%number] : memref<?x64xbf16>, memref<?x64xbf16>, memref<?xi32>, memref<?xi32>
  scf.forall (%head) in (4) {
    %keys = stem.kv_page %cache[%number, %n, %head, %head] : !stem.packed<16x64xbf16>
    %values = stem.kv_page values %cache[%number, %n, %head, %head] : !stem.packed<64x16xbf16>
  }
  return
}
func.func @attend(%k: memref<?x64xbf16> {stem.name = "k", stem.rows = "tokens"},
    %p: memref<?xi32> {stem.name = "positions", stem.rows = "tokens"},
    %labels: memref<?xi32> {stem.name = "labels", stem.rows = "tokens", stem.label_bound = 10 : i64},
    %rows: memref<?xi32> {stem.name = "output_rows", stem.rows = "outputs", stem.row_index},
    %cache: !stem.kv_cache {stem.name = "cache"}) attributes {stem.entry, stem.tile = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %n = arith.constant 0 : i32
  %t = memref.dim %p, %c0 : memref<?xi32>
  call @cache_layer(%k, %p, %n, %cache, %c3) : (memref<?x64xbf16>, memref<?xi32>, i32, !stem.kv_cache, index) -> ()
  call @cache_layer(%k, %p, %n, %cache, %c0) : (memref<?x64xbf16>, memref<?xi32>, i32, !stem.kv_cache, index) -> ()
  call @cache_layer(%k, %p, %n, %cache, %t) : (memref<?x64xbf16>, memref<?xi32>, i32, !stem.kv_cache, index) -> ()
  return
}
// As well: what a training step takes and gives.
func.func @step(%i: memref<?xi32> {stem.name = "row_index", stem.rows = "tokens", stem.output_index},
    %w: !stem.packed<64x64xf32> {stem.param = @l0.w, stem.transposed},
    %dw: memref<64x64xf32> {stem.name = "gradient of l0.w", stem.output, stem.gradient_of = @l0.w},
    %dt: memref<?x64xf32> {stem.name = "gradient of t0", stem.output, stem.rows = "outputs", stem.gradient_of = @t0}) attributes {stem.entry, stem.tile = 1 : i64} {
  return
}
