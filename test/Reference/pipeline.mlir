// RUN: stem-opt %s --stem-differential='stem-function=prefill stem-tokens=128 stem-sequences=2 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-differential='stem-function=prefill stem-tokens=64 stem-past=100 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-differential='stem-function=decode stem-tokens=3 stem-sequences=3 stem-past=70 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s

// Tokens are whole tiles: eight are rounded up, and a count is not.
// RUN: stem-opt %s --stem-differential='stem-function=prefill stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-interpret=stem-function=prefill -o /dev/null | FileCheck %s --check-prefix=ROUNDED
// ROUNDED: result 0 [64x64]
// RUN: not stem-opt %s --stem-interpret='stem-function=prefill stem-tokens=8' 2>&1 | FileCheck %s --check-prefix=TILE
// RUN: not stem-opt %s --stem-differential='stem-function=prefill stem-tokens=8 stem-pipeline=cse' 2>&1 | FileCheck %s --check-prefix=TILE
// TILE: error: stem-tokens is 8, but 'prefill' has 'stem.tile' = 64; wanted a multiple of that

// Two layers with a cache and a table, from the graph phase to linalg: no pass
// changes a number, and the interpreter knows everything on the way.

// CHECK-NOT: not compared
// CHECK: remark: {{[0-9]+}} comparisons agree, largest difference {{[^;]*$}}

stem.param @emb = "emb" : tensor<32x64xf32>
stem.param @n = "n" : tensor<64xf32>
stem.param @q = "q" : tensor<64x64xf32>
stem.param @k = "k" : tensor<32x64xf32>
stem.param @g = "g" : tensor<192x64xf32>
stem.param @d = "d" : tensor<64x192xf32>
stem.table @up = "up" : !stem.table<32x192xf32>
func.func private @layer(%x: tensor<?x64xf32>, %n: tensor<64xf32>, %wq: tensor<64x64xf32>, %wk: tensor<32x64xf32>, %rows: tensor<?x192xf32>, %index: tensor<?xi32>, %g: tensor<192x64xf32>, %d: tensor<64x192xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x64xf32> {
  %h = stem.rms_norm %x, %n {eps = 1.0e-5 : f64} : tensor<?x64xf32>, tensor<64xf32> -> tensor<?x64xf32>
  %q0 = stem.linear %h, %wq : tensor<?x64xf32>, tensor<64x64xf32> -> tensor<?x64xf32>
  %k0 = stem.linear %h, %wk : tensor<?x64xf32>, tensor<32x64xf32> -> tensor<?x32xf32>
  %cos, %sin = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.1, 0.5, 0.2, 0.3, 0.4, 0.7, 0.9, 1.0, 0.1, 0.5, 0.2, 0.3, 0.4, 0.7, 0.9>} : tensor<?xi32> -> tensor<?x16xf32>, tensor<?x16xf32>
  %q1 = stem.rope %q0, %cos, %sin : tensor<?x64xf32>, tensor<?x16xf32>, tensor<?x16xf32> -> tensor<?x64xf32>
  %k1 = stem.rope %k0, %cos, %sin : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32> -> tensor<?x32xf32>
  %a = stem.attention %q1, %k1, %k0 at %p of %s cache %c[%l] {head_dim = 32 : i64, scale = 0.25 : f64} : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x64xf32>
  %up = stem.lookup %rows, %index : tensor<?x192xf32>, tensor<?xi32> -> tensor<?x192xf32>
  %y = stem.gated_ffn %a gate %g rows %up down %d : (tensor<?x64xf32>, tensor<192x64xf32>, tensor<?x192xf32>, tensor<64x192xf32>) -> tensor<?x64xf32>
  %z = arith.addf %y, %x : tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}
func.func @prefill(%ids: tensor<?xi32> {stem.rows = "tokens"}, %p: tensor<?xi32> {stem.rows = "tokens"}, %s: tensor<?xi32> {stem.rows = "tokens"}, %c: !stem.kv_cache) -> tensor<?x64xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %e = stem.param_load @emb : tensor<32x64xf32>
  %n = stem.param_load @n : tensor<64xf32>
  %q = stem.param_load @q : tensor<64x64xf32>
  %k = stem.param_load @k : tensor<32x64xf32>
  %g = stem.param_load @g : tensor<192x64xf32>
  %d = stem.param_load @d : tensor<64x192xf32>
  %t = stem.table_load @up : !stem.table<32x192xf32>
  %x = stem.embedding %ids, %e : tensor<?xi32>, tensor<32x64xf32> -> tensor<?x64xf32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<32x192xf32>, tensor<?xi32> -> tensor<?x192xf32>, tensor<?xi32>
  %l0 = arith.constant 0 : index
  %l1 = arith.constant 1 : index
  %y = call @layer(%x, %n, %q, %k, %rows, %index, %g, %d, %p, %s, %c, %l0) : (tensor<?x64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<32x64xf32>, tensor<?x192xf32>, tensor<?xi32>, tensor<192x64xf32>, tensor<64x192xf32>, tensor<?xi32>, tensor<?xi32>, !stem.kv_cache, index) -> tensor<?x64xf32>
  %y1 = call @layer(%y, %n, %q, %k, %rows, %index, %g, %d, %p, %s, %c, %l1) : (tensor<?x64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<32x64xf32>, tensor<?x192xf32>, tensor<?xi32>, tensor<192x64xf32>, tensor<64x192xf32>, tensor<?xi32>, tensor<?xi32>, !stem.kv_cache, index) -> tensor<?x64xf32>
  return %y1 : tensor<?x64xf32>
}

func.func @decode(%ids: tensor<?xi32> {stem.rows = "tokens"}, %p: tensor<?xi32> {stem.rows = "tokens"}, %s: tensor<?xi32> {stem.rows = "tokens"}, %c: !stem.kv_cache) -> tensor<?x64xf32> attributes {stem.entry, stem.tile = 1 : i64} {
  %e = stem.param_load @emb : tensor<32x64xf32>
  %n = stem.param_load @n : tensor<64xf32>
  %q = stem.param_load @q : tensor<64x64xf32>
  %k = stem.param_load @k : tensor<32x64xf32>
  %g = stem.param_load @g : tensor<192x64xf32>
  %d = stem.param_load @d : tensor<64x192xf32>
  %t = stem.table_load @up : !stem.table<32x192xf32>
  %x = stem.embedding %ids, %e : tensor<?xi32>, tensor<32x64xf32> -> tensor<?x64xf32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<32x192xf32>, tensor<?xi32> -> tensor<?x192xf32>, tensor<?xi32>
  %l0 = arith.constant 0 : index
  %l1 = arith.constant 1 : index
  %y = call @layer(%x, %n, %q, %k, %rows, %index, %g, %d, %p, %s, %c, %l0) : (tensor<?x64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<32x64xf32>, tensor<?x192xf32>, tensor<?xi32>, tensor<192x64xf32>, tensor<64x192xf32>, tensor<?xi32>, tensor<?xi32>, !stem.kv_cache, index) -> tensor<?x64xf32>
  %y1 = call @layer(%y, %n, %q, %k, %rows, %index, %g, %d, %p, %s, %c, %l1) : (tensor<?x64xf32>, tensor<64xf32>, tensor<64x64xf32>, tensor<32x64xf32>, tensor<?x192xf32>, tensor<?xi32>, tensor<192x64xf32>, tensor<64x192xf32>, tensor<?xi32>, tensor<?xi32>, !stem.kv_cache, index) -> tensor<?x64xf32>
  return %y1 : tensor<?x64xf32>
}
