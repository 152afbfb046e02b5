// RUN: stem-opt %s -split-input-file --stem-to-linalg='stem-ffn-block=128 stem-vocabulary-block=128' | FileCheck %s

// What each op becomes; to-linalg-values.mlir says that the numbers are right.

// CHECK-LABEL: func.func @rms_norm
// CHECK: tensor.expand_shape %{{.*}} : tensor<?x32xf32> into tensor<?x4x8xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: math.rsqrt
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: tensor.collapse_shape {{.*}} into tensor<?x32xbf16>
func.func @rms_norm(%x: tensor<?x32xf32>, %w: tensor<8xbf16>) -> tensor<?x32xbf16> {
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<?x32xf32>, tensor<8xbf16> -> tensor<?x32xbf16>
  return %0 : tensor<?x32xbf16>
}

// CHECK-LABEL: func.func @rope
// CHECK: arith.constant dense<[1.000000e+00, 5.000000e-01]> : tensor<2xf32>
// CHECK: math.cos
// CHECK: math.sin
// CHECK: arith.subf
// CHECK: tensor.insert_slice %{{.*}}[0, 0, 0]
// CHECK: arith.addf
// CHECK: tensor.insert_slice %{{.*}}[0, 0, 2]
func.func @rope(%x: tensor<?x8xf32>, %p: tensor<?xi32>) -> tensor<?x8xf32> {
  %cos, %sin = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.5>} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
  %0 = stem.rope %x, %cos, %sin : tensor<?x8xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @silu
// CHECK: arith.negf
// CHECK: math.exp
// CHECK: arith.divf
func.func @silu(%x: tensor<?x8xf32>) -> tensor<?x8xbf16> {
  %0 = stem.silu %x : tensor<?x8xf32> -> tensor<?x8xbf16>
  return %0 : tensor<?x8xbf16>
}

// CHECK-LABEL: func.func @gathers
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<?xi32>, %[[W:[a-z0-9]+]]: tensor<10x8xbf16>
// CHECK: linalg.generic {{.*}} ins(%[[IDS]] :
// CHECK: tensor.extract %[[W]]
// CHECK: stem.packed_gather
// CHECK: arith.cmpi ult
// CHECK: tensor.extract
func.func @gathers(%ids: tensor<?xi32>, %w: tensor<10x8xbf16>, %p: !stem.packed<8x10xf32>, %map: tensor<4xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>) {
  %0 = stem.embedding %ids, %w : tensor<?xi32>, tensor<10x8xbf16> -> tensor<?x8xf32>
  %1 = stem.embedding %ids, %p : tensor<?xi32>, !stem.packed<8x10xf32> -> tensor<?x8xf32>
  %2 = stem.map_ids %ids, %map {unknown = 3 : i32} : tensor<?xi32>, tensor<4xi32> -> tensor<?xi32>
  return %0, %1, %2 : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>
}

// A packed matrix is multiplied by the kernels, any other by a loop nest.
// CHECK-LABEL: func.func @linear
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[P:[a-z0-9]+]]: !stem.packed<8x16xf32>
// CHECK: stem.packed_matmul %[[X]], %[[P]]
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
func.func @linear(%x: tensor<?x8xf32>, %p: !stem.packed<8x16xf32>, %w: tensor<16x8xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
  %0 = stem.linear %x, %p : tensor<?x8xf32>, !stem.packed<8x16xf32> -> tensor<?x16xf32>
  %1 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return %0, %1 : tensor<?x16xf32>, tensor<?x16xf32>
}

// Each id is looked up by halving; the tokens that are found are gathered, and
// their products, plus the bias, replace their rows.
// CHECK-LABEL: func.func @select_up
// CHECK-SAME: %[[UP:[a-z0-9]+]]: tensor<64x128xf32>, %[[X:[a-z0-9]+]]: tensor<64x32xf32>, %[[W:[a-z0-9]+]]: !stem.packed<32x128xf32>, %[[B:[a-z0-9]+]]: tensor<128xf32>, %[[IDS:[a-z0-9]+]]: tensor<64xi32>, %[[SELECTED:[a-z0-9]+]]: tensor<?xi32>
// CHECK: %[[FOUND:.*]]:2 = scf.for %[[T:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[PLACES:.*]] = %{{.*}}, %[[N:.*]] = %{{.*}}) -> (tensor<64xi32>, index)
// CHECK:   %[[ID:.*]] = tensor.extract %[[IDS]][%[[T]]]
// CHECK:   scf.for
// CHECK:     tensor.extract %[[SELECTED]]
// CHECK:     arith.cmpi sgt, %{{.*}}, %[[ID]]
// CHECK:   tensor.insert %{{.*}} into %[[PLACES]][%[[N]]]
// CHECK: %[[ROWS:.*]] = tensor.extract_slice %{{.*}}[0, 0] [%[[FOUND]]#1, 32]
// CHECK: %[[GATHERED:.*]] = linalg.generic {{.*}} outs(%[[ROWS]] :
// CHECK:   tensor.extract %[[X]]
// CHECK: %[[PRODUCTS:.*]] = tensor.extract_slice %{{.*}}[0, 0] [%[[FOUND]]#1, 128]
// CHECK: stem.packed_matmul %[[GATHERED]], %[[W]]{{.*}} into %[[PRODUCTS]]
// CHECK: scf.for {{.*}} to %[[FOUND]]#1 step %{{.*}} iter_args(%[[SUM:.*]] = %[[UP]])
// CHECK:   linalg.generic {{.*}} ins(%{{.*}}, %[[B]] :
// CHECK:   tensor.insert_slice %{{.*}} into %[[SUM]]
func.func @select_up(%up: tensor<64x128xf32>, %x: tensor<64x32xf32>, %w: !stem.packed<32x128xf32>, %b: tensor<128xf32>, %ids: tensor<64xi32>, %selected: tensor<?xi32>) -> tensor<64x128xf32> {
  %0 = stem.select_up %up, %x weight %w bias %b ids %ids in %selected : (tensor<64x128xf32>, tensor<64x32xf32>, !stem.packed<32x128xf32>, tensor<64xi32>, tensor<?xi32>, tensor<128xf32>) -> tensor<64x128xf32>
  return %0 : tensor<64x128xf32>
}

// Blocks of d_ff that divide it: 320 = 5 * 64. No T x 320 tensor exists.
// CHECK-LABEL: func.func @blocks
// CHECK-NOT: tensor<64x320xf32>
// CHECK: %[[STEP:.*]] = arith.constant 64 : index
// CHECK: scf.for %[[F:.*]] = %{{.*}} to %{{.*}} step %[[STEP]] iter_args(%[[ACC:.*]] = %{{.*}}) -> (tensor<64x32xf32>)
// CHECK:   stem.packed_matmul %{{.*}}[%{{.*}}, %[[F]]] into %{{.*}} -> tensor<64x64xf32>
// CHECK:   tensor.extract %{{.*}}
// CHECK:   stem.packed_matmul accumulate %{{.*}}[%[[F]], %{{.*}}] into %[[ACC]]
func.func @blocks(%x: tensor<64x32xf32>, %g: !stem.packed<32x320xf32>, %rows: tensor<?x320xf32>, %i: tensor<64xi32>, %d: !stem.packed<320x32xf32>) -> tensor<64x32xf32> {
  %0 = stem.fused_ffn %x gate %g rows %rows[%i] down %d : (tensor<64x32xf32>, !stem.packed<32x320xf32>, tensor<?x320xf32>, tensor<64xi32>, !stem.packed<320x32xf32>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}

// What goes into the product is kept, where a linear op of the same operands
// behind the FFN asks for it: written with the product, in the linear op's type.
// CHECK-LABEL: func.func @kept_gate
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<64x32xbf16>, %[[G:[a-z0-9]+]]: !stem.packed
// CHECK: %[[GATE:.*]] = tensor.empty() : tensor<64x320xbf16>
// CHECK: %[[ALL:.*]]:2 = scf.for %[[F:.*]] = %{{.*}} iter_args(%[[ACC:.*]] = %{{.*}}, %[[KEPT:.*]] = %[[GATE]])
// CHECK:   %[[BLOCK:.*]] = tensor.extract_slice %[[KEPT]][0, %[[F]]] [64, 64]
// CHECK:   stem.packed_matmul %[[X]], %[[G]]
// CHECK:   %[[MADE:.*]]:2 = linalg.generic {{.*}} outs(%{{.*}}, %[[BLOCK]] : tensor<64x64xbf16>, tensor<64x64xbf16>)
// CHECK:   %[[NEXT:.*]] = stem.packed_matmul accumulate %[[MADE]]#0
// CHECK:   %[[INTO:.*]] = tensor.insert_slice %[[MADE]]#1 into %[[KEPT]][0, %[[F]]] [64, 64]
// CHECK:   scf.yield %[[NEXT]], %[[INTO]]
// CHECK-NOT: stem.packed_matmul
// CHECK: return %[[ALL]]#0, %[[ALL]]#1
func.func @kept_gate(%x: tensor<64x32xbf16>, %g: !stem.packed<32x320xbf16>, %rows: tensor<?x320xbf16>, %i: tensor<64xi32>, %d: !stem.packed<320x32xbf16>, %b: tensor<320xf32>) -> (tensor<64x32xf32>, tensor<64x320xbf16>) {
  %0 = stem.fused_ffn %x gate %g rows %rows[%i] down %d gate_bias %b : (tensor<64x32xbf16>, !stem.packed<32x320xbf16>, tensor<?x320xbf16>, tensor<64xi32>, !stem.packed<320x32xbf16>, tensor<320xf32>) -> tensor<64x32xf32>
  %1 = stem.linear %x, %g bias %b : tensor<64x32xbf16>, !stem.packed<32x320xbf16>, tensor<320xf32> -> tensor<64x320xbf16>
  return %0, %1 : tensor<64x32xf32>, tensor<64x320xbf16>
}

// Of a dense FFN both, or the linear op is by itself.
// CHECK-LABEL: func.func @kept_gate_and_up
// CHECK: %[[ALL:.*]]:3 = scf.for
// CHECK-COUNT-3: stem.packed_matmul
// CHECK-NOT: stem.packed_matmul
// CHECK: return %[[ALL]]#0, %[[ALL]]#1, %[[ALL]]#2
func.func @kept_gate_and_up(%x: tensor<64x32xf32>, %g: !stem.packed<32x320xf32>, %u: !stem.packed<32x320xf32>, %d: !stem.packed<320x32xf32>) -> (tensor<64x32xf32>, tensor<64x320xf32>, tensor<64x320xf32>) {
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<64x32xf32>, !stem.packed<32x320xf32>, !stem.packed<32x320xf32>, !stem.packed<320x32xf32>) -> tensor<64x32xf32>
  %1 = stem.linear %x, %g : tensor<64x32xf32>, !stem.packed<32x320xf32> -> tensor<64x320xf32>
  %2 = stem.linear %x, %u : tensor<64x32xf32>, !stem.packed<32x320xf32> -> tensor<64x320xf32>
  return %0, %1, %2 : tensor<64x32xf32>, tensor<64x320xf32>, tensor<64x320xf32>
}
// CHECK-LABEL: func.func @gate_alone
// CHECK: scf.for
// CHECK-COUNT-4: stem.packed_matmul
func.func @gate_alone(%x: tensor<64x32xf32>, %g: !stem.packed<32x320xf32>, %u: !stem.packed<32x320xf32>, %d: !stem.packed<320x32xf32>) -> (tensor<64x32xf32>, tensor<64x320xf32>) {
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<64x32xf32>, !stem.packed<32x320xf32>, !stem.packed<32x320xf32>, !stem.packed<320x32xf32>) -> tensor<64x32xf32>
  %1 = stem.linear %x, %g : tensor<64x32xf32>, !stem.packed<32x320xf32> -> tensor<64x320xf32>
  return %0, %1 : tensor<64x32xf32>, tensor<64x320xf32>
}

// The loss in blocks of the vocabulary, the last one narrower; a head that is
// not packed is read in rows.
// CHECK-LABEL: func.func @loss
// CHECK-SAME: tensor<64x8xf32>, %[[H:[a-z0-9]+]]: tensor<300x8xf32>
// CHECK: scf.for
// CHECK:   %[[WIDTH:.*]] = arith.minui
// CHECK:   tensor.extract_slice %[[H]][%{{.*}}, 0] [%[[WIDTH]], 8]
// CHECK: math.log
func.func @loss(%x: tensor<64x8xf32>, %h: tensor<300x8xf32>, %l: tensor<64xi32>) -> tensor<64xf32> {
  %0 = stem.cross_entropy %x, %h, %l : tensor<64x8xf32>, tensor<300x8xf32>, tensor<64xi32> -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// A tile of one sequence attends head by head; no 64 x T scores.
// CHECK-LABEL: func.func @attend
// CHECK: scf.for %[[H:[a-z0-9]+]] =
// CHECK:   arith.divui %[[H]]
// CHECK:   scf.for
// CHECK:     stem.kv_page %
// CHECK:     stem.packed_matmul {{.*}} -> tensor<64x64xf32>
// CHECK:     stem.kv_page values
func.func @attend(%q: tensor<64x32xf32>, %p: tensor<64xi32>, %s: tensor<64xi32>, %c: !stem.kv_cache, %l: index) -> tensor<64x32xf32> {
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 8 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : tensor<64x32xf32>, tensor<64xi32>, tensor<64xi32> -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}
// CHECK: func.func private @external
func.func private @external()

// Queries read pages of keys, keys read pages of queries; nothing is T x T. All
// but the last page of a tile need no mask.
// CHECK-LABEL: func.func @attend_vjp
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x32xbf16>, %[[K:[a-z0-9]+]]: tensor<?x16xbf16>
// CHECK-SAME: %[[KEYS:[a-z0-9]+]]: !stem.kv_cache, %[[QUERIES:[a-z0-9]+]]: !stem.kv_cache
// CHECK: %[[FIRST:.*]]:3 = scf.forall (%[[HEAD:.*]], %{{.*}}) in (4, %{{.*}}) shared_outs({{.*}}) -> (tensor<?x32xf32>, tensor<4x?xf32>, tensor<4x?xf32>)
// Statistics: columns are queries.
// CHECK: stem.kv_page %[[QUERIES]][%{{.*}}, %{{.*}}, %{{.*}}, %[[HEAD]]] : !stem.packed<8x64xbf16>
// CHECK: stem.kv_page %[[QUERIES]][%{{.*}}, %{{.*}}, %{{.*}}, %[[HEAD]]] : !stem.packed<8x64xbf16>
// CHECK: scf.for
// CHECK-COUNT-2: stem.packed_matmul {{.*}} : (tensor<64x8xbf16>, !stem.packed<8x64xbf16>, tensor<64x64xf32>, index, index) -> tensor<64x64xf32>
// CHECK-NOT: arith.cmpi
// CHECK: scf.for
// CHECK: arith.cmpi ule
// dq: columns are keys.
// CHECK: scf.for
// CHECK: stem.kv_page %[[KEYS]]
// CHECK: stem.packed_matmul accumulate {{.*}} : (tensor<64x64xbf16>, !stem.packed<64x8xbf16>, tensor<64x8xf32>, index, index) -> tensor<64x8xf32>
// CHECK: scf.forall.in_parallel
// CHECK-COUNT-3: tensor.parallel_insert_slice
// CHECK: %[[SECOND:.*]]:2 = scf.forall ({{.*}}) in (2, %{{.*}}) shared_outs({{.*}}) -> (tensor<?x16xf32>, tensor<?x16xf32>)
// CHECK: stem.kv_page %[[QUERIES]]
// CHECK-COUNT-2: stem.packed_matmul accumulate {{.*}} : (tensor<64x64xbf16>, !stem.packed<64x8xbf16>, tensor<64x8xf32>, index, index) -> tensor<64x8xf32>
// CHECK: return %[[FIRST]]#0, %[[SECOND]]#0, %[[SECOND]]#1
func.func @attend_vjp(%q: tensor<?x32xbf16>, %k: tensor<?x16xbf16>, %p: tensor<?xi32>, %keys: !stem.kv_cache, %queries: !stem.kv_cache) -> (tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>) {
  %0:3 = stem.attend_vjp %q, %k, %k, %q at %p of %p keys %keys queries %queries {head_dim = 8 : i64, scale = 1.0 : f64} : tensor<?x32xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x32xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>
  return %0#0, %0#1, %0#2 : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>
}

// With what attention gave there is one pass over pages of keys.
// CHECK-LABEL: func.func @attend_vjp_forward
// CHECK-SAME: %[[O:[a-z0-9]+]]: tensor<?x32xbf16>, %[[L:[a-z0-9]+]]: tensor<?x4xf32>
// CHECK: scf.forall (%[[HEAD:.*]], %{{.*}}) in (4, %{{.*}})
// CHECK: tensor.extract_slice %[[L]][%{{.*}}, %[[HEAD]]] [64, 1] [1, 1] : tensor<?x4xf32> to tensor<64xf32>
// CHECK: tensor.extract_slice %[[O]]
// CHECK-COUNT-2: scf.for
// CHECK-NOT: scf.for
// CHECK: scf.forall.in_parallel
func.func @attend_vjp_forward(%q: tensor<?x32xbf16>, %k: tensor<?x16xbf16>, %o: tensor<?x32xbf16>, %l: tensor<?x4xf32>, %p: tensor<?xi32>, %keys: !stem.kv_cache, %queries: !stem.kv_cache) -> tensor<?x32xf32> {
  %0:3 = stem.attend_vjp %q, %k, %k, %q forward %o, %l : tensor<?x32xbf16>, tensor<?x4xf32> at %p of %p keys %keys queries %queries {head_dim = 8 : i64, scale = 1.0 : f64} : tensor<?x32xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x32xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>
  return %0#0 : tensor<?x32xf32>
}

// A column of logarithms for each head.
// CHECK-LABEL: func.func @attend_logarithms
// CHECK: scf.for %[[HEAD:[a-z0-9]+]] = {{.*}} -> (tensor<64x32xf32>, tensor<64x4xf32>)
// CHECK: math.log
// CHECK: tensor.insert_slice {{.*}}[0, %[[HEAD]]] [64, 1] [1, 1] : tensor<64xf32> into tensor<64x4xf32>
func.func @attend_logarithms(%q: tensor<64x32xf32>, %p: tensor<64xi32>, %c: !stem.kv_cache, %l: index) -> (tensor<64x32xf32>, tensor<64x4xf32>) {
  %0, %1 = stem.attend %q at %p of %p cache %c[%l] {head_dim = 8 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : tensor<64x32xf32>, tensor<64xi32>, tensor<64xi32> -> tensor<64x32xf32>, tensor<64x4xf32>
  return %0, %1 : tensor<64x32xf32>, tensor<64x4xf32>
}
