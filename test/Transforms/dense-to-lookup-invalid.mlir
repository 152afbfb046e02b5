// RUN: stem-opt %s --pass-pipeline='builtin.module(stem-dense-to-lookup{stem-layers=0})' -split-input-file -verify-diagnostics

func.func private @layer(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %layer: index, %gate: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %a = stem.attention %x, %x, %x at %t of %t cache %kv[%layer] {head_dim = 8 : i64, scale = 0.3 : f64}
      : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %f = stem.dense_ffn %a gate %gate up %gate down %down
      : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %f : tensor<?x8xf32>
}
func.func @entry(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %layer: index, %gate: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32>
    attributes {stem.entry} {
  // expected-error @+1 {{'func.call' op has no constant layer number, so that its layer cannot be chosen}}
  %y = call @layer(%x, %t, %kv, %layer, %gate, %down)
      : (tensor<?x8xf32>, tensor<?xi32>, !stem.kv_cache, index, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func private @layer(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %layer: index, %gate: tensor<16x8xf32>, %up: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %a = stem.attention %x, %x, %x at %t of %t cache %kv[%layer] {head_dim = 8 : i64, scale = 0.3 : f64}
      : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %f = stem.dense_ffn %a gate %gate up %up down %down
      : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %f : tensor<?x8xf32>
}
func.func @entry(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %gate: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32>
    attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{'func.call' op layer 0: its up-projection is not a parameter}}
  %y = call @layer(%x, %t, %kv, %c0, %gate, %gate, %down)
      : (tensor<?x8xf32>, tensor<?xi32>, !stem.kv_cache, index, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

stem.param @up = "up" : tensor<16x8xf32>
func.func private @layer(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %layer: index, %gate: tensor<16x8xf32>, %up: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %a = stem.attention %x, %x, %x at %t of %t cache %kv[%layer] {head_dim = 8 : i64, scale = 0.3 : f64}
      : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %f = stem.dense_ffn %a gate %gate up %up down %down
      : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %f : tensor<?x8xf32>
}
// expected-error @+1 {{'func.func' op has no argument with the attribute 'stem.id_bound', whose ids could choose rows}}
func.func @entry(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %gate: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32>
    attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  %up = stem.param_load @up : tensor<16x8xf32>
  %y = call @layer(%x, %t, %kv, %c0, %gate, %up, %down)
      : (tensor<?x8xf32>, tensor<?xi32>, !stem.kv_cache, index, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// The weight is read by the gate too.

stem.param @up = "up" : tensor<16x8xf32>
func.func private @layer(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %layer: index, %up: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %a = stem.attention %x, %x, %x at %t of %t cache %kv[%layer] {head_dim = 8 : i64, scale = 0.3 : f64}
      : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %f = stem.dense_ffn %a gate %up up %up down %down
      : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %f : tensor<?x8xf32>
}
func.func @entry(%x: tensor<?x8xf32>, %t: tensor<?xi32> {stem.id_bound = 10 : i64}, %kv: !stem.kv_cache,
    %down: tensor<8x16xf32>) -> tensor<?x8xf32> attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  %up = stem.param_load @up : tensor<16x8xf32>
  // expected-error @+1 {{'func.call' op layer 0: its up-projection is not an argument of 'layer' that the FFN alone reads}}
  %y = call @layer(%x, %t, %kv, %c0, %up, %down)
      : (tensor<?x8xf32>, tensor<?xi32>, !stem.kv_cache, index, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Computed in the layer itself.

func.func private @layer(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %layer: index, %gate: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %a = stem.attention %x, %x, %x at %t of %t cache %kv[%layer] {head_dim = 8 : i64, scale = 0.3 : f64}
      : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %up = arith.addf %gate, %gate : tensor<16x8xf32>
  %f = stem.dense_ffn %a gate %gate up %up down %down
      : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %f : tensor<?x8xf32>
}
func.func @entry(%x: tensor<?x8xf32>, %t: tensor<?xi32> {stem.id_bound = 10 : i64}, %kv: !stem.kv_cache,
    %gate: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{'func.call' op layer 0: its up-projection is not an argument of 'layer' that the FFN alone reads}}
  %y = call @layer(%x, %t, %kv, %c0, %gate, %down)
      : (tensor<?x8xf32>, tensor<?xi32>, !stem.kv_cache, index, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

stem.param @up = "up" : tensor<16x8xf32>
func.func private @layer(%x: tensor<?x8xf32>, %t: tensor<?xi32>, %kv: !stem.kv_cache,
    %layer: index, %gate: tensor<16x8xf32>, %up: !stem.packed<8x16xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %a = stem.attention %x, %x, %x at %t of %t cache %kv[%layer] {head_dim = 8 : i64, scale = 0.3 : f64}
      : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %f = stem.dense_ffn %a gate %gate up %up down %down
      : (tensor<?x8xf32>, tensor<16x8xf32>, !stem.packed<8x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %f : tensor<?x8xf32>
}
func.func @entry(%x: tensor<?x8xf32>, %t: tensor<?xi32> {stem.id_bound = 10 : i64}, %kv: !stem.kv_cache,
    %gate: tensor<16x8xf32>, %down: tensor<8x16xf32>) -> tensor<?x8xf32> attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  %up = stem.param_load @up : !stem.packed<8x16xf32>
  // expected-error @+1 {{'func.call' op layer 0: its up-projection is packed already; stem-dense-to-lookup runs before stem-pack-weights}}
  %y = call @layer(%x, %t, %kv, %c0, %gate, %up, %down)
      : (tensor<?x8xf32>, tensor<?xi32>, !stem.kv_cache, index, tensor<16x8xf32>, !stem.packed<8x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
