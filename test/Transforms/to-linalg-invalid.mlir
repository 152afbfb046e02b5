// RUN: stem-opt %s -split-input-file --stem-to-linalg -verify-diagnostics --remarks-filter=stem-to-linalg --remark-format=emitRemark

stem.param @w = "w" : tensor<8x8xf32>
stem.table @t = "t" : !stem.table<10x16xf32>
func.func @unbound() {
  // expected-error @+1 {{'stem.param_load' op is not bound to an argument; run stem-bind-params first}}
  %w = stem.param_load @w : tensor<8x8xf32>
  // expected-error @+1 {{'stem.table_load' op is not bound to an argument; run stem-bind-params first}}
  %t = stem.table_load @t : !stem.table<10x16xf32>
  return
}

// -----

func.func @attention(%q: tensor<64x8xf32>, %p: tensor<64xi32>, %t: tensor<?x8xf32>, %tp: tensor<?xi32>, %h: tensor<64x8xf16>, %n: tensor<0x8xf32>, %np: tensor<0xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attention' op reads and writes its cache in one; run stem-split-attention first}}
  %0 = stem.attention %q, %q, %q at %p of %p cache %c[%l] {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>, tensor<64xi32>, tensor<64xi32> -> tensor<64x8xf32>
  // expected-error @+1 {{'stem.attend' op has no fixed number of tokens; run stem-tile-tokens or stem-tile-columns first}}
  %1 = stem.attend %t at %tp of %tp cache %c[%l] {head_dim = 8 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  // expected-error @+1 {{'stem.attend' op has an operand or result without elements, 'tensor<0x8xf32>'}}
  %2 = stem.attend %n at %np of %np cache %c[%l] {head_dim = 8 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : tensor<0x8xf32>, tensor<0xi32>, tensor<0xi32> -> tensor<0x8xf32>
  // expected-error @+1 {{'stem.attend' op has queries of 'f16'; a cache holds f32 or bf16}}
  %3 = stem.attend %h at %p of %p cache %c[%l] {head_dim = 8 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : tensor<64x8xf16>, tensor<64xi32>, tensor<64xi32> -> tensor<64x8xf16>
  return
}

// -----

func.func @double(%x: tensor<?x8xf64>, %w: tensor<16x8xf64>) {
  // expected-error @+1 {{'stem.linear' op computes in f64, which only the interpreter does}}
  %0 = stem.linear %x, %w : tensor<?x8xf64>, tensor<16x8xf64> -> tensor<?x16xf64>
  return
}

// -----

func.func @no_vocabulary(%x: tensor<?x8xf32>, %w: tensor<0x8xf32>, %l: tensor<?xi32>) {
  // expected-error @+1 {{'stem.cross_entropy' op has a head without outputs}}
  %0 = stem.cross_entropy %x, %w, %l : tensor<?x8xf32>, tensor<0x8xf32>, tensor<?xi32> -> tensor<?xf32>
  return
}

// -----

func.func @dynamic(%x: tensor<?x8xf32>, %w: tensor<?x8xf32>, %i: tensor<?xi32>, %s: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.linear' op has an operand or result 'tensor<?x8xf32>'; only the number of tokens and of rows to gather from may be dynamic}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x16xf32>
  // expected-error @+1 {{'stem.map_ids' op has an operand or result 'tensor<?xi32>'; only the number of tokens}}
  %1 = stem.map_ids %i, %i {unknown = 0 : i32} : tensor<?xi32>, tensor<?xi32> -> tensor<?xi32>
  // expected-error @+1 {{'stem.lookup' op has a number of tokens that is static in one operand or result and dynamic in another; cast them to one type}}
  %2 = stem.lookup %s, %i : tensor<4x8xf32>, tensor<?xi32> -> tensor<4x8xf32>
  return
}

// -----

// What a block of the FFN takes is a remark.
func.func @ffn(%x: tensor<64x32xf32>, %g: !stem.packed<32x128xf32>, %d: !stem.packed<128x32xf32>) -> tensor<64x32xf32> {
  // expected-remark @+1 {{AccumulatorBytes=8192, BlockColumns=128, GateBytes=32768}}
  %0 = stem.dense_ffn %x gate %g up %g down %d : (tensor<64x32xf32>, !stem.packed<32x128xf32>, !stem.packed<32x128xf32>, !stem.packed<128x32xf32>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}

// -----

// Ops of other phases.
func.func @others(%m: memref<4xf32>, %l: index) {
  // expected-error @+1 {{failed to legalize operation 'memref.load'}}
  %0 = memref.load %m[%l] : memref<4xf32>
  return
}

// -----

func.func @attention_vjp(%q: tensor<?x8xf32>, %n: tensor<96x8xf32>, %p: tensor<?xi32>, %np: tensor<96xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attention_vjp' op has no pages to read; run stem-scratch-attention first}}
  %0:3 = stem.attention_vjp %q, %q, %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  // expected-error @+1 {{'stem.attend_vjp' op has 96 tokens, which is not a multiple of 64}}
  %1:3 = stem.attend_vjp %n, %n, %n, %n at %np of %np keys %c queries %c {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<96x8xf32>, tensor<96x8xf32>, tensor<96x8xf32>, tensor<96x8xf32>, tensor<96xi32>, tensor<96xi32> -> tensor<96x8xf32>, tensor<96x8xf32>, tensor<96x8xf32>
  // expected-error @+1 {{'stem.attend_vjp' op has an operand or result 'tensor<96x8xf32>' where q is 'tensor<?x8xf32>'; the number of tokens may be dynamic, of all or of none}}
  %2:3 = stem.attend_vjp %q, %n, %n, %q at %p of %p keys %c queries %c {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<96x8xf32>, tensor<96x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>, tensor<96x8xf32>, tensor<96x8xf32>
  return
}

// -----

func.func @attend_vjp_columns(%q: tensor<?x8xf32>, %v: tensor<?x?xf32>, %p: tensor<?xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op has an operand or result 'tensor<?x?xf32>' where q is 'tensor<?x8xf32>'; the number of tokens may be dynamic, of all or of none}}
  %0:3 = stem.attend_vjp %q, %q, %v, %q at %p of %p keys %c queries %c {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x?xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
  return
}
