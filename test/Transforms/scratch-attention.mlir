// RUN: stem-opt %s -split-input-file --stem-scratch-attention -verify-diagnostics | FileCheck %s

// A layer, what calls it, and the entry that calls that.

// CHECK-LABEL: func.func private @layer
// CHECK-SAME: %[[L:[a-z0-9]+]]: index, %[[OWN:[a-z0-9]+]]: !stem.kv_cache, %[[SCRATCH:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache})
// CHECK: stem.attention {{.*}} cache %[[OWN]][%[[L]]] {
// CHECK: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK: stem.attention {{.*}} cache %[[SCRATCH]][%[[ZERO]]] {head_dim = 8 : i64, scale = 5.000000e-01 : f64, window = 7 : i64}
func.func private @layer(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %l: index, %c: !stem.kv_cache) -> tensor<?x32xf32> {
  %0 = stem.attention %q, %k, %k at %p of %s cache %c[%l] {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  %1 = stem.attention %0, %k, %k at %p of %s {head_dim = 8 : i64, scale = 0.5 : f64, window = 7 : i64} : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}

// CHECK-LABEL: func.func private @two_layers
// CHECK-SAME: %[[C:[a-z0-9]+]]: !stem.kv_cache, %[[SCRATCH:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache})
// CHECK-COUNT-2: call @layer({{.*}}, %[[C]], %[[SCRATCH]])
func.func private @two_layers(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %l: index, %c: !stem.kv_cache) -> tensor<?x32xf32> {
  %0 = func.call @layer(%q, %k, %p, %s, %l, %c) : (tensor<?x32xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<?xi32>, index, !stem.kv_cache) -> tensor<?x32xf32>
  %1 = func.call @layer(%0, %k, %p, %s, %l, %c) : (tensor<?x32xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<?xi32>, index, !stem.kv_cache) -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}

// CHECK-LABEL: func.func @entry
// CHECK-SAME: !stem.kv_cache {stem.name = "cache"}, %[[SCRATCH:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache})
// CHECK: call @two_layers({{.*}}, %[[SCRATCH]])
func.func @entry(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache {stem.name = "cache"}) -> tensor<?x32xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %l = arith.constant 3 : index
  %0 = func.call @two_layers(%q, %k, %p, %s, %l, %c) : (tensor<?x32xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<?xi32>, index, !stem.kv_cache) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// Nothing else changes.
// CHECK-LABEL: func.func @other(%arg0: tensor<?x32xf32>) -> tensor<?x32xf32>
func.func @other(%q: tensor<?x32xf32>) -> tensor<?x32xf32> {
  return %q : tensor<?x32xf32>
}

// -----

// A function that calls itself takes the cache once.
// CHECK-LABEL: func.func private @recursive
// CHECK-SAME: %[[SCRATCH:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache}) -> tensor<?x32xf32>
// CHECK: call @recursive({{.*}}, %[[SCRATCH]])
func.func private @recursive(%q: tensor<?x32xf32>, %p: tensor<?xi32>) -> tensor<?x32xf32> {
  %0 = stem.attention %q, %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  %1 = func.call @recursive(%0, %p) : (tensor<?x32xf32>, tensor<?xi32>) -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}

// -----

func.func private @layer(%q: tensor<?x32xf32>, %p: tensor<?xi32>) -> tensor<?x32xf32> {
  %0 = stem.attention %q, %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
func.func @indirect(%q: tensor<?x32xf32>, %p: tensor<?xi32>) -> tensor<?x32xf32> {
  // expected-error @+1 {{'func.constant' op refers to 'layer', which attends without a cache and takes one as a further argument: only calls can pass it}}
  %f = func.constant @layer : (tensor<?x32xf32>, tensor<?xi32>) -> tensor<?x32xf32>
  %0 = func.call_indirect %f(%q, %p) : (tensor<?x32xf32>, tensor<?xi32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// -----

// The cotangent is rounded to the type of the pages.

// CHECK-LABEL: func.func private @backward
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x32xbf16>, %[[K:[a-z0-9]+]]: tensor<?x16xbf16>, %[[V:[a-z0-9]+]]: tensor<?x16xbf16>, %[[G:[a-z0-9]+]]: tensor<?x32xf32>, %[[P:[a-z0-9]+]]: tensor<?xi32>, %[[S:[a-z0-9]+]]: tensor<?xi32>, %[[KEYS:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache}, %[[QUERIES:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch_queries", stem.scratch_cache})
// CHECK: %[[R:.*]] = arith.truncf %[[G]] : tensor<?x32xf32> to tensor<?x32xbf16>
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : index
// CHECK: stem.kv_append %[[K]], %[[K]] at %[[P]] of %[[S]] in %[[KEYS]][%[[ZERO]]]
// CHECK-NEXT: stem.kv_append %[[V]], %[[V]] at %[[P]] of %[[S]] in %[[KEYS]][%[[ONE]]]
// CHECK-NEXT: stem.kv_append %[[Q]], %[[Q]] at %[[P]] of %[[S]] in %[[QUERIES]][%[[ZERO]]]
// CHECK-NEXT: stem.kv_append %[[R]], %[[R]] at %[[P]] of %[[S]] in %[[QUERIES]][%[[ONE]]]
// CHECK-NEXT: %[[D:.*]], %[[DK:.*]], %[[DV:.*]] = stem.attend_vjp %[[Q]], %[[K]], %[[V]], %[[R]] at %[[P]] of %[[S]] keys %[[KEYS]] queries %[[QUERIES]] {head_dim = 8 : i64, scale = 5.000000e-01 : f64, window = 7 : i64}
// CHECK: return %[[D]], %[[DK]], %[[DV]]
func.func private @backward(%q: tensor<?x32xbf16>, %k: tensor<?x16xbf16>, %v: tensor<?x16xbf16>, %g: tensor<?x32xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> (tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>) attributes {stem.tile = 64 : i64} {
  %0:3 = stem.attention_vjp %q, %k, %v, %g at %p of %s {head_dim = 8 : i64, scale = 0.5 : f64, window = 7 : i64} : (tensor<?x32xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>)
  return %0#0, %0#1, %0#2 : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>
}

func.func private @forward(%q: tensor<?x32xbf16>, %p: tensor<?xi32>) -> tensor<?x32xbf16> attributes {stem.tile = 64 : i64} {
  %0 = stem.attention %q, %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xbf16>, tensor<?x32xbf16>, tensor<?x32xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xbf16>
  return %0 : tensor<?x32xbf16>
}

// Each call passes what its callee takes.
// CHECK-LABEL: func.func @entry
// CHECK-SAME: %[[KEYS:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache}, %[[QUERIES:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch_queries", stem.scratch_cache})
// CHECK: call @forward({{%[a-z0-9]+}}, {{%[a-z0-9]+}}, %[[KEYS]])
// CHECK: call @backward({{.*}}, %[[KEYS]], %[[QUERIES]])
func.func @entry(%q: tensor<?x32xbf16>, %k: tensor<?x16xbf16>, %g: tensor<?x32xf32>, %p: tensor<?xi32>) -> tensor<?x32xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %0 = func.call @forward(%q, %p) : (tensor<?x32xbf16>, tensor<?xi32>) -> tensor<?x32xbf16>
  %1:3 = func.call @backward(%0, %k, %k, %g, %p, %p) : (tensor<?x32xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>)
  return %1#0 : tensor<?x32xf32>
}

// -----

// A cotangent of the pages' own type stays, others become it.
// CHECK-LABEL: func.func @conversions
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x8xf32>, %[[N:[a-z0-9]+]]: tensor<?x8xbf16>
// CHECK: stem.kv_append %[[Q]], %[[Q]]
// CHECK: %[[W:.*]] = arith.extf %[[N]] : tensor<?x8xbf16> to tensor<?x8xf32>
// CHECK: stem.kv_append %[[W]], %[[W]]
func.func @conversions(%q: tensor<?x8xf32>, %n: tensor<?x8xbf16>, %p: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) attributes {stem.tile = 128 : i64} {
  %0:3 = stem.attention_vjp %q, %q, %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  %1:3 = stem.attention_vjp %q, %q, %q, %n at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xbf16>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %0#0, %1#0 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// CHECK-LABEL: func.func @from_half
// CHECK-SAME: %[[H:[a-z0-9]+]]: tensor<?x8xf16>
// CHECK: %[[W:.*]] = arith.extf %[[H]] : tensor<?x8xf16> to tensor<?x8xf32>
// CHECK: %[[G:.*]] = arith.truncf %[[W]] : tensor<?x8xf32> to tensor<?x8xbf16>
// CHECK: stem.kv_append %[[G]], %[[G]]
func.func @from_half(%q: tensor<?x8xbf16>, %h: tensor<?x8xf16>, %p: tensor<?xi32>) -> tensor<?x8xf32> attributes {stem.tile = 64 : i64} {
  %0:3 = stem.attention_vjp %q, %q, %q, %h at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?x8xbf16>, tensor<?x8xf16>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %0#0 : tensor<?x8xf32>
}

// -----

func.func @tile(%q: tensor<?x8xf32>, %p: tensor<?xi32>) -> tensor<?x8xf32> attributes {stem.tile = 16 : i64} {
  // expected-error @+1 {{'stem.attention_vjp' op works on 64 tokens of one sequence at a time, but function 'tile' has 'stem.tile' 16, wanted a multiple of them}}
  %0:3 = stem.attention_vjp %q, %q, %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %0#0 : tensor<?x8xf32>
}

// -----

func.func @types(%q: tensor<?x8xf32>, %k: tensor<?x8xbf16>, %p: tensor<?xi32>) -> tensor<?x8xf32> attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.attention_vjp' op has queries 'tensor<?x8xf32>', keys 'tensor<?x8xf32>' and values 'tensor<?x8xbf16>'; a cache holds one type, f32 or bf16}}
  %0:3 = stem.attention_vjp %q, %q, %k, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xbf16>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %0#0 : tensor<?x8xf32>
}

// -----

func.func @double(%q: tensor<?x8xf32>, %g: tensor<?x8xf64>, %p: tensor<?xi32>) -> tensor<?x8xf32> attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.attention_vjp' op computes in f64, which only the interpreter does}}
  %0:3 = stem.attention_vjp %q, %q, %q, %g at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf64>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  return %0#0 : tensor<?x8xf32>
}

// -----

// Attention makes its logarithms as well, where their operands are its own.

// CHECK-LABEL: func.func @forward
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x32xbf16>, %[[K:[a-z0-9]+]]: tensor<?x16xbf16>, %[[V:[a-z0-9]+]]: tensor<?x16xbf16>, %[[P:[a-z0-9]+]]: tensor<?xi32>, %[[S:[a-z0-9]+]]: tensor<?xi32>, %[[SCRATCH:[a-z0-9]+]]: !stem.kv_cache {stem.name = "scratch", stem.scratch_cache})
// CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-NEXT: stem.kv_append %[[K]], %[[V]] at %[[P]] of %[[S]] in %[[SCRATCH]][%[[ZERO]]]
// CHECK-NEXT: %[[R:.*]], %[[L:.*]] = stem.attend %[[Q]] at %[[P]] of %[[S]] cache %[[SCRATCH]][%[[ZERO]]] {head_dim = 8 : i64, kv_heads = 2 : i64, scale = 5.000000e-01 : f64, window = 7 : i64} : tensor<?x32xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xbf16>, tensor<?x4xf32>
// CHECK-NEXT: return %[[R]], %[[L]]
func.func @forward(%q: tensor<?x32xbf16>, %k: tensor<?x16xbf16>, %v: tensor<?x16xbf16>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> (tensor<?x32xbf16>, tensor<?x4xf32>) attributes {stem.tile = 64 : i64} {
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 8 : i64, scale = 0.5 : f64, window = 7 : i64} : tensor<?x32xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xbf16>
  %1 = stem.attention_logsumexp %q, %k at %p of %s {head_dim = 8 : i64, scale = 0.5 : f64, window = 7 : i64} : (tensor<?x32xbf16>, tensor<?x16xbf16>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x4xf32>
  return %0, %1 : tensor<?x32xbf16>, tensor<?x4xf32>
}

// Alone they are attention whose result nothing reads; another scale is another
// attention.
// CHECK-LABEL: func.func @alone
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x32xf32>, %{{.*}}: tensor<?xi32>, %[[SCRATCH:[a-z0-9]+]]: !stem.kv_cache
// CHECK: stem.attention {{.*}} cache %[[SCRATCH]]
// CHECK: stem.kv_append %[[Q]], %[[Q]]
// CHECK: %{{.*}}, %[[L:.*]] = stem.attend %[[Q]]
// CHECK: return %{{.*}}, %[[L]]
func.func @alone(%q: tensor<?x32xf32>, %p: tensor<?xi32>) -> (tensor<?x32xf32>, tensor<?x4xf32>) attributes {stem.tile = 64 : i64} {
  %0 = stem.attention %q, %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  %1 = stem.attention_logsumexp %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.25 : f64} : (tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x4xf32>
  return %0, %1 : tensor<?x32xf32>, tensor<?x4xf32>
}

// -----

func.func @logarithm_types(%q: tensor<?x8xf32>, %k: tensor<?x8xbf16>, %p: tensor<?xi32>) -> tensor<?x1xf32> attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.attention_logsumexp' op has queries 'tensor<?x8xf32>' and keys 'tensor<?x8xbf16>'; a cache holds one type, f32 or bf16}}
  %0 = stem.attention_logsumexp %q, %k at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xbf16>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x1xf32>
  return %0 : tensor<?x1xf32>
}

// -----

func.func @logarithm_result(%q: tensor<?x8xf32>, %p: tensor<?xi32>) -> tensor<?x1xf64> attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.attention_logsumexp' op gives 'tensor<?x1xf64>', which is f32 outside of the interpreter}}
  %0 = stem.attention_logsumexp %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x1xf64>
  return %0 : tensor<?x1xf64>
}

// -----

func.func @logarithm_tile(%q: tensor<?x8xf32>, %p: tensor<?xi32>) -> tensor<?x1xf32> attributes {stem.tile = 1 : i64} {
  // expected-error @+1 {{'stem.attention_logsumexp' op works on tiles of tokens, but function 'logarithm_tile' has 'stem.tile' 1, wanted 2 at least}}
  %0 = stem.attention_logsumexp %q, %q at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x1xf32>
  return %0 : tensor<?x1xf32>
}
