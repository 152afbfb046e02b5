// RUN: stem-opt %s -split-input-file -allow-unregistered-dialect --stem-verify-import -verify-diagnostics

// I1: what exporters write, and stem.
stem.param @w = "w" : tensor<16x8xf32>
stem.table @t = "t" : !stem.table<10x16xf32>
func.func private @external(tensor<?x8xf32>)
func.func @import(%x: tensor<2x8xf32>, %a: tensor<1x2x8xf32>, %b: tensor<1x8x4xf32>, %z: tensor<1xf32>, %n: index, %p: i1) -> tensor<2x16xf32> {
  %c0 = index.constant 0
  %c1 = arith.constant 1 : index
  %w = stem.param_load @w : tensor<16x8xf32>
  %t = stem.table_load @t : !stem.table<10x16xf32>
  %dynamic = tensor.cast %x : tensor<2x8xf32> to tensor<?x8xf32>
  func.call @external(%dynamic) : (tensor<?x8xf32>) -> ()
  %m = tosa.matmul %a, %b, %z, %z : (tensor<1x2x8xf32>, tensor<1x8x4xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x2x4xf32>
  %half = affine.apply affine_map<(d0) -> (d0 floordiv 2)>(%n)
  %zero = arith.constant dense<0.0> : tensor<2x16xf32>
  %e = tensor.empty() : tensor<8x16xf32>
  %wt = linalg.transpose ins(%w : tensor<16x8xf32>) outs(%e : tensor<8x16xf32>) permutation = [1, 0]
  %0 = linalg.matmul ins(%x, %wt : tensor<2x8xf32>, tensor<8x16xf32>) outs(%zero : tensor<2x16xf32>) -> tensor<2x16xf32>
  %1 = scf.for %i = %c0 to %half step %c1 iter_args(%y = %0) -> tensor<2x16xf32> {
    %2 = math.exp %y : tensor<2x16xf32>
    scf.yield %2 : tensor<2x16xf32>
  }
  %3 = scf.if %p -> tensor<2x16xf32> {
    scf.yield %0 : tensor<2x16xf32>
  } else {
    scf.yield %1 : tensor<2x16xf32>
  }
  return %3 : tensor<2x16xf32>
}

// -----

// I1: every offending op is reported.
func.func @others(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %m: memref<4xf32>, %c: !stem.kv_cache, %l: index, %i: tensor<?xi32>, %p: i1) {
  // expected-error @+1 {{'stem.kv_append' op does not belong at the end of the import phase; a pass should have replaced it}}
  stem.kv_append %x, %x at %i of %i in %c[%l] : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>
  // expected-error @+1 {{'memref.load' op does not belong at the end of the import phase}}
  %0 = memref.load %m[%l] : memref<4xf32>
  // expected-error @+1 {{'linalg.fill' op does not belong at the end of the import phase}}
  linalg.fill ins(%0 : f32) outs(%m : memref<4xf32>)
  // expected-error @+1 {{'linalg.softmax' op does not belong at the end of the import phase}}
  %1 = linalg.softmax dimension(1) ins(%x : tensor<?x8xf32>) outs(%x : tensor<?x8xf32>) -> tensor<?x8xf32>
  // expected-error @+1 {{'cf.assert' op does not belong at the end of the import phase}}
  cf.assert %p, "sizes differ"
  // expected-error @+1 {{'unknown.op' op does not belong at the end of the import phase}}
  "unknown.op"() : () -> ()
  return
}

// -----

// What a torch exporter leaves behind; symbol-dce removes it.
// expected-error @+1 {{'ml_program.global' op does not belong at the end of the import phase}}
ml_program.global private mutable @global_seed(dense<0> : tensor<i64>) : tensor<i64>

// -----

// I2: weights are symbols, small constants and splats that are none may stay.
func.func @weights(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<1x4x4xf32>) {
  // expected-error @+1 {{'arith.constant' op holds a weight of 16 elements in the IR: run stem-externalize-constants first, or give the pipeline stem-file=PATH}}
  %w = arith.constant dense_resource<w> : tensor<4x4xf32>
  // expected-error @+1 {{'tosa.const' op holds a weight of 16 elements in the IR}}
  %v = "tosa.const"() <{values = dense<0.5> : tensor<1x4x4xf32>}> : () -> tensor<1x4x4xf32>
  %small = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %ids = arith.constant dense<1> : tensor<64xi32>
  %zero = arith.constant dense<0.0> : tensor<4x4xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<4x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<4x4xf32>) -> tensor<4x4xf32>
  %two = arith.constant dense<2.0> : tensor<4x4xf32>
  %1 = arith.mulf %0, %two : tensor<4x4xf32>
  return %0, %1, %v : tensor<4x4xf32>, tensor<4x4xf32>, tensor<1x4x4xf32>
}

{-# dialect_resources: { builtin: { w: "0x040000000000803f0000004000004040000080400000803f0000004000004040000080400000803f0000004000004040000080400000803f000000400000404000008040" } } #-}

// -----

// I3: tensors have a rank.
// expected-error @+1 {{'func.func' op has a value of type 'tensor<*xf32>': export the model with the rank of every tensor}}
func.func @ranks(%x: tensor<*xf32>) {
  %0 = tensor.cast %x : tensor<*xf32> to tensor<4x4xf32>
  // expected-error @+1 {{'tensor.cast' op has a value of type 'tensor<*xf32>'}}
  %1 = tensor.cast %0 : tensor<4x4xf32> to tensor<*xf32>
  return
}
