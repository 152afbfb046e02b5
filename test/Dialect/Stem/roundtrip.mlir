// RUN: stem-opt %s --verify-roundtrip | FileCheck %s
// RUN: stem-opt %s --mlir-print-op-generic | stem-opt | FileCheck %s

// Every op and type of the dialect, printed and parsed again.

// CHECK: stem.param @gate = "mlp.gate" : tensor<16x8xbf16>
stem.param @gate = "mlp.gate" : tensor<16x8xbf16>
// CHECK: stem.table @up = "mlp.up" : !stem.table<32x16xbf16>
stem.table @up = "mlp.up" : !stem.table<32x16xbf16>

// CHECK-LABEL: func.func @state
func.func @state() -> (tensor<16x8xbf16>, !stem.packed<8x16xbf16>, !stem.table<32x16xbf16>) {
  // CHECK: stem.param_load @gate : tensor<16x8xbf16>
  %0 = stem.param_load @gate : tensor<16x8xbf16>
  // CHECK: stem.param_load @gate : !stem.packed<8x16xbf16>
  %1 = stem.param_load @gate : !stem.packed<8x16xbf16>
  // CHECK: stem.table_load @up : !stem.table<32x16xbf16>
  %2 = stem.table_load @up : !stem.table<32x16xbf16>
  return %0, %1, %2 : tensor<16x8xbf16>, !stem.packed<8x16xbf16>, !stem.table<32x16xbf16>
}

// CHECK-LABEL: func.func @embedding
func.func @embedding(%ids: tensor<?xi32>, %w: tensor<32x8xbf16>) -> tensor<?x8xf32> {
  // CHECK: stem.embedding %{{.*}}, %{{.*}} : tensor<?xi32>, tensor<32x8xbf16> -> tensor<?x8xf32>
  %0 = stem.embedding %ids, %w : tensor<?xi32>, tensor<32x8xbf16> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @rms_norm
func.func @rms_norm(%x: tensor<?x8xf32>, %w: tensor<4xf32>) -> tensor<?x8xbf16> {
  // CHECK: stem.rms_norm %{{.*}}, %{{.*}} {eps = {{.*}} : f64} : tensor<?x8xf32>, tensor<4xf32> -> tensor<?x8xbf16>
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<?x8xf32>, tensor<4xf32> -> tensor<?x8xbf16>
  return %0 : tensor<?x8xbf16>
}

// CHECK-LABEL: func.func @silu
func.func @silu(%x: tensor<?x8xf32>) -> tensor<?x8xbf16> {
  // CHECK: stem.silu %{{.*}} : tensor<?x8xf32> -> tensor<?x8xbf16>
  %0 = stem.silu %x : tensor<?x8xf32> -> tensor<?x8xbf16>
  return %0 : tensor<?x8xbf16>
}

// CHECK-LABEL: func.func @linear
func.func @linear(%x: tensor<?x8xbf16>, %w: tensor<16x8xbf16>, %p: !stem.packed<8x16xbf16>, %b: tensor<16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  // CHECK: stem.linear %{{.*}}, %{{.*}} : tensor<?x8xbf16>, tensor<16x8xbf16> -> tensor<?x16xf32>
  %0 = stem.linear %x, %w : tensor<?x8xbf16>, tensor<16x8xbf16> -> tensor<?x16xf32>
  // CHECK: stem.linear %{{.*}}, %{{.*}} bias %{{.*}} : tensor<?x8xbf16>, !stem.packed<8x16xbf16>, tensor<16xf32> -> tensor<?x16xf32>
  %1 = stem.linear %x, %p bias %b : tensor<?x8xbf16>, !stem.packed<8x16xbf16>, tensor<16xf32> -> tensor<?x16xf32>
  return %0, %1 : tensor<?x16xf32>, tensor<?x16xf32>
}

// CHECK-LABEL: func.func @rotary
func.func @rotary(%x: tensor<?x8xf32>, %p: tensor<?xi32>) -> tensor<?x8xf32> {
  // CHECK: stem.rotary_angles %{{.*}} {inv_freq = array<f32: 1.000000e+00, 1.000000e-01>} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
  %c, %s = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.1>} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
  // CHECK: stem.rotary_angles %{{.*}} {inv_freq = array<f32: 1.000000e+00, 1.000000e-01>, scaling = 2.000000e+00 : f64}
  %c2, %s2 = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.1>, scaling = 2.0 : f64} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
  // CHECK: stem.rope %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
  %0 = stem.rope %x, %c, %s : tensor<?x8xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @attention
// CHECK-SAME: !stem.kv_cache
func.func @attention(%q: tensor<?x8xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %cache: !stem.kv_cache, %layer: index) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  // CHECK: stem.attention %{{.*}}, %{{.*}}, %{{.*}} at %{{.*}} of %{{.*}} {head_dim = 4 : i64, scale = 5.000000e-01 : f64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  // CHECK: stem.attention {{.*}} cache %{{.*}}[%{{.*}}] {head_dim = 4 : i64, scale = 5.000000e-01 : f64, window = 16 : i64}
  %1 = stem.attention %q, %k, %v at %p of %s cache %cache[%layer] {head_dim = 4 : i64, scale = 0.5 : f64, window = 16 : i64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  return %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @dense_ffn
func.func @dense_ffn(%x: tensor<?x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %bg: tensor<16xf32>, %bd: tensor<8xf32>) -> tensor<?x8xf32> {
  // CHECK: stem.dense_ffn %{{.*}} gate %{{.*}} up %{{.*}} down %{{.*}} gate_bias %{{.*}} up_bias %{{.*}} down_bias %{{.*}} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  %0 = stem.dense_ffn %x gate %g up %u down %d gate_bias %bg up_bias %bg down_bias %bd : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  // CHECK: stem.dense_ffn %{{.*}} gate %{{.*}} up %{{.*}} down %{{.*}} : (
  %1 = stem.dense_ffn %0 gate %g up %u down %d : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @cross_entropy
func.func @cross_entropy(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %l: tensor<?xi32>) -> tensor<?xf32> {
  // CHECK: stem.cross_entropy %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32> -> tensor<?xf32>
  %0 = stem.cross_entropy %x, %h, %l : tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32> -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// CHECK-LABEL: func.func @table_ffn
func.func @table_ffn(%x: tensor<?x8xf32>, %ids: tensor<?xi32>, %t: !stem.table<32x16xbf16>, %map: tensor<64xi32>, %g: tensor<16x8xf32>, %d: !stem.packed<16x8xf32>, %bg: tensor<16xf32>, %bd: tensor<8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  // CHECK: stem.map_ids %{{.*}}, %{{.*}} {unknown = 0 : i32} : tensor<?xi32>, tensor<64xi32> -> tensor<?xi32>
  %m = stem.map_ids %ids, %map {unknown = 0 : i32} : tensor<?xi32>, tensor<64xi32> -> tensor<?xi32>
  // CHECK: stem.table_rows %{{.*}}, %{{.*}} : !stem.table<32x16xbf16>, tensor<?xi32> -> tensor<?x16xbf16>, tensor<?xi32>
  %rows, %index = stem.table_rows %t, %m : !stem.table<32x16xbf16>, tensor<?xi32> -> tensor<?x16xbf16>, tensor<?xi32>
  // CHECK: stem.lookup %{{.*}}, %{{.*}} : tensor<?x16xbf16>, tensor<?xi32> -> tensor<?x16xf32>
  %up = stem.lookup %rows, %index : tensor<?x16xbf16>, tensor<?xi32> -> tensor<?x16xf32>
  // CHECK: stem.gated_ffn %{{.*}} gate %{{.*}} rows %{{.*}} down %{{.*}} gate_bias %{{.*}} down_bias %{{.*}} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, !stem.packed<16x8xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  %0 = stem.gated_ffn %x gate %g rows %up down %d gate_bias %bg down_bias %bd : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, !stem.packed<16x8xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  // CHECK: stem.fused_ffn %{{.*}} gate %{{.*}} rows %{{.*}}[%{{.*}}] down %{{.*}} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xbf16>, tensor<?xi32>, !stem.packed<16x8xf32>) -> tensor<?x8xf32>
  %1 = stem.fused_ffn %x gate %g rows %rows[%index] down %d : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xbf16>, tensor<?xi32>, !stem.packed<16x8xf32>) -> tensor<?x8xf32>
  return %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @tickets
func.func @tickets(%ids: tensor<?xi32>, %idsm: memref<?xi32>, %t: !stem.table<32x16xbf16>) {
  // CHECK: %[[P:.*]] = stem.plan_rows %{{.*}} : tensor<?xi32>
  %p = stem.plan_rows %ids : tensor<?xi32>
  // CHECK: %[[K:.*]] = stem.prefetch %{{.*}}, %[[P]] : !stem.table<32x16xbf16> -> !stem.ticket<16xbf16>
  %k = stem.prefetch %t, %p : !stem.table<32x16xbf16> -> !stem.ticket<16xbf16>
  // CHECK: stem.await %[[K]] : !stem.ticket<16xbf16> -> tensor<?x16xbf16>, tensor<?xi32>
  %rows, %index = stem.await %k : !stem.ticket<16xbf16> -> tensor<?x16xbf16>, tensor<?xi32>
  // CHECK: stem.release %[[K]] : !stem.ticket<16xbf16>
  stem.release %k : !stem.ticket<16xbf16>
  // CHECK: stem.plan_rows %{{.*}} : memref<?xi32>
  %pm = stem.plan_rows %idsm : memref<?xi32>
  %km = stem.prefetch %t, %pm : !stem.table<32x16xbf16> -> !stem.ticket<16xbf16>
  // CHECK: stem.await %{{.*}} : !stem.ticket<16xbf16> -> memref<?x16xbf16>, memref<?xi32>
  %rowsm, %indexm = stem.await %km : !stem.ticket<16xbf16> -> memref<?x16xbf16>, memref<?xi32>
  stem.release %km : !stem.ticket<16xbf16>
  return
}

// CHECK-LABEL: func.func @plan_argument
// CHECK-SAME: !stem.row_plan
func.func @plan_argument(%p: !stem.row_plan) {
  return
}

// CHECK-LABEL: func.func @hybrids
func.func @hybrids(%up: tensor<?x16xf32>, %x: tensor<?x8xf32>, %a: tensor<16x2xf32>, %b: tensor<2x8xf32>, %w: tensor<16x8xf32>, %ids: tensor<?xi32>, %selected: tensor<3xi32>, %bias: tensor<16xf32>) -> tensor<?x16xf32> {
  // CHECK: stem.mix %{{.*}}, %{{.*}} a %{{.*}} b %{{.*}} : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x2xf32>, tensor<2x8xf32>) -> tensor<?x16xf32>
  %0 = stem.mix %up, %x a %a b %b : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x2xf32>, tensor<2x8xf32>) -> tensor<?x16xf32>
  // CHECK: stem.select_up %{{.*}}, %{{.*}} weight %{{.*}} ids %{{.*}} in %{{.*}} : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x16xf32>
  %1 = stem.select_up %0, %x weight %w ids %ids in %selected : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x16xf32>
  // CHECK: stem.select_up %{{.*}}, %{{.*}} weight %{{.*}} bias %{{.*}} ids %{{.*}} in %{{.*}} : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<3xi32>, tensor<16xf32>) -> tensor<?x16xf32>
  %2 = stem.select_up %1, %x weight %w bias %bias ids %ids in %selected : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<3xi32>, tensor<16xf32>) -> tensor<?x16xf32>
  return %2 : tensor<?x16xf32>
}

// CHECK-LABEL: func.func @packed_matmul
func.func @packed_matmul(%a: tensor<4x8xf32>, %b: !stem.packed<8x64xf32>, %acc: tensor<4x64xf32>, %am: memref<4x8xf32>, %accm: memref<4x64xf32>, %o: index) -> tensor<4x64xf32> {
  // CHECK: stem.packed_matmul %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}] into %{{.*}} : (tensor<4x8xf32>, !stem.packed<8x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  %0 = stem.packed_matmul %a, %b[%o, %o] into %acc : (tensor<4x8xf32>, !stem.packed<8x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  // CHECK: stem.packed_matmul accumulate %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}] into %{{.*}} : (memref<4x8xf32>, !stem.packed<8x64xf32>, memref<4x64xf32>, index, index) -> ()
  stem.packed_matmul accumulate %am, %b[%o, %o] into %accm : (memref<4x8xf32>, !stem.packed<8x64xf32>, memref<4x64xf32>, index, index) -> ()
  return %0 : tensor<4x64xf32>
}

// CHECK-LABEL: func.func @packed_gather
func.func @packed_gather(%i: tensor<?xi32>, %b: !stem.packed<8x64xbf16>, %out: tensor<?x8xf32>, %im: memref<4xi32>, %outm: memref<4x8xf32>) -> tensor<?x8xf32> {
  // CHECK: stem.packed_gather %{{.*}}, %{{.*}} into %{{.*}} : (tensor<?xi32>, !stem.packed<8x64xbf16>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %0 = stem.packed_gather %i, %b into %out : (tensor<?xi32>, !stem.packed<8x64xbf16>, tensor<?x8xf32>) -> tensor<?x8xf32>
  // CHECK: stem.packed_gather %{{.*}}, %{{.*}} into %{{.*}} : (memref<4xi32>, !stem.packed<8x64xbf16>, memref<4x8xf32>) -> ()
  stem.packed_gather %im, %b into %outm : (memref<4xi32>, !stem.packed<8x64xbf16>, memref<4x8xf32>) -> ()
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @cache
func.func @cache(%k: tensor<4x8xf32>, %p: tensor<4xi32>, %s: tensor<4xi32>, %c: !stem.kv_cache, %i: index, %seq: i32) -> (!stem.packed<4x64xbf16>, !stem.packed<64x4xbf16>) {
  // CHECK: stem.kv_append %{{.*}}, %{{.*}} at %{{.*}} of %{{.*}} in %{{.*}}[%{{.*}}] : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>, tensor<4xi32>
  stem.kv_append %k, %k at %p of %s in %c[%i] : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>, tensor<4xi32>
  // CHECK: stem.kv_page %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] : !stem.packed<4x64xbf16>
  %0 = stem.kv_page %c[%i, %seq, %i, %i] : !stem.packed<4x64xbf16>
  // CHECK: stem.kv_page values %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] : !stem.packed<64x4xbf16>
  %1 = stem.kv_page values %c[%i, %seq, %i, %i] : !stem.packed<64x4xbf16>
  return %0, %1 : !stem.packed<4x64xbf16>, !stem.packed<64x4xbf16>
}

// CHECK-LABEL: func.func @attend
func.func @attend(%q: tensor<?x8xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x8xf32> {
  // CHECK: stem.attend %{{.*}} at %{{.*}} of %{{.*}} cache %{{.*}}[%{{.*}}] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 5.000000e-01 : f64, window = 16 : i64} : tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 0.5 : f64, window = 16 : i64} : tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

func.func private @body(%task: index, %thread: index, %m: memref<4xf32>) {
  return
}

func.func private @bare(%task: index, %thread: index) {
  return
}

// CHECK-LABEL: func.func @parallel
func.func @parallel(%m: memref<4xf32>, %n: index) -> index {
  // CHECK: stem.thread_index
  %t = stem.thread_index
  // CHECK: stem.parallel_call @body tasks %{{.*}}(%{{.*}}) : memref<4xf32>
  stem.parallel_call @body tasks %n(%m) : memref<4xf32>
  // CHECK: stem.parallel_call @bare tasks %{{.*}}(){{$}}
  stem.parallel_call @bare tasks %n()
  return %t : index
}

// CHECK-LABEL: func.func @gradients_of_linear
func.func @gradients_of_linear(%x: tensor<?x8xf32>, %w: tensor<4xf32>, %c: tensor<?x8xf32>, %m: tensor<8x4xbf16>, %p: !stem.packed<4x8xbf16>) -> tensor<8xf32> {
  // CHECK: stem.rms_norm_vjp %{{.*}}, %{{.*}}, %{{.*}} {eps = {{.*}} : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<4xf32>)
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<4xf32>)
  // CHECK: stem.silu_vjp %{{.*}}, %{{.*}} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = stem.silu_vjp %x, %0#0 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  // CHECK: stem.linear_input_vjp %{{.*}}, %{{.*}} : (tensor<?x8xf32>, tensor<8x4xbf16>) -> tensor<?x4xf32>
  %2 = stem.linear_input_vjp %1, %m : (tensor<?x8xf32>, tensor<8x4xbf16>) -> tensor<?x4xf32>
  // CHECK: stem.linear_input_vjp %{{.*}}, %{{.*}} : (tensor<?x8xf32>, !stem.packed<4x8xbf16>) -> tensor<?x4xf32>
  %3 = stem.linear_input_vjp %1, %p : (tensor<?x8xf32>, !stem.packed<4x8xbf16>) -> tensor<?x4xf32>
  // CHECK: stem.linear_weight_vjp %{{.*}}, %{{.*}} : (tensor<?x4xf32>, tensor<?x8xf32>) -> tensor<8x4xf32>
  %4 = stem.linear_weight_vjp %2, %1 : (tensor<?x4xf32>, tensor<?x8xf32>) -> tensor<8x4xf32>
  // CHECK: stem.sum_tokens %{{.*}} : tensor<?x8xf32> -> tensor<8xf32>
  %5 = stem.sum_tokens %1 : tensor<?x8xf32> -> tensor<8xf32>
  return %5 : tensor<8xf32>
}

// CHECK-LABEL: func.func @gradients_of_attention
func.func @gradients_of_attention(%q: tensor<?x8xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %c: tensor<?x8xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> tensor<?x8xf32> {
  // CHECK: stem.attention_vjp %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at %{{.*}} of %{{.*}} {head_dim = 4 : i64, scale = 5.000000e-01 : f64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  // CHECK: stem.attention_vjp {{.*}} {head_dim = 4 : i64, scale = 5.000000e-01 : f64, window = 16 : i64}
  %1:3 = stem.attention_vjp %q, %k, %v, %0#0 at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64, window = 16 : i64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  return %1#0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @gradients_of_attention_in_pages
func.func @gradients_of_attention_in_pages(%q: tensor<?x8xbf16>, %k: tensor<?x4xbf16>, %p: tensor<?xi32>, %s: tensor<?xi32>, %keys: !stem.kv_cache, %queries: !stem.kv_cache) -> tensor<?x8xf32> {
  // CHECK: stem.attend_vjp %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} at %{{.*}} of %{{.*}} keys %{{.*}} queries %{{.*}} {head_dim = 4 : i64, scale = 5.000000e-01 : f64, window = 16 : i64} : tensor<?x8xbf16>, tensor<?x4xbf16>, tensor<?x4xbf16>, tensor<?x8xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  %0:3 = stem.attend_vjp %q, %k, %k, %q at %p of %s keys %keys queries %queries {head_dim = 4 : i64, scale = 0.5 : f64, window = 16 : i64} : tensor<?x8xbf16>, tensor<?x4xbf16>, tensor<?x4xbf16>, tensor<?x8xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return %0#0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @attention_with_logarithms
func.func @attention_with_logarithms(%q: tensor<?x8xf32>, %k: tensor<?x4xf32>, %p: tensor<?xi32>, %c: !stem.kv_cache, %n: index) -> tensor<?x8xf32> {
  // CHECK: %[[L:.*]] = stem.attention_logsumexp %{{.*}}, %{{.*}} at %{{.*}} of %{{.*}} {head_dim = 4 : i64, scale = 5.000000e-01 : f64, window = 16 : i64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2xf32>
  %l = stem.attention_logsumexp %q, %k at %p of %p {head_dim = 4 : i64, scale = 0.5 : f64, window = 16 : i64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2xf32>
  // CHECK: stem.attention_vjp %{{.*}}, %{{.*}}, %{{.*}}, %[[Q:.*]] forward %[[Q]], %[[L]] at
  %0:3 = stem.attention_vjp %q, %k, %k, %q forward %q, %l at %p of %p {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  // CHECK: %[[R:.*]], %[[M:.*]] = stem.attend {{.*}} -> tensor<?x8xf32>, tensor<?x2xf32>
  %r, %m = stem.attend %0#0 at %p of %p cache %c[%n] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>, tensor<?x2xf32>
  // CHECK: stem.attend_vjp {{.*}} forward %[[R]], %[[M]] : tensor<?x8xf32>, tensor<?x2xf32> at
  %1:3 = stem.attend_vjp %q, %k, %k, %q forward %r, %m : tensor<?x8xf32>, tensor<?x2xf32> at %p of %p keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  return %1#0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @gradients_of_ffns
func.func @gradients_of_ffns(%x: tensor<?x8xf32>, %g: tensor<16x8xf32>, %u: tensor<?x16xf32>, %d: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<?x8xf32> {
  // CHECK: stem.dense_ffn_vjp %{{.*}} gate %{{.*}} up %{{.*}} down %{{.*}} cotangent %{{.*}} {resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  %0:4 = stem.dense_ffn_vjp %x gate %g up %g down %d cotangent %x {resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  // CHECK: stem.dense_ffn_vjp {{.*}} cotangent %{{.*}} gate_bias %{{.*}} up_bias %{{.*}} {resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (
  %3:6 = stem.dense_ffn_vjp %x gate %g up %g down %d cotangent %0#0 gate_bias %b up_bias %b {resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<?x8xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  // CHECK: stem.gated_ffn_vjp %{{.*}} gate %{{.*}} rows %{{.*}} down %{{.*}} cotangent %{{.*}} : (
  %1:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %3#0 : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>)
  // CHECK: stem.gated_ffn_vjp %{{.*}} gate %{{.*}} rows %{{.*}} down %{{.*}} cotangent %{{.*}} gate_bias %{{.*}} : (
  %2:5 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %1#0 gate_bias %b : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>, tensor<?x8xf32>, tensor<16xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>, tensor<16xf32>)
  return %2#0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @gradients_of_ids
// CHECK-SAME: !stem.row_gradient<8xf32>
func.func @gradients_of_ids(%x: tensor<?x8xf32>, %h: tensor<32x8xbf16>, %l: tensor<?xi32>, %c: tensor<?xf32>, %ids: tensor<?xi32>, %in: tensor<3xi32>, %r: !stem.row_gradient<8xf32>) -> (tensor<?xi32>, tensor<?x8xf32>) {
  // CHECK: stem.cross_entropy_vjp %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (tensor<?x8xf32>, tensor<32x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  %0:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<?x8xf32>, tensor<32x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  // CHECK: stem.embedding_vjp %{{.*}}, %{{.*}} : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  %1 = stem.embedding_vjp %ids, %0#0 : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  // CHECK: stem.keep_selected %{{.*}} ids %{{.*}} in %{{.*}} : (tensor<?x8xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x8xf32>
  %2 = stem.keep_selected %x ids %ids in %in : (tensor<?x8xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x8xf32>
  // CHECK: stem.keep_selected others %{{.*}} ids %{{.*}} in %{{.*}} : (
  %3 = stem.keep_selected others %2 ids %ids in %in : (tensor<?x8xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x8xf32>
  // CHECK: stem.row_gradient %{{.*}}, %{{.*}} : tensor<?xi32>, tensor<?x8xf32> -> !stem.row_gradient<8xf32>
  %4 = stem.row_gradient %ids, %3 : tensor<?xi32>, tensor<?x8xf32> -> !stem.row_gradient<8xf32>
  // CHECK: stem.merge_row_gradients %{{.*}}, %{{.*}} : !stem.row_gradient<8xf32>
  %5 = stem.merge_row_gradients %4, %r : !stem.row_gradient<8xf32>
  // CHECK: stem.table_gradient %{{.*}} index %{{.*}} ids %{{.*}} : (!stem.row_gradient<8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x8xf32>)
  %6:2 = stem.table_gradient %5 index %ids ids %ids : (!stem.row_gradient<8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x8xf32>)
  return %6#0, %6#1 : tensor<?xi32>, tensor<?x8xf32>
}

// CHECK: stem.param @frozen = "frozen" : tensor<4xf32> {stem.frozen}
stem.param @frozen = "frozen" : tensor<4xf32> {stem.frozen}
// CHECK: func.func private @gradients(tensor<4xf32>) -> (tensor<4xf32> {stem.gradient_of_argument = 0 : i64}, tensor<?xi32> {stem.gradient_ids_of = @up}, tensor<?x16xf32> {stem.gradient_of = @up})
func.func private @gradients(tensor<4xf32>) -> (tensor<4xf32> {stem.gradient_of_argument = 0 : i64}, tensor<?xi32> {stem.gradient_ids_of = @up}, tensor<?x16xf32> {stem.gradient_of = @up})
