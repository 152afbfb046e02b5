// RUN: stem-opt %s --split-input-file --verify-diagnostics --stem-lower-to-host

func.func private @math(%x: f32) -> f32 {
  // expected-error@+1 {{'math.exp' op would become a call into the C library: run stem-expand-math first}}
  %y = math.exp %x : f32
  // expected-error@+1 {{'arith.remf' op would become a call into a library}}
  %z = arith.remf %x, %y : f32
  return %z : f32
}

// -----

func.func private @truncf(%x: f64) -> bf16 {
  // expected-error@+1 {{would become a call into the C library: convert to f32 first}}
  %y = arith.truncf %x : f64 to bf16
  return %y : bf16
}

// -----

func.func private @alloc() {
  // expected-error@+1 {{is left: compiled code allocates nothing, run stem-plan-memory first}}
  %a = memref.alloc() : memref<4xf32>
  return
}

// -----

func.func private @forall() {
  // expected-error@+1 {{is left: run stem-outline-parallel first}}
  scf.forall (%i) in (4) {
    // expected-error@+1 {{has no thread to name here: run stem-outline-parallel first}}
    %t = stem.thread_index
  }
  return
}

// -----

func.func private @copy(%a: memref<4x4xf32, strided<[8, 1]>>, %b: memref<4x4xf32>) {
  // expected-error@+1 {{of strided buffers would become a library call: run stem-vectorize first}}
  memref.copy %a, %b : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
  return
}

// -----

func.func private @strides(%x: memref<?x64xf32, strided<[1, 64]>>, %w: !stem.packed<64x64xf32>, %y: memref<?x64xf32>, %i: index) {
  // expected-error@+1 {{reads rows of contiguous elements, but an operand has type 'memref<?x64xf32, strided<[1, 64]>>'}}
  stem.packed_matmul %x, %w[%i, %i] into %y : (memref<?x64xf32, strided<[1, 64]>>, !stem.packed<64x64xf32>, memref<?x64xf32>, index, index) -> ()
  return
}

// -----

func.func private @panel_strides(%x: memref<?x40xf32, strided<[1, 40]>>, %p: memref<1x4096xf32>, %o: memref<40x?xf32, strided<[1, 40]>>, %y: memref<40x64xf32, strided<[1, 40]>>, %a: memref<40x?xf32>, %adds: i1) {
  // expected-error@+1 {{reads rows of contiguous elements, but an operand has type 'memref<?x40xf32, strided<[1, 40]>>'}}
  stem.pack_tokens %x into %p : (memref<?x40xf32, strided<[1, 40]>>, memref<1x4096xf32>) -> ()
  // expected-error@+1 {{reads rows of contiguous elements, but an operand has type 'memref<40x?xf32, strided<[1, 40]>>'}}
  stem.transpose_tokens %a into %o : (memref<40x?xf32>, memref<40x?xf32, strided<[1, 40]>>) -> ()
  // expected-error@+1 {{reads rows of contiguous elements, but an operand has type 'memref<40x64xf32, strided<[1, 40]>>'}}
  stem.panel_matmul %a, %p into %y accumulate %adds {depth = 64 : i64} : (memref<40x?xf32>, memref<1x4096xf32>, memref<40x64xf32, strided<[1, 40]>>, i1) -> ()
  return
}

// -----

func.func private @step_ops(%t: tensor<64x8xf32>) {
  // expected-error@+1 {{cannot be lowered to the host: the structured phase should have replaced it}}
  %0:3 = stem.gate_vjp %t, %t, %t : (tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>) -> (tensor<64x8xf32>, tensor<64x8xf32>, tensor<64x8xf32>)
  return
}

// -----

func.func private @tensors(%x: tensor<4x64xf32>, %w: !stem.packed<64x64xf32>, %i: index) -> tensor<4x64xf32> {
  // expected-error@+1 {{works on tensors: bufferize first}}
  %y = stem.packed_matmul %x, %w[%i, %i] into %x : (tensor<4x64xf32>, !stem.packed<64x64xf32>, tensor<4x64xf32>, index, index) -> tensor<4x64xf32>
  return %y : tensor<4x64xf32>
}

// -----

// expected-error@+1 {{has no body: compiled code calls nothing but the runtime}}
func.func private @external(%x: f32)

// -----

// expected-error@+1 {{has a name of the runtime: those that begin with 'stem_' are taken}}
func.func private @stem_kv_page() {
  return
}

// -----

// expected-error@+1 {{stands outside of a function}}
%x = arith.constant 1 : index

// -----

stem.table @t = "t" : !stem.table<10x64xf32>
func.func private @no_entry(%t: !stem.table<10x64xf32>, %ids: memref<?xi32>) {
  // expected-error@+1 {{stands in 'no_entry', which is no entry, so that nothing could report its failure}}
  %plan = stem.plan_rows %ids : memref<?xi32>
  return
}

// -----

func.func private @tensor(%t: !stem.table<10x64xf32>, %ids: tensor<?xi32>) attributes {stem.entry} {
  // expected-error@+1 {{works on tensors: bufferize first}}
  %plan = stem.plan_rows %ids : tensor<?xi32>
  return
}

// -----

stem.table @t = "t" : !stem.table<10x64xf32>
func.func private @rows(%t: !stem.table<10x64xf32> {stem.table = @t}, %ids: tensor<?xi32>) attributes {stem.entry} {
  // expected-error@+1 {{cannot be lowered to the host: the structured phase should have replaced it}}
  %rows, %index = stem.table_rows %t, %ids : !stem.table<10x64xf32>, tensor<?xi32> -> tensor<?x64xf32>, tensor<?xi32>
  return
}

// -----

stem.table @t = "t" : !stem.table<10x64xf32>
func.func private @chosen(%t: !stem.table<10x64xf32> {stem.table = @t}, %u: !stem.table<10x64xf32> {stem.table = @t}, %ids: memref<?xi32>, %c: i1) attributes {stem.entry} {
  // expected-error@+1 {{takes a table: only stem.prefetch does}}
  %which = arith.select %c, %t, %u : !stem.table<10x64xf32>
  return
}

// -----

// expected-error@+1 {{argument 0 is a table: 'stem.table' must name its stem.table}}
func.func @unnamed_table(%t: !stem.table<10x64xf32>) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 is a packed matrix without 'stem.param', which says what to pack}}
func.func @unnamed_weight(%w: !stem.packed<64x64xf32>) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 names 'w', which is not a stem.param}}
func.func @missing_param(%w: memref<64xf32> {stem.param = @w}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 has type 'index', which the runtime cannot pass: expected a buffer, a packed matrix, a table or a cache}}
func.func @scalar(%n: index) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 has elements of type 'f64', expected f32, bf16, f16, i32 or i8}}
func.func @doubles(%x: memref<4xf64>) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 must be a buffer of rank 4 at most in the default memory space}}
func.func @rank(%x: memref<1x1x1x1x1xf32>) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 has 'stem.id_bound' but is not a vector of i32}}
func.func @bound(%x: memref<4xf32> {stem.id_bound = 3 : i64}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 has 'stem.row_index' but is not a vector of i32}}
func.func @row_index(%x: memref<4x4xi32> {stem.row_index}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 has both 'stem.id_bound' and 'stem.label_bound'}}
func.func @both(%x: memref<4xi32> {stem.id_bound = 3 : i64, stem.label_bound = 3 : i64}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 'arg0' has 'stem.row_index', but no argument has stem.rows = "tokens"}}
func.func @no_tokens(%x: memref<?xi32> {stem.row_index}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 has 'stem.output_index' but is not a vector of i32}}
func.func @output_index(%x: memref<4xf32> {stem.output_index}) attributes {stem.entry} {
  return
}

// -----

stem.param @w = "w" : tensor<4x8xf32>
// expected-error@+1 {{argument 0 has 'stem.transposed' but is not packed, and weights are transposed where they are packed alone}}
func.func @plain_transposed(%w: memref<8x4xf32> {stem.param = @w, stem.transposed}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 has both 'stem.row_index' and 'stem.output_index'}}
func.func @both_indices(%x: memref<4xi32> {stem.row_index, stem.output_index}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 'arg0' has 'stem.output_index', but no argument has stem.rows = "outputs"}}
func.func @no_outputs(%x: memref<?xi32> {stem.output_index, stem.rows = "tokens"}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 holds the gradient of 'w', which is neither a stem.param nor a stem.table}}
func.func @gradient_of_nothing(%x: memref<4xf32> {stem.output, stem.gradient_of = @w}) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 holds optimizer state of 't', which is not a stem.param}}
func.func @state_of_table(%x: memref<4xf32> {stem.output, stem.state_of = @t}) attributes {stem.entry} {
  return
}
stem.table @t = "t" : !stem.table<4x8xf32>

// -----

// expected-error@+1 {{argument 0 holds the gradient of 'other', which is neither a stem.param nor a stem.table}}
func.func @gradient_of_function(%x: memref<4xf32> {stem.output, stem.gradient_of = @other}) attributes {stem.entry} {
  return
}
func.func private @other() {
  return
}

// -----

// expected-error@+1 {{argument 0 must have a strided layout without an offset}}
func.func @offset(%x: memref<4xf32, strided<[1], offset: 2>>) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{argument 0 must not have a stride of 0}}
func.func @broadcast(%x: memref<4x4xf32, strided<[0, 1]>>) attributes {stem.entry} {
  return
}

// -----

// expected-error@+1 {{takes 281474976710657 bytes whatever its step; the most is 2^48}}
func.func @fixed(%x: memref<4xf32>) attributes {stem.entry, stem.fixed_bytes = 281474976710657 : i64} {
  return
}

// -----

func.func @cache_rows(%k: memref<4x64xf32>, %v: memref<4x32xf32>, %p: memref<4xi32>, %c: !stem.kv_cache) attributes {stem.entry} {
  %i = arith.constant 0 : index
  // expected-error@+1 {{takes the cache of entry 'cache_rows' to have rows of size 64, but another op takes it to have 32}}
  stem.kv_append %k, %k at %p of %p in %c[%i] : memref<4x64xf32>, memref<4x64xf32>, memref<4xi32>, memref<4xi32>
  stem.kv_append %v, %v at %p of %p in %c[%i] : memref<4x32xf32>, memref<4x32xf32>, memref<4xi32>, memref<4xi32>
  return
}

// -----

func.func @cache_heads(%s: i32, %c: !stem.kv_cache, %i: index) {
  // expected-error@+1 {{takes the cache of entry 'cache_element' to have elements of type 'bf16', but another op takes it to have 'f32'}}
  %page = stem.kv_page %c[%i, %s, %i, %i] : !stem.packed<16x64xbf16>
  return
}
func.func @cache_element(%k: memref<4x64xf32>, %p: memref<4xi32>, %c: !stem.kv_cache) attributes {stem.entry} {
  %i = arith.constant 0 : index
  %s = arith.constant 0 : i32
  call @cache_heads(%s, %c, %i) : (i32, !stem.kv_cache, index) -> ()
  stem.kv_append %k, %k at %p of %p in %c[%i] : memref<4x64xf32>, memref<4x64xf32>, memref<4xi32>, memref<4xi32>
  return
}

// -----

func.func @cache_choice(%c: !stem.kv_cache, %d: !stem.kv_cache) attributes {stem.entry} {
  %t = arith.constant true
  // expected-error@+1 {{takes a cache: only calls and the ops of the cache do, so that its shape is known}}
  %e = arith.select %t, %c, %d : !stem.kv_cache
  return
}

// -----

func.func private @body(%task: index, %thread: index, %x: memref<4xf32>) {
  return
}
func.func private @twice(%x: memref<4xf32>, %n: index) {
  call @body(%n, %n, %x) : (index, index, memref<4xf32>) -> ()
  // expected-error@+1 {{names 'body', which func.call names too: give the threads a function of their own}}
  stem.parallel_call @body tasks %n(%x) : memref<4xf32>
  return
}

// -----

// expected-error@+1 {{is an entry: it must have a body and write its results into arguments}}
func.func @result(%x: memref<4xf32>) -> memref<4xf32> attributes {stem.entry} {
  return %x : memref<4xf32>
}

// -----

// expected-error@+1 {{takes memory for each of its tokens, but no argument has stem.rows = "tokens"}}
func.func @rows(%x: memref<?xf32>) attributes {stem.entry, stem.bytes_per_token = 64 : i64} {
  return
}

// -----

// expected-error@+1 {{takes 4294967296 bytes for each token, output or thread; the most is 2 GiB}}
func.func @large(%x: memref<?xf32>) attributes {stem.entry, stem.bytes_per_token = 4294967296 : i64} {
  return
}

// -----

func.func @entry() attributes {stem.entry} {
  return
}
func.func @caller() {
  // expected-error@+1 {{calls an entry: entries are called by the runtime alone}}
  call @entry() : () -> ()
  return
}

// -----

func.func private @print(%x: vector<4xf32>) {
  // expected-error@+1 {{would become a call into a library}}
  vector.print %x : vector<4xf32>
  return
}

// -----

// expected-error@+1 {{has no value, and nothing else defines it}}
memref.global "private" @elsewhere : memref<4xf32>

// -----

stem.table @t = "t" : !stem.table<10x64xf32>
func.func private @other(%t: !stem.table<10x64xf32>) {
  return
}
func.func @passes_table(%t: !stem.table<10x64xf32> {stem.table = @t}) attributes {stem.entry} {
  // expected-error@+1 {{takes a table: only stem.prefetch does}}
  call @other(%t) : (!stem.table<10x64xf32>) -> ()
  return
}
