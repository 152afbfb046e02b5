// RUN: stem-opt %s -split-input-file --stem-tile-columns -verify-diagnostics | FileCheck %s

// Panels of 64 columns; 130 columns are three tasks, the last one narrower.
// CHECK-LABEL: func.func @linear
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[W:[a-z0-9]+]]: !stem.packed<32x130xf32>, %[[B:[a-z0-9]+]]: tensor<130xf32>, %[[OUT:[a-z0-9]+]]: tensor<?x130xf32>
// CHECK: %[[Y:.*]] = scf.forall (%[[I:.*]]) in (3) shared_outs(%[[ACC:.*]] = %[[OUT]])
// CHECK:   %[[N:.*]] = arith.muli %[[I]]
// CHECK:   %[[WIDTH:.*]] = arith.minui
// CHECK:   %[[BLOCK:.*]] = tensor.extract_slice %[[ACC]][0, %[[N]]] [%{{.*}}, %[[WIDTH]]] [1, 1]
// CHECK:   %[[R:.*]] = stem.packed_matmul %[[X]], %[[W]][%{{.*}}, %[[N]]] into %[[BLOCK]]
// CHECK:   tensor.parallel_insert_slice %[[R]] into %[[ACC]][0, %[[N]]] [%{{.*}}, %[[WIDTH]]]
// CHECK: linalg.generic {{.*}} ins(%[[B]] : {{.*}} outs(%[[Y]] :
func.func @linear(%x: tensor<?x32xf32>, %w: !stem.packed<32x130xf32>, %b: tensor<130xf32>, %out: tensor<?x130xf32> {stem.output}) -> tensor<?x130xf32> attributes {stem.tile = 1 : i64} {
  %0 = stem.linear %x, %w bias %b : tensor<?x32xf32>, !stem.packed<32x130xf32>, tensor<130xf32> -> tensor<?x130xf32>
  return %0 : tensor<?x130xf32>
}

// The kernels take one type, f32 sums; the result is converted.
// CHECK-LABEL: func.func @mixed
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[W:[a-z0-9]+]]: !stem.packed<32x64xbf16>, %[[OUT:[a-z0-9]+]]: tensor<?x64xbf16>
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: scf.forall (%{{.*}}) in (1) shared_outs(%{{.*}} = %{{.*}}) -> (tensor<?x64xf32>)
// CHECK: stem.packed_matmul %{{.*}}, %[[W]]{{.*}} : (tensor<?x32xbf16>
// CHECK: arith.truncf %{{.*}} : f32 to bf16
func.func @mixed(%x: tensor<?x32xf32>, %w: !stem.packed<32x64xbf16>, %out: tensor<?x64xbf16> {stem.output}) -> tensor<?x64xbf16> attributes {stem.tile = 1 : i64} {
  %0 = stem.linear %x, %w : tensor<?x32xf32>, !stem.packed<32x64xbf16> -> tensor<?x64xbf16>
  return %0 : tensor<?x64xbf16>
}

// Gate (and up) and product in one loop over d_ff, down in another; the
// product has the type of down.
// CHECK-LABEL: func.func @dense
// CHECK: scf.forall (%{{.*}}) in (2) shared_outs(%{{.*}}, %{{.*}}, %{{.*}}) -> (tensor<?x128xf32>, tensor<?x128xf32>, tensor<?x128xf32>)
// CHECK: stem.packed_matmul
// CHECK: stem.packed_matmul
// CHECK: linalg.generic
// CHECK: scf.forall (%{{.*}}) in (1)
// CHECK: stem.packed_matmul
func.func @dense(%x: tensor<?x32xf32>, %g: !stem.packed<32x128xf32>, %u: !stem.packed<32x128xf32>, %d: !stem.packed<128x32xf32>) -> tensor<?x32xf32> attributes {stem.tile = 1 : i64} {
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<?x32xf32>, !stem.packed<32x128xf32>, !stem.packed<32x128xf32>, !stem.packed<128x32xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func @fused
// CHECK-SAME: %[[ROWS:[a-z0-9]+]]: tensor<?x128xf16>
// CHECK: scf.forall (%{{.*}}) in (2) shared_outs(%{{.*}}, %{{.*}}) -> (tensor<?x128xf32>, tensor<?x128xf32>)
// CHECK: tensor.extract_slice %[[ROWS]]
// CHECK: stem.packed_matmul %{{.*}} : (tensor<?x128xf32>, !stem.packed<128x32xf32>
func.func @fused(%x: tensor<?x32xbf16>, %g: !stem.packed<32x128xbf16>, %rows: tensor<?x128xf16>, %i: tensor<?xi32>, %d: !stem.packed<128x32xf32>, %out: tensor<?x32xbf16> {stem.output}) -> tensor<?x32xbf16> attributes {stem.tile = 1 : i64} {
  %0 = stem.fused_ffn %x gate %g rows %rows[%i] down %d : (tensor<?x32xbf16>, !stem.packed<32x128xbf16>, tensor<?x128xf16>, tensor<?xi32>, !stem.packed<128x32xf32>) -> tensor<?x32xbf16>
  return %0 : tensor<?x32xbf16>
}

// The selected tokens alone, panel by panel.
// CHECK-LABEL: func.func @select_up
// CHECK: %[[FOUND:.*]]:2 = scf.for
// CHECK: %[[X:.*]] = linalg.generic
// CHECK: %[[PRODUCTS:.*]] = tensor.extract_slice %{{.*}}[0, 0] [%[[FOUND]]#1, 130]
// CHECK: %[[Y:.*]] = scf.forall (%{{.*}}) in (3) shared_outs(%{{.*}} = %[[PRODUCTS]])
// CHECK:   stem.packed_matmul %[[X]]
// CHECK: scf.for {{.*}} to %[[FOUND]]#1
// CHECK:   tensor.extract_slice %[[Y]]
// CHECK:   tensor.insert_slice
func.func @select_up(%up: tensor<?x130xf32>, %x: tensor<?x32xf32>, %w: !stem.packed<32x130xf32>, %b: tensor<130xf32>, %ids: tensor<?xi32>, %selected: tensor<?xi32>) -> tensor<?x130xf32> attributes {stem.tile = 1 : i64} {
  %0 = stem.select_up %up, %x weight %w bias %b ids %ids in %selected : (tensor<?x130xf32>, tensor<?x32xf32>, !stem.packed<32x130xf32>, tensor<?xi32>, tensor<?xi32>, tensor<130xf32>) -> tensor<?x130xf32>
  return %0 : tensor<?x130xf32>
}

// One task for each token and key-value head.
// CHECK-LABEL: func.func @attend
// CHECK: scf.forall (%{{.*}}, %[[H:.*]]) in (%{{.*}}, 2)
// CHECK:   scf.for
// CHECK:     stem.kv_page %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %[[H]]] : !stem.packed<8x64xf32>
// CHECK:     stem.kv_page values %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %[[H]]] : !stem.packed<64x8xf32>
// CHECK:   tensor.parallel_insert_slice %{{.*}} [1, 16] [1, 1]
func.func @attend(%q: tensor<?x32xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x32xf32> attributes {stem.tile = 1 : i64} {
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 8 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// Left to stem-to-linalg: plain matrices, one plain matrix among packed ones,
// a gate of another type, queries that no cache holds; and other functions.
// CHECK-LABEL: func.func @plain
// CHECK-NOT: scf.forall
// CHECK: return
func.func @plain(%x: tensor<?x32xf32>, %w: tensor<128x32xf32>, %d: tensor<32x128xf32>, %pw: !stem.packed<32x128xf32>, %pd: !stem.packed<128x32xf32>, %bw: !stem.packed<32x128xbf16>, %q: tensor<?x32xf16>, %p: tensor<?xi32>, %c: !stem.kv_cache, %l: index) attributes {stem.tile = 1 : i64} {
  %0 = stem.linear %x, %w : tensor<?x32xf32>, tensor<128x32xf32> -> tensor<?x128xf32>
  %1 = stem.dense_ffn %x gate %w up %w down %d : (tensor<?x32xf32>, tensor<128x32xf32>, tensor<128x32xf32>, tensor<32x128xf32>) -> tensor<?x32xf32>
  %2 = stem.dense_ffn %x gate %pw up %w down %pd : (tensor<?x32xf32>, !stem.packed<32x128xf32>, tensor<128x32xf32>, !stem.packed<128x32xf32>) -> tensor<?x32xf32>
  %3 = stem.dense_ffn %x gate %bw up %bw down %pd : (tensor<?x32xf32>, !stem.packed<32x128xbf16>, !stem.packed<32x128xbf16>, !stem.packed<128x32xf32>) -> tensor<?x32xf32>
  %4 = stem.attend %q at %p of %p cache %c[%l] {head_dim = 8 : i64, kv_heads = 2 : i64, scale = 1.0 : f64} : tensor<?x32xf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf16>
  return
}
// CHECK-LABEL: func.func @prefill
// CHECK-NOT: scf.forall
func.func @prefill(%x: tensor<?x32xf32>, %w: !stem.packed<32x64xf32>) -> tensor<?x64xf32> attributes {stem.tile = 64 : i64} {
  %0 = stem.linear %x, %w : tensor<?x32xf32>, !stem.packed<32x64xf32> -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}
func.func private @external(tensor<?x32xf32>) attributes {stem.tile = 1 : i64}

// -----

func.func @dynamic_columns(%x: tensor<?x?xf32>, %w: !stem.packed<32x64xf32>) -> tensor<?x64xf32> attributes {stem.tile = 1 : i64} {
  // expected-error @+1 {{'stem.linear' op has an operand or result 'tensor<?x?xf32>'; only the number of tokens and of rows to gather from may be dynamic}}
  %0 = stem.linear %x, %w : tensor<?x?xf32>, !stem.packed<32x64xf32> -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// -----

// What an elementwise op returns is built in the argument that it reads last,
// whichever operand that is, or in the one marked for it.
// CHECK-LABEL: func.func @residual
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[Y:[a-z0-9]+]]: tensor<?x32xf32>
// CHECK: %[[T:.*]] = math.exp %[[Y]]
// CHECK: %[[R:.*]] = linalg.generic {{.*}} ins(%[[T]] : {{.*}} outs(%[[X]] :
// CHECK: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32):
// CHECK: arith.subf %[[A]], %[[B]] fastmath<contract> : f32
// CHECK: return %[[R]], %[[Y]]
func.func @residual(%x: tensor<?x32xf32>, %y: tensor<?x32xf32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) attributes {stem.tile = 1 : i64} {
  %0 = math.exp %y : tensor<?x32xf32>
  %1 = arith.subf %0, %x fastmath<contract> : tensor<?x32xf32>
  return %1, %y : tensor<?x32xf32>, tensor<?x32xf32>
}
// CHECK-LABEL: func.func @select
// CHECK-SAME: %[[B:[a-z0-9]+]]: i1, %[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[OUT:[a-z0-9]+]]: tensor<?x32xf32> {stem.output}
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[X]] : {{.*}} outs(%[[OUT]] :
// CHECK: arith.select %[[B]]
func.func @select(%b: i1, %x: tensor<?x32xf32>, %out: tensor<?x32xf32> {stem.output}) -> tensor<?x32xf32> attributes {stem.tile = 1 : i64} {
  %0 = arith.select %b, %x, %x : tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// Both operands are returned as they were.
// CHECK-LABEL: func.func @kept
// CHECK: arith.addf %{{.*}} : tensor<?x32xf32>
func.func @kept(%x: tensor<?x32xf32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) attributes {stem.tile = 1 : i64} {
  %0 = arith.addf %x, %x : tensor<?x32xf32>
  return %0, %x : tensor<?x32xf32>, tensor<?x32xf32>
}
