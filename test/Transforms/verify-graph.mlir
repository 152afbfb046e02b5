// RUN: stem-opt %s -split-input-file -allow-unregistered-dialect --stem-verify-graph -verify-diagnostics

// G1: what belongs there, exporters' leftovers included.
stem.param @w = "w" : tensor<8x8xf32>
stem.table @t = "t" : !stem.table<10x16xf32>
func.func private @external(tensor<?x8xf32>)
func.func @graph(%x: tensor<2x4x8xf32>, %p: tensor<8x8xf32>) -> tensor<2x4x8xf32> {
  %c1 = arith.constant 1 : index
  %w = stem.param_load @w : tensor<8x8xf32>
  %t = stem.table_load @t : !stem.table<10x16xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x4x8xf32> into tensor<8x8xf32>
  %0 = stem.linear %flat, %w : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %dynamic = tensor.cast %0 : tensor<8x8xf32> to tensor<?x8xf32>
  %n = tensor.dim %dynamic, %c1 : tensor<?x8xf32>
  func.call @external(%dynamic) : (tensor<?x8xf32>) -> ()
  %e = tensor.empty() : tensor<8x8xf32>
  %1 = linalg.transpose ins(%0 : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) permutation = [1, 0]
  %2 = linalg.add ins(%0, %1 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = math.exp %2 : tensor<8x8xf32>
  %4 = tensor.extract %3[%c1, %c1] : tensor<8x8xf32>
  %5 = tensor.from_elements %4 : tensor<1xf32>
  %y = tensor.expand_shape %3 [[0, 1], [2]] output_shape [2, 4, 8] : tensor<8x8xf32> into tensor<2x4x8xf32>
  return %y : tensor<2x4x8xf32>
}

// -----

// G1: every offending op is reported.
func.func @others(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %g: tensor<16x8xf32>, %rows: tensor<?x16xf32>, %i: tensor<?xi32>, %d: tensor<8x16xf32>, %m: memref<4xf32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.fused_ffn' op does not belong at the end of the graph phase; a pass should have replaced it}}
  %0 = stem.fused_ffn %x gate %g rows %rows[%i] down %d : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  // expected-error @+1 {{'stem.kv_append' op does not belong at the end of the graph phase}}
  stem.kv_append %x, %x at %i of %i in %c[%l] : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>
  // expected-error @+1 {{'linalg.matmul' op does not belong at the end of the graph phase}}
  %1 = linalg.matmul ins(%x, %w : tensor<?x8xf32>, tensor<8x8xf32>) outs(%x : tensor<?x8xf32>) -> tensor<?x8xf32>
  // expected-error @+1 {{'memref.load' op does not belong at the end of the graph phase}}
  %2 = memref.load %m[%l] : memref<4xf32>
  // expected-error @+1 {{'linalg.fill' op does not belong at the end of the graph phase}}
  linalg.fill ins(%2 : f32) outs(%m : memref<4xf32>)
  // expected-error @+1 {{'unknown.op' op does not belong at the end of the graph phase}}
  "unknown.op"() : () -> ()
  return
}

// -----

// G1: nothing that the structured phase makes.
func.func private @task(index, index)
func.func @structured(%x: tensor<64x8xf32>, %i: tensor<64xi32>, %b: !stem.packed<8x64xf32>, %y: tensor<64x64xf32>, %p: tensor<1x4096xf32>, %t: tensor<8x64xf32>, %c: !stem.kv_cache, %l: index, %s: i32, %add: i1) {
  // expected-error @+1 {{'stem.packed_matmul' op does not belong at the end of the graph phase}}
  %0 = stem.packed_matmul %x, %b[%l, %l] into %y : (tensor<64x8xf32>, !stem.packed<8x64xf32>, tensor<64x64xf32>, index, index) -> tensor<64x64xf32>
  // expected-error @+1 {{'stem.packed_gather' op does not belong at the end of the graph phase}}
  %1 = stem.packed_gather %i, %b into %x : (tensor<64xi32>, !stem.packed<8x64xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  // expected-error @+1 {{'stem.kv_page' op does not belong at the end of the graph phase}}
  %2 = stem.kv_page %c[%l, %s, %l, %l] : !stem.packed<8x64xf32>
  // expected-error @+1 {{'stem.attend' op does not belong at the end of the graph phase}}
  %3 = stem.attend %x at %i of %i cache %c[%l] {head_dim = 8 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : tensor<64x8xf32>, tensor<64xi32>, tensor<64xi32> -> tensor<64x8xf32>
  // expected-error @+1 {{'stem.attend_vjp' op does not belong at the end of the graph phase}}
  %4:3 = stem.attend_vjp %x, %x, %x, %x at %i of %i keys %c queries %c {head_dim = 8 : i64, scale = 1.0 : f64} : tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64xi32>, tensor<64xi32> -> tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>
  // expected-error @+1 {{'stem.pack_tokens' op does not belong at the end of the graph phase}}
  %5 = stem.pack_tokens %x into %p : (tensor<64x8xf32>, tensor<1x4096xf32>) -> tensor<1x4096xf32>
  // expected-error @+1 {{'stem.transpose_tokens' op does not belong at the end of the graph phase}}
  %6 = stem.transpose_tokens %x into %t : (tensor<64x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
  // expected-error @+1 {{'stem.panel_matmul' op does not belong at the end of the graph phase}}
  %7 = stem.panel_matmul %y, %p into %y accumulate %add {depth = 64 : i64} : (tensor<64x64xf32>, tensor<1x4096xf32>, tensor<64x64xf32>, i1) -> tensor<64x64xf32>
  // expected-error @+1 {{'stem.thread_index' op does not belong at the end of the graph phase}}
  %8 = stem.thread_index
  // expected-error @+1 {{'stem.parallel_call' op does not belong at the end of the graph phase}}
  stem.parallel_call @task tasks %l()
  return
}

// -----

stem.param @w = "w" : tensor<8x8xf32>
// expected-error @+1 {{'builtin.module' op does not belong at the end of the graph phase}}
module {
}

// -----

// G2: an entry is not called.
// expected-error @+1 {{'func.func' op is an entry, which only the runtime calls, but the module refers to it}}
func.func @entry() attributes {stem.entry} {
  return
}
func.func @caller() {
  call @entry() : () -> ()
  return
}

// -----

// G3: no recursion.
// expected-error @+1 {{'func.func' op calls itself, directly or through other functions}}
func.func private @self() {
  call @self() : () -> ()
  return
}
// Of several functions one is named.
func.func private @even() {
  call @odd() : () -> ()
  return
}
// expected-error @+1 {{'func.func' op calls itself, directly or through other functions}}
func.func private @odd() {
  call @even() : () -> ()
  return
}
