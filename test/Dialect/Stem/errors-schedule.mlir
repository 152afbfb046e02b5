// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Each constraint of the schedule ops: the function's name says which.

func.func @packed_matmul_c1(%a: tensor<5x8xf32>, %b: !stem.packed<8x64xf32>, %acc: tensor<4x64xf32>, %o: index) {
  // expected-error @+1 {{'stem.packed_matmul' op rows of acc must be the rows of a, which is 5, got 4}}
  %0 = stem.packed_matmul %a, %b[%o, %o] into %acc : (tensor<5x8xf32>, !stem.packed<8x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  return
}

// -----

func.func @packed_matmul_c2(%a: tensor<4x8xbf16>, %b: !stem.packed<8x64xf32>, %acc: tensor<4x64xf32>, %o: index) {
  // expected-error @+1 {{'stem.packed_matmul' op a and b must have the same element type, got 'bf16' and 'f32'}}
  %0 = stem.packed_matmul %a, %b[%o, %o] into %acc : (tensor<4x8xbf16>, !stem.packed<8x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  return
}

// -----

func.func @packed_matmul_c3(%a: tensor<4x8xf32>, %b: !stem.packed<8x64xf32>, %acc: tensor<4x64xf32>, %o: index) {
  // expected-error @+1 {{'stem.packed_matmul' op must have one result of the type of acc on tensors and none on buffers}}
  %0 = stem.packed_matmul %a, %b[%o, %o] into %acc : (tensor<4x8xf32>, !stem.packed<8x64xf32>, tensor<4x64xf32>, index, index) -> tensor<?x64xf32>
  return
}

// -----

func.func @packed_matmul_c3_buffers(%a: memref<4x8xf32>, %b: !stem.packed<8x64xf32>, %acc: memref<4x64xf32>, %o: index) {
  // expected-error @+1 {{'stem.packed_matmul' op must have one result of the type of acc on tensors and none on buffers}}
  %0 = stem.packed_matmul %a, %b[%o, %o] into %acc : (memref<4x8xf32>, !stem.packed<8x64xf32>, memref<4x64xf32>, index, index) -> tensor<4x64xf32>
  return
}

// -----

func.func @packed_matmul_c4(%a: tensor<4x9xf32>, %b: !stem.packed<8x64xf32>, %acc: tensor<4x64xf32>, %o: index) {
  // expected-error @+1 {{'stem.packed_matmul' op block 9 x 64 does not fit into '!stem.packed<8x64xf32>'}}
  %0 = stem.packed_matmul %a, %b[%o, %o] into %acc : (tensor<4x9xf32>, !stem.packed<8x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  return
}

// -----

func.func @packed_matmul_c4_columns(%a: tensor<4x8xf32>, %b: !stem.packed<8x64xf32>, %acc: tensor<4x65xf32>, %o: index) {
  // expected-error @+1 {{'stem.packed_matmul' op block 8 x 65 does not fit into '!stem.packed<8x64xf32>'}}
  %0 = stem.packed_matmul %a, %b[%o, %o] into %acc : (tensor<4x8xf32>, !stem.packed<8x64xf32>, tensor<4x65xf32>, index, index) -> tensor<4x65xf32>
  return
}

// -----

func.func @packed_gather_c1(%i: tensor<5xi32>, %b: !stem.packed<8x64xf32>, %out: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.packed_gather' op rows of out must be the number of ids, which is 5, got 4}}
  %0 = stem.packed_gather %i, %b into %out : (tensor<5xi32>, !stem.packed<8x64xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @packed_gather_c2(%i: tensor<4xi32>, %b: !stem.packed<8x64xf32>, %out: tensor<4x64xf32>) {
  // expected-error @+1 {{'stem.packed_gather' op columns of out must be the rows of b, which is 8, got 64}}
  %0 = stem.packed_gather %i, %b into %out : (tensor<4xi32>, !stem.packed<8x64xf32>, tensor<4x64xf32>) -> tensor<4x64xf32>
  return
}

// -----

func.func @packed_gather_c3(%i: tensor<4xi32>, %b: !stem.packed<8x64xf32>, %out: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.packed_gather' op must have one result of the type of out on tensors and none on buffers}}
  %0 = stem.packed_gather %i, %b into %out : (tensor<4xi32>, !stem.packed<8x64xf32>, tensor<4x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @packed_gather_c3_buffers(%i: memref<4xi32>, %b: !stem.packed<8x64xf32>, %out: memref<4x8xf32>) {
  // expected-error @+1 {{'stem.packed_gather' op must have one result of the type of out on tensors and none on buffers}}
  %0 = stem.packed_gather %i, %b into %out : (memref<4xi32>, !stem.packed<8x64xf32>, memref<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @kv_append_c1(%k: tensor<4x8xf32>, %v: tensor<4x8xbf16>, %p: tensor<4xi32>, %s: tensor<4xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.kv_append' op k and v must have the same type, got 'tensor<4x8xf32>' and 'tensor<4x8xbf16>'}}
  stem.kv_append %k, %v at %p of %s in %c[%l] : tensor<4x8xf32>, tensor<4x8xbf16>, tensor<4xi32>, tensor<4xi32>
  return
}

// -----

func.func @kv_append_c2(%k: tensor<4x8xf32>, %v: tensor<4x8xf32>, %p: tensor<3xi32>, %s: tensor<4xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.kv_append' op length of positions must be the rows of k, which is 4, got 3}}
  stem.kv_append %k, %v at %p of %s in %c[%l] : tensor<4x8xf32>, tensor<4x8xf32>, tensor<3xi32>, tensor<4xi32>
  return
}

// -----

func.func @kv_append_c2_sequences(%k: tensor<4x8xf32>, %v: tensor<4x8xf32>, %p: tensor<4xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.kv_append' op length of sequences must be the rows of k, which is 4, got 3}}
  stem.kv_append %k, %v at %p of %s in %c[%l] : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>, tensor<3xi32>
  return
}

// -----

func.func @attend_c1(%q: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attend' op head_dim (5) must divide the columns of q (12), static}}
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 5 : i64, kv_heads = 1 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>
  return
}

// -----

func.func @attend_c2(%q: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attend' op the number of query heads (3) must be a multiple of kv_heads (2)}}
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 4 : i64, kv_heads = 2 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>
  return
}

// -----

func.func @attend_c3(%q: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attend' op result must have the shape of q ('tensor<3x12xf32>'), got 'tensor<3x8xf32>'}}
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x8xf32>
  return
}

// -----

func.func @attend_c4(%q: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attend' op window must not be negative, got -2}}
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 0.5 : f64, window = -2 : i64} : tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>
  return
}

// -----

func.func @attend_c5(%q: tensor<3x12xf32>, %p: tensor<4xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attend' op length of positions must be the rows of q, which is 3, got 4}}
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<4xi32>, tensor<3xi32> -> tensor<3x12xf32>
  return
}

// -----

func.func @attend_c5_sequences(%q: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<4xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attend' op length of sequences must be the rows of q, which is 3, got 4}}
  %0 = stem.attend %q at %p of %s cache %c[%l] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3xi32>, tensor<4xi32> -> tensor<3x12xf32>
  return
}

// -----

func.func @attend_vjp_c1(%q: tensor<3x12xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %g: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op head_dim (5) must divide the columns of q (12) and of k (4), both static}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 5 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_vjp_c2(%q: tensor<3x12xf32>, %k: tensor<3x4xf32>, %v: tensor<3x8xf32>, %g: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op k and v must have the same shape, got 'tensor<3x4xf32>' and 'tensor<3x8xf32>'}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_vjp_c3(%q: tensor<3x12xf32>, %k: tensor<3x8xf32>, %v: tensor<3x8xf32>, %g: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op the number of query heads (3) must be a multiple of the number of key-value heads (2)}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x8xf32>, tensor<3x8xf32>
  return
}

// -----

func.func @attend_vjp_c5(%q: tensor<3x12xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %g: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op cotangent must have the shape of q ('tensor<3x12xf32>'), got 'tensor<3x8xf32>'}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_vjp_c6(%q: tensor<3x12xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %g: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op window must not be negative, got -1}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64, window = -1 : i64} : tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_vjp_c7(%q: tensor<3x12xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %g: tensor<3x12xf32>, %p: tensor<4xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op rows of a token operand must be the rows of q, which is 3, got 4}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x12xf32>, tensor<4xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_vjp_c8(%q: tensor<3x12xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %g: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op dv must have the shape of its value ('tensor<3x4xf32>'), got 'tensor<3x8xf32>'}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x8xf32>
  return
}

// -----

func.func @attend_vjp_c10(%q: tensor<3x12xf32>, %k: tensor<3x4xbf16>, %v: tensor<3x4xf32>, %g: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op k must have the elements of q, 'f32', got 'tensor<3x4xbf16>'}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x4xbf16>, tensor<3x4xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_vjp_c10_pages(%q: tensor<3x12xf16>, %k: tensor<3x4xf16>, %v: tensor<3x4xf16>, %g: tensor<3x12xf16>, %p: tensor<3xi32>, %s: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op pages are f32 or bf16, got queries of 'f16'}}
  %0:3 = stem.attend_vjp %q, %k, %v, %g at %p of %s keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf16>, tensor<3x4xf16>, tensor<3x4xf16>, tensor<3x12xf16>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_c6(%q: tensor<3x12xf32>, %p: tensor<3xi32>, %c: !stem.kv_cache, %l: index) {
  // expected-error @+1 {{'stem.attend' op columns of logsumexp must be the number of query heads, which is 3, got 4}}
  %0, %1 = stem.attend %q at %p of %p cache %c[%l] {head_dim = 4 : i64, kv_heads = 1 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x4xf32>
  return
}

// -----

func.func @attend_vjp_c9(%q: tensor<3x12xf32>, %l: tensor<2x3xf32>, %p: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attend_vjp' op rows of the forward logarithms must be the rows of q, which is 3, got 2}}
  %0:3 = stem.attend_vjp %q, %q, %q, %q forward %q, %l : tensor<3x12xf32>, tensor<2x3xf32> at %p of %p keys %c queries %c {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x12xf32>, tensor<3x12xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>, tensor<3x12xf32>, tensor<3x12xf32>
  return
}

// -----

func.func @kv_page_c1(%c: !stem.kv_cache, %i: index, %s: i32) {
  // expected-error @+1 {{'stem.kv_page' op a page of keys must hold 64 positions, got '!stem.packed<64x4xf32>'}}
  %0 = stem.kv_page %c[%i, %s, %i, %i] : !stem.packed<64x4xf32>
  return
}

// -----

func.func @kv_page_c1_values(%c: !stem.kv_cache, %i: index, %s: i32) {
  // expected-error @+1 {{'stem.kv_page' op a page of values must hold 64 positions, got '!stem.packed<4x64xf32>'}}
  %0 = stem.kv_page values %c[%i, %s, %i, %i] : !stem.packed<4x64xf32>
  return
}

// -----

func.func @parallel_call_c1(%n: index) {
  // expected-error @+1 {{'stem.parallel_call' op 'missing' is not a function}}
  stem.parallel_call @missing tasks %n()
  return
}

// -----

func.func private @body(index, index, memref<4xf32>)
func.func @parallel_call_c1_captures(%n: index, %m: memref<8xf32>) {
  // expected-error @+1 {{'stem.parallel_call' op 'body' must take the task, the thread and the captures, and return nothing}}
  stem.parallel_call @body tasks %n(%m) : memref<8xf32>
  return
}

// -----

func.func private @body(index, index) -> f32
func.func @parallel_call_c1_result(%n: index) {
  // expected-error @+1 {{'stem.parallel_call' op 'body' must take the task, the thread and the captures, and return nothing}}
  stem.parallel_call @body tasks %n()
  return
}
