// RUN: stem-opt %s --stem-print-cost='stem-tokens=4 stem-gflops=1 stem-bandwidth-gbs=1' -o /dev/null | FileCheck %s
// RUN: stem-opt %s --stem-print-cost='stem-tokens=4 stem-gflops=1 stem-bandwidth-gbs=1 stem-json=true' -o /dev/null | %python -m json.tool --compact | FileCheck %s --check-prefix=JSON


// 2 * 4 * 128 multiply-adds and 4 * 5 * 8 for the gate; 4 tokens of 8 and 8
// 16 floats, 128 weights.
// CHECK: @layer
// CHECK-NEXT: op {{ *}}FLOPs {{ *}}bytes {{ *}}parameters {{ *}}FLOP/B {{ *}}share  bound
// CHECK-NEXT: stem.linear {{ *}}1024 {{ *}}896 {{ *}}128 {{ *}}1.14 {{ *}}78.0%  compute
// CHECK-NEXT: stem.rope {{ *}}96 {{ *}}288 {{ *}}0 {{ *}}0.33 {{ *}}22.0%  memory
// CHECK-NEXT: sum {{ *}}1120 {{ *}}1184 {{ *}}128 {{ *}}0.95 {{ *}}100.0%
// CHECK-NEXT: roofline time 0.001312 ms
func.func private @layer(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %c: tensor<?x1xf32>) -> tensor<?x16xf32> {
  %y = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  %z = stem.rope %x, %c, %c : tensor<?x8xf32>, tensor<?x1xf32>, tensor<?x1xf32> -> tensor<?x8xf32>
  return %y : tensor<?x16xf32>
}

// A bound: as if all four tokens were selected.
// CHECK: @select
// CHECK: stem.select_up {{ *}}1088 {{ *}}1252 {{ *}}128
func.func @select(%u: tensor<?x16xf32>, %x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %b: tensor<16xf32>, %i: tensor<?xi32>, %s: tensor<5xi32>) -> tensor<?x16xf32> {
  %0 = stem.select_up %u, %x weight %w bias %b ids %i in %s : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<5xi32>, tensor<16xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}

// A call costs what it calls.
// CHECK: @twice
// CHECK: call @layer {{ *}}1120 {{ *}}1184 {{ *}}128
// CHECK-NEXT: call @layer {{ *}}1120 {{ *}}1184 {{ *}}128
// CHECK-NEXT: sum {{ *}}2240 {{ *}}2368 {{ *}}256
func.func @twice(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %c: tensor<?x1xf32>) -> tensor<?x16xf32> {
  %0 = call @layer(%x, %w, %c) : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x1xf32>) -> tensor<?x16xf32>
  %1 = call @layer(%x, %w, %c) : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x1xf32>) -> tensor<?x16xf32>
  return %1 : tensor<?x16xf32>
}

// Packed matrices and pages: the block that the product reads, all of the
// parameters; a page is no parameter.
// CHECK: @packed
// CHECK: stem.packed_matmul {{ *}}65536 {{ *}}35840 {{ *}}16384
// CHECK-NEXT: stem.packed_matmul {{ *}}65536 {{ *}}36864 {{ *}}16384
// CHECK-NEXT: stem.packed_gather {{ *}}0 {{ *}}4112 {{ *}}16384
// CHECK-NEXT: stem.kv_append {{ *}}0 {{ *}}4128 {{ *}}0
// CHECK-NEXT: stem.kv_page {{ *}}0 {{ *}}0 {{ *}}0
// CHECK-NEXT: stem.packed_matmul {{ *}}32768 {{ *}}18432 {{ *}}0
// CHECK-NEXT: stem.attend {{ *}}2088 {{ *}}2080 {{ *}}0
func.func @packed(%a: tensor<4x128xf32>, %b: !stem.packed<128x128xf32>, %o: tensor<?x64xf32>, %ids: tensor<?xi32>, %g: tensor<?x128xf32>, %bg: !stem.packed<128x128xf32>, %k: tensor<4x64xf32>, %p: tensor<4xi32>, %c: !stem.kv_cache, %l: index, %s: i32) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %acc = tensor.cast %o : tensor<?x64xf32> to tensor<4x64xf32>
  %0 = stem.packed_matmul %a, %b[%c0, %c64] into %o : (tensor<4x128xf32>, !stem.packed<128x128xf32>, tensor<?x64xf32>, index, index) -> tensor<?x64xf32>
  %1 = stem.packed_matmul accumulate %a, %b[%c0, %c64] into %acc : (tensor<4x128xf32>, !stem.packed<128x128xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  %2 = stem.packed_gather %ids, %bg into %g : (tensor<?xi32>, !stem.packed<128x128xf32>, tensor<?x128xf32>) -> tensor<?x128xf32>
  stem.kv_append %k, %k at %p of %p in %c[%l] : tensor<4x64xf32>, tensor<4x64xf32>, tensor<4xi32>, tensor<4xi32>
  %page = stem.kv_page %c[%l, %s, %c0, %c0] : !stem.packed<64x64xf32>
  %3 = stem.packed_matmul %k, %page[%c0, %c0] into %acc : (tensor<4x64xf32>, !stem.packed<64x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  %4 = stem.attend %k at %p of %p cache %c[%l] {head_dim = 64 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : tensor<4x64xf32>, tensor<4xi32>, tensor<4xi32> -> tensor<4x64xf32>
  return
}

// linalg: the arithmetic of the body times the loops. A fill writes; a product
// reads what it adds to; an element that the body picks is read there.
// CHECK: @linalg
// CHECK: linalg.fill {{ *}}0 {{ *}}256
// CHECK-NEXT: linalg.matmul {{ *}}1024 {{ *}}1152
// CHECK-NEXT: linalg.generic {{ *}}128 {{ *}}768
func.func @linalg(%x: tensor<?x8xf32>, %w: tensor<8x16xf32>, %rows: tensor<100x16xf32>) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%n) : tensor<?x16xf32>
  %0 = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %1 = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x16xf32>) outs(%0 : tensor<?x16xf32>) -> tensor<?x16xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<?x16xf32>) outs(%e : tensor<?x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %row = tensor.extract %rows[%i, %j] : tensor<100x16xf32>
    %narrow = arith.truncf %in : f32 to bf16
    %wide = arith.extf %narrow : bf16 to f32
    %s = math.exp %wide : f32
    %p = arith.mulf %s, %row : f32
    linalg.yield %p : f32
  } -> tensor<?x16xf32>
  return %2 : tensor<?x16xf32>
}

// An index is 8 bytes, picked or read whole.
// CHECK: @indices
// CHECK: linalg.generic {{ *}}0 {{ *}}192
func.func @indices(%x: tensor<8xindex>, %rows: tensor<100xindex>, %e: tensor<8xindex>) -> tensor<8xindex> {
  %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%x : tensor<8xindex>) outs(%e : tensor<8xindex>) {
  ^bb0(%in: index, %out: index):
    %i = tensor.extract %rows[%in] : tensor<100xindex>
    linalg.yield %i : index
  } -> tensor<8xindex>
  return %0 : tensor<8xindex>
}

// In a loop once for each round, parameters once; a tile that is not full costs
// what a full one does. A loop with unknown bounds is one round.
// CHECK: @loops
// CHECK: stem.linear {{ *}}3072 {{ *}}2688 {{ *}}128
// CHECK-NEXT: call @layer {{ *}}3360 {{ *}}3552 {{ *}}128
// CHECK-NEXT: stem.linear {{ *}}2048 {{ *}}1792 {{ *}}128
// CHECK-NEXT: stem.linear {{ *}}1024 {{ *}}896 {{ *}}128
// CHECK-NEXT: call @task {{ *}}2048 {{ *}}1792 {{ *}}128
// CHECK-NEXT: sum
func.func private @task(%task: index, %thread: index, %x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  %y = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return
}
func.func @loops(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %c: tensor<?x1xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %t = tensor.dim %x, %c0 : tensor<?x8xf32>
  %tiles = arith.divui %t, %c3 : index
  scf.for %i = %c0 to %c3 step %c1 {
    %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
    %1 = func.call @layer(%x, %w, %c) : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x1xf32>) -> tensor<?x16xf32>
  }
  scf.forall (%i) in (%tiles) {
    %2 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  }
  scf.for %i = %c0 to %n step %c1 {
    %3 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  }
  stem.parallel_call @task tasks %c2(%x, %w) : tensor<?x8xf32>, tensor<16x8xf32>
  return
}

// JSON: {"schema":"stem.cost/1","tokens":4,"gflops":1,"bandwidth_gbs":1,"functions":[{"name":"layer","ops":[{"op":"stem.linear","flops":1024,"bytes":896,"parameters":128,
// JSON-SAME: {"name":"twice"

// Gradients: elementwise ones are 1 to 10 FLOPs an element; products are two
// for each one of the forward and those that are computed again; a packed or
// two-byte weight has a gradient in f32.
// CHECK: @gradients
// CHECK: stem.rms_norm_vjp {{ *}}320 {{ *}}416 {{ *}}0
// CHECK-NEXT: stem.silu_vjp {{ *}}256 {{ *}}384 {{ *}}0
// CHECK-NEXT: stem.linear_input_vjp {{ *}}1024 {{ *}}640 {{ *}}128
// CHECK-NEXT: stem.linear_weight_vjp {{ *}}1024 {{ *}}896 {{ *}}0
// CHECK-NEXT: stem.sum_tokens {{ *}}64 {{ *}}320 {{ *}}0
// CHECK-NEXT: stem.attention_vjp {{ *}}800 {{ *}}672 {{ *}}0
// CHECK-NEXT: stem.attention_vjp {{ *}}400 {{ *}}672 {{ *}}0
// CHECK-NEXT: stem.dense_ffn_vjp {{ *}}8832 {{ *}}3712 {{ *}}384
// CHECK-NEXT: stem.gated_ffn_vjp {{ *}}5760 {{ *}}2944 {{ *}}256
// CHECK-NEXT: stem.cross_entropy_vjp {{ *}}7424 {{ *}}2336 {{ *}}256
// CHECK-NEXT: stem.embedding_vjp {{ *}}32 {{ *}}1168 {{ *}}0
// CHECK-NEXT: stem.keep_selected {{ *}}0 {{ *}}284 {{ *}}0
// CHECK-NEXT: stem.row_gradient {{ *}}0 {{ *}}144 {{ *}}0
// CHECK-NEXT: stem.merge_row_gradients {{ *}}0 {{ *}}0 {{ *}}0
// CHECK-NEXT: stem.table_gradient {{ *}}32 {{ *}}320 {{ *}}0
func.func @gradients(%x: tensor<?x8xf32>, %n: tensor<4xf32>, %h: tensor<?x16xf32>, %w: !stem.packed<8x16xbf16>, %k: tensor<?x4xf32>, %i: tensor<?xi32>, %g: tensor<16x8xf32>, %d: tensor<8x16xf32>, %b: tensor<16xf32>, %head: tensor<32x8xf32>, %c: tensor<?xf32>, %s: tensor<3xi32>) {
  %0:2 = stem.rms_norm_vjp %x, %n, %x {eps = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<4xf32>)
  %1 = stem.silu_vjp %x, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = stem.linear_input_vjp %h, %w : (tensor<?x16xf32>, !stem.packed<8x16xbf16>) -> tensor<?x8xf32>
  %3 = stem.linear_weight_vjp %x, %h : (tensor<?x8xf32>, tensor<?x16xf32>) -> tensor<16x8xf32>
  %4 = stem.sum_tokens %h : tensor<?x16xf32> -> tensor<16xf32>
  %5:3 = stem.attention_vjp %x, %k, %k, %x at %i of %i {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  %6:3 = stem.attention_vjp %x, %k, %k, %x at %i of %i {head_dim = 4 : i64, scale = 0.5 : f64, window = 1 : i64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  %7:6 = stem.dense_ffn_vjp %x gate %g up %g down %d cotangent %x gate_bias %b up_bias %b {resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<?x8xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  %8:4 = stem.gated_ffn_vjp %x gate %g rows %h down %d cotangent %x : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>)
  %9:2 = stem.cross_entropy_vjp %x, %head, %i, %c : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  %10 = stem.embedding_vjp %i, %x : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  %11 = stem.keep_selected %x ids %i in %s : (tensor<?x8xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x8xf32>
  %12 = stem.row_gradient %i, %x : tensor<?xi32>, tensor<?x8xf32> -> !stem.row_gradient<8xf32>
  %13 = stem.merge_row_gradients %12, %12 : !stem.row_gradient<8xf32>
  %14:2 = stem.table_gradient %13 index %i ids %i : (!stem.row_gradient<8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x8xf32>)
  return
}

// The pieces of a training step: elementwise ones as above; the loss and its
// derivative share the logits; panels are read once and written once.
// CHECK: @step
// CHECK: stem.rms_norm_input_vjp {{ *}}256 {{ *}}400 {{ *}}0
// CHECK-NEXT: stem.gate_vjp {{ *}}384 {{ *}}768 {{ *}}0
// CHECK-NEXT: stem.sum_rows {{ *}}32 {{ *}}1168 {{ *}}0
// CHECK-NEXT: stem.cross_entropy_step {{ *}}7424 {{ *}}2352 {{ *}}256
// CHECK-NEXT: stem.pack_tokens {{ *}}0 {{ *}}256 {{ *}}0
// CHECK-NEXT: stem.transpose_tokens {{ *}}0 {{ *}}256 {{ *}}0
// CHECK-NEXT: stem.panel_matmul {{ *}}512 {{ *}}1664 {{ *}}0
func.func @step(%x: tensor<?x8xf32>, %n: tensor<4xf32>, %i: tensor<?xi32>, %head: tensor<32x8xf32>, %c: tensor<?xf32>, %p: tensor<1x256xf32>, %o: tensor<8x?xf32>, %y: tensor<8x8xf32>, %adds: i1) {
  %0 = stem.rms_norm_input_vjp %x, %n, %x {eps = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %1:3 = stem.gate_vjp %x, %x, %x : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  %2 = stem.sum_rows %x by %i : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  %3:3 = stem.cross_entropy_step %x, %head, %i, %c : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  %4 = stem.pack_tokens %x into %p : (tensor<?x8xf32>, tensor<1x256xf32>) -> tensor<1x256xf32>
  %5 = stem.transpose_tokens %x into %o : (tensor<?x8xf32>, tensor<8x?xf32>) -> tensor<8x?xf32>
  %6 = stem.panel_matmul %5, %4 into %y accumulate %adds {depth = 4 : i64} : (tensor<8x?xf32>, tensor<1x256xf32>, tensor<8x8xf32>, i1) -> tensor<8x8xf32>
  return
}
