// RUN: stem-opt %s -split-input-file -allow-unregistered-dialect --stem-verify-structured -verify-diagnostics

// T1, T2: what belongs there.
stem.param @w = "w" : tensor<64x32xf32>
stem.table @t = "t" : !stem.table<10x16xf32>
func.func @structured(%x: tensor<64x32xf32>, %w: !stem.packed<32x64xf32>, %acc: tensor<64x64xf32>, %t: !stem.table<10x16xf32>, %ids: tensor<?xi32>, %c: !stem.kv_cache, %l: index, %s: i32) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %table = arith.constant dense<1.0> : tensor<4xf32>
  %e = math.exp %zero : f32
  %plan = stem.plan_rows %ids : tensor<?xi32>
  %ticket = stem.prefetch %t, %plan : !stem.table<10x16xf32> -> !stem.ticket<16xf32>
  %rows, %index = stem.await %ticket : !stem.ticket<16xf32> -> tensor<?x16xf32>, tensor<?xi32>
  stem.release %ticket : !stem.ticket<16xf32>
  %page = stem.kv_page %c[%l, %s, %l, %l] : !stem.packed<32x64xf32>
  %0 = linalg.fill ins(%zero : f32) outs(%acc : tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = scf.for %i = %l to %l step %l iter_args(%a = %0) -> tensor<64x64xf32> {
    %2 = stem.packed_matmul accumulate %x, %w[%l, %l] into %a : (tensor<64x32xf32>, !stem.packed<32x64xf32>, tensor<64x64xf32>, index, index) -> tensor<64x64xf32>
    scf.yield %2 : tensor<64x64xf32>
  }
  return %1 : tensor<64x64xf32>
}

// -----

// T1: every offending op is reported.
func.func @others(%x: tensor<?x8xf32>, %w: tensor<8xf32>, %m: memref<4xf32>, %l: index) {
  // expected-error @+1 {{'stem.rms_norm' op does not belong at the end of the structured phase; a pass should have replaced it}}
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x8xf32>
  // expected-error @+1 {{'memref.load' op does not belong at the end of the structured phase}}
  %3 = memref.load %m[%l] : memref<4xf32>
  // expected-error @+1 {{'stem.thread_index' op does not belong at the end of the structured phase}}
  %4 = stem.thread_index
  // expected-error @+1 {{'unknown.op' op does not belong at the end of the structured phase}}
  "unknown.op"() : () -> ()
  return
}

// -----

// T2: what is elementwise on tensors is linalg.
func.func @elementwise(%x: tensor<?x8xf32>) {
  // expected-error @+1 {{'arith.addf' op does not belong at the end of the structured phase}}
  %0 = arith.addf %x, %x : tensor<?x8xf32>
  // expected-error @+1 {{'math.exp' op does not belong at the end of the structured phase}}
  %1 = math.exp %x : tensor<?x8xf32>
  return
}
