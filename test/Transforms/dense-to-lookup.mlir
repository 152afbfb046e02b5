// RUN: stem-opt %s --pass-pipeline='builtin.module(stem-dense-to-lookup{stem-layers=1 stem-init=row-mean})' | FileCheck %s
// RUN: stem-opt %s --pass-pipeline='builtin.module(stem-dense-to-lookup{stem-layers=1},stem-host-pipeline)' | FileCheck %s --check-prefix=HOST
// RUN: not stem-opt %s --pass-pipeline='builtin.module(stem-dense-to-lookup{stem-layers=2})' 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not stem-opt %s --pass-pipeline='builtin.module(stem-dense-to-lookup{stem-init=zero})' 2>&1 | FileCheck %s --check-prefix=INIT

// RANGE: error: {{.*}}the model has no layer 2; its layers are 0 to 1
// INIT: error: stem-init is 'zero'; wanted calibrated, embedding, row-mean or xavier

// The replaced parameters are gone, the others stay.
// CHECK-NOT: stem.param @l1.up_proj.weight
// CHECK-NOT: stem.param @l1.up_bias
// CHECK-DAG: stem.param @l0.up_proj.weight
// CHECK-DAG: stem.table @l1.up_table.weight = "l1.up_table.weight" : !stem.table<96x16xf32> {stem.from = "l1.up_proj.weight", stem.init = "row-mean"}
// HOST: llvm.func @stem_module_query

stem.param @embed = "embed" : tensor<96x8xf32>
stem.param @l0.gate = "l0.gate" : tensor<16x8xf32>
stem.param @l0.up_proj.weight = "l0.up_proj.weight" : tensor<16x8xf32>
stem.param @l0.up_bias = "l0.up_bias" : tensor<16xf32>
stem.param @l0.down = "l0.down" : tensor<8x16xf32>
stem.param @l1.gate = "l1.gate" : tensor<16x8xf32>
stem.param @l1.up_proj.weight = "l1.up_proj.weight" : tensor<16x8xf32>
stem.param @l1.up_bias = "l1.up_bias" : tensor<16xf32>
stem.param @l1.down = "l1.down" : tensor<8x16xf32>

// CHECK-LABEL: func.func private @layer(
// CHECK: stem.dense_ffn
func.func private @layer(%x: tensor<?x8xf32>, %pos: tensor<?xi32>,
    %seq: tensor<?xi32>, %kv: !stem.kv_cache, %layer: index,
    %gate: tensor<16x8xf32>, %up: tensor<16x8xf32>, %bias: tensor<16xf32>,
    %down: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %a = stem.attention %x, %x, %x at %pos of %seq cache %kv[%layer]
      {head_dim = 8 : i64, scale = 0.3 : f64}
      : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>,
        tensor<?xi32> -> tensor<?x8xf32>
  %f = stem.dense_ffn %a gate %gate up %up down %down up_bias %bias
      : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>,
         tensor<16xf32>) -> tensor<?x8xf32>
  %y = arith.addf %x, %f : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func.func private @layer_stem(
// CHECK-SAME: %[[GATE:[^ ]+]]: tensor<16x8xf32>, %[[DOWN:[^ ]+]]: tensor<8x16xf32>, %[[ROWS:[^ ]+]]: tensor<?x16xf32>, %[[INDEX:[^ ]+]]: tensor<?xi32>)
// CHECK: %[[UP:.+]] = stem.lookup %[[ROWS]], %[[INDEX]]
// CHECK: stem.gated_ffn %{{.+}} gate %[[GATE]] rows %[[UP]] down %[[DOWN]]

// CHECK-LABEL: func.func @decode(
// CHECK-SAME: %[[IDS:[^ ]+]]: tensor<?xi32>
// CHECK: %[[X:.+]] = call @layer(
// CHECK: %[[T:.+]] = stem.table_load @l1.up_table.weight
// CHECK: %[[R:.+]], %[[I:.+]] = stem.table_rows %[[T]], %[[IDS]]
// CHECK: call @layer_stem(%[[X]], {{.*}}, %[[R]], %[[I]])
func.func @decode(%ids: tensor<?xi32> {stem.name = "ids", stem.id_bound = 96 : i64, stem.rows = "tokens"},
    %pos: tensor<?xi32> {stem.name = "positions", stem.rows = "tokens"},
    %seq: tensor<?xi32> {stem.name = "sequences", stem.rows = "tokens"},
    %kv: !stem.kv_cache {stem.name = "cache"},
    %out: tensor<?x8xf32> {stem.name = "out", stem.rows = "tokens", stem.output})
    -> tensor<?x8xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %e = stem.param_load @embed : tensor<96x8xf32>
  %x0 = stem.embedding %ids, %e : tensor<?xi32>, tensor<96x8xf32> -> tensor<?x8xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %g0 = stem.param_load @l0.gate : tensor<16x8xf32>
  %u0 = stem.param_load @l0.up_proj.weight : tensor<16x8xf32>
  %b0 = stem.param_load @l0.up_bias : tensor<16xf32>
  %d0 = stem.param_load @l0.down : tensor<8x16xf32>
  %x1 = call @layer(%x0, %pos, %seq, %kv, %c0, %g0, %u0, %b0, %d0)
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, !stem.kv_cache, index,
         tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32>, tensor<8x16xf32>)
      -> tensor<?x8xf32>
  %g1 = stem.param_load @l1.gate : tensor<16x8xf32>
  %u1 = stem.param_load @l1.up_proj.weight : tensor<16x8xf32>
  %b1 = stem.param_load @l1.up_bias : tensor<16xf32>
  %d1 = stem.param_load @l1.down : tensor<8x16xf32>
  %x2 = call @layer(%x1, %pos, %seq, %kv, %c1, %g1, %u1, %b1, %d1)
      : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, !stem.kv_cache, index,
         tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32>, tensor<8x16xf32>)
      -> tensor<?x8xf32>
  %y = arith.mulf %x2, %x2 : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
