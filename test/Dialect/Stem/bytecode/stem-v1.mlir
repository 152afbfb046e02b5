// Every op and type of version 1 of the dialect, and the same as bytecode in
// the frozen file beside it, which every later version has to read.
//
// RUN: stem-opt %s -o %t.text
// RUN: stem-opt %S/stem-v1.mlirbc -o %t.frozen
// RUN: diff %t.text %t.frozen
//
// Bytecode written now holds the version too: with the number of a newer one
// it is refused.
//
// RUN: stem-opt %s --emit-bytecode -o %t.mlirbc
// RUN: %python %S/Inputs/raise_version.py %t.mlirbc %t.newer
// RUN: not stem-opt %t.newer 2>&1 | FileCheck %s
// RUN: %python %S/Inputs/raise_version.py %S/stem-v1.mlirbc %t.newer
// RUN: not stem-opt %t.newer 2>&1 | FileCheck %s
// CHECK: error: bytecode holds version 3 of the stem dialect, but this build reads up to 2; use a newer build of Stem

module {
  stem.param @gate = "mlp.gate" : tensor<16x8xbf16>
  stem.table @up = "mlp.up" : !stem.table<32x16xbf16>
  func.func @state() -> (tensor<16x8xbf16>, !stem.packed<8x16xbf16>, !stem.table<32x16xbf16>) {
    %0 = stem.param_load @gate : tensor<16x8xbf16>
    %1 = stem.param_load @gate : !stem.packed<8x16xbf16>
    %2 = stem.table_load @up : !stem.table<32x16xbf16>
    return %0, %1, %2 : tensor<16x8xbf16>, !stem.packed<8x16xbf16>, !stem.table<32x16xbf16>
  }
  func.func @embedding(%arg0: tensor<?xi32>, %arg1: tensor<32x8xbf16>) -> tensor<?x8xf32> {
    %0 = stem.embedding %arg0, %arg1 : tensor<?xi32>, tensor<32x8xbf16> -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
  func.func @rms_norm(%arg0: tensor<?x8xf32>, %arg1: tensor<4xf32>) -> tensor<?x8xbf16> {
    %0 = stem.rms_norm %arg0, %arg1 {eps = 1.000000e-05 : f64} : tensor<?x8xf32>, tensor<4xf32> -> tensor<?x8xbf16>
    return %0 : tensor<?x8xbf16>
  }
  func.func @linear(%arg0: tensor<?x8xbf16>, %arg1: tensor<16x8xbf16>, %arg2: !stem.packed<8x16xbf16>, %arg3: tensor<16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
    %0 = stem.linear %arg0, %arg1 : tensor<?x8xbf16>, tensor<16x8xbf16> -> tensor<?x16xf32>
    %1 = stem.linear %arg0, %arg2 bias %arg3 : tensor<?x8xbf16>, !stem.packed<8x16xbf16>, tensor<16xf32> -> tensor<?x16xf32>
    return %0, %1 : tensor<?x16xf32>, tensor<?x16xf32>
  }
  func.func @rotary(%arg0: tensor<?x8xf32>, %arg1: tensor<?xi32>) -> tensor<?x8xf32> {
    %cos, %sin = stem.rotary_angles %arg1 {inv_freq = array<f32: 1.000000e+00, 1.000000e-01>} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
    %cos_0, %sin_1 = stem.rotary_angles %arg1 {inv_freq = array<f32: 1.000000e+00, 1.000000e-01>, scaling = 2.000000e+00 : f64} : tensor<?xi32> -> tensor<?x2xf32>, tensor<?x2xf32>
    %0 = stem.rope %arg0, %cos, %sin : tensor<?x8xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
  func.func @attention(%arg0: tensor<?x8xf32>, %arg1: tensor<?x4xf32>, %arg2: tensor<?x4xf32>, %arg3: tensor<?xi32>, %arg4: tensor<?xi32>, %arg5: !stem.kv_cache, %arg6: index) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
    %0 = stem.attention %arg0, %arg1, %arg2 at %arg3 of %arg4 {head_dim = 4 : i64, scale = 5.000000e-01 : f64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
    %1 = stem.attention %arg0, %arg1, %arg2 at %arg3 of %arg4 cache %arg5[%arg6] {head_dim = 4 : i64, scale = 5.000000e-01 : f64, window = 16 : i64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
    return %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
  }
  func.func @dense_ffn(%arg0: tensor<?x8xf32>, %arg1: tensor<16x8xf32>, %arg2: tensor<16x8xf32>, %arg3: tensor<8x16xf32>, %arg4: tensor<16xf32>, %arg5: tensor<8xf32>) -> tensor<?x8xf32> {
    %0 = stem.dense_ffn %arg0 gate %arg1 up %arg2 down %arg3 gate_bias %arg4 up_bias %arg4 down_bias %arg5 : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    %1 = stem.dense_ffn %0 gate %arg1 up %arg2 down %arg3 : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
    return %1 : tensor<?x8xf32>
  }
  func.func @cross_entropy(%arg0: tensor<?x8xf32>, %arg1: tensor<32x8xf32>, %arg2: tensor<?xi32>) -> tensor<?xf32> {
    %0 = stem.cross_entropy %arg0, %arg1, %arg2 : tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32> -> tensor<?xf32>
    return %0 : tensor<?xf32>
  }
  func.func @table_ffn(%arg0: tensor<?x8xf32>, %arg1: tensor<?xi32>, %arg2: !stem.table<32x16xbf16>, %arg3: tensor<64xi32>, %arg4: tensor<16x8xf32>, %arg5: !stem.packed<16x8xf32>, %arg6: tensor<16xf32>, %arg7: tensor<8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
    %0 = stem.map_ids %arg1, %arg3 {unknown = 0 : i32} : tensor<?xi32>, tensor<64xi32> -> tensor<?xi32>
    %rows, %index = stem.table_rows %arg2, %0 : !stem.table<32x16xbf16>, tensor<?xi32> -> tensor<?x16xbf16>, tensor<?xi32>
    %1 = stem.lookup %rows, %index : tensor<?x16xbf16>, tensor<?xi32> -> tensor<?x16xf32>
    %2 = stem.gated_ffn %arg0 gate %arg4 rows %1 down %arg5 gate_bias %arg6 down_bias %arg7 : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, !stem.packed<16x8xf32>, tensor<16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    %3 = stem.fused_ffn %arg0 gate %arg4 rows %rows[%index] down %arg5 : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xbf16>, tensor<?xi32>, !stem.packed<16x8xf32>) -> tensor<?x8xf32>
    return %2, %3 : tensor<?x8xf32>, tensor<?x8xf32>
  }
  func.func @hybrids(%arg0: tensor<?x16xf32>, %arg1: tensor<?x8xf32>, %arg2: tensor<16x2xf32>, %arg3: tensor<2x8xf32>, %arg4: tensor<16x8xf32>, %arg5: tensor<?xi32>, %arg6: tensor<3xi32>) -> tensor<?x16xf32> {
    %0 = stem.mix %arg0, %arg1 a %arg2 b %arg3 : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x2xf32>, tensor<2x8xf32>) -> tensor<?x16xf32>
    %1 = stem.select_up %0, %arg1 weight %arg4 ids %arg5 in %arg6 : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x16xf32>
    return %1 : tensor<?x16xf32>
  }
  func.func @packed_matmul(%arg0: tensor<4x8xf32>, %arg1: !stem.packed<8x64xf32>, %arg2: tensor<4x64xf32>, %arg3: memref<4x8xf32>, %arg4: memref<4x64xf32>, %arg5: index) -> tensor<4x64xf32> {
    %0 = stem.packed_matmul %arg0, %arg1[%arg5, %arg5] into %arg2 : (tensor<4x8xf32>, !stem.packed<8x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
    stem.packed_matmul accumulate %arg3, %arg1[%arg5, %arg5] into %arg4 : (memref<4x8xf32>, !stem.packed<8x64xf32>, memref<4x64xf32>, index, index) -> ()
    return %0 : tensor<4x64xf32>
  }
  func.func @cache(%arg0: tensor<4x8xf32>, %arg1: tensor<4xi32>, %arg2: tensor<4xi32>, %arg3: !stem.kv_cache, %arg4: index, %arg5: i32) -> (!stem.packed<4x64xbf16>, !stem.packed<64x4xbf16>) {
    stem.kv_append %arg0, %arg0 at %arg1 of %arg2 in %arg3[%arg4] : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>, tensor<4xi32>
    %0 = stem.kv_page %arg3[%arg4, %arg5, %arg4, %arg4] : !stem.packed<4x64xbf16>
    %1 = stem.kv_page values %arg3[%arg4, %arg5, %arg4, %arg4] : !stem.packed<64x4xbf16>
    return %0, %1 : !stem.packed<4x64xbf16>, !stem.packed<64x4xbf16>
  }
  func.func @attend(%arg0: tensor<?x8xf32>, %arg1: tensor<?xi32>, %arg2: tensor<?xi32>, %arg3: !stem.kv_cache, %arg4: index) -> tensor<?x8xf32> {
    %0 = stem.attend %arg0 at %arg1 of %arg2 cache %arg3[%arg4] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 5.000000e-01 : f64, window = 16 : i64} : tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
  func.func private @body(%arg0: index, %arg1: index, %arg2: memref<4xf32>) {
    return
  }
  func.func private @bare(%arg0: index, %arg1: index) {
    return
  }
  func.func @parallel(%arg0: memref<4xf32>, %arg1: index) -> index {
    %0 = stem.thread_index
    stem.parallel_call @body tasks %arg1(%arg0) : memref<4xf32>
    stem.parallel_call @bare tasks %arg1()
    return %0 : index
  }
}

