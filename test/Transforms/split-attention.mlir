// RUN: stem-opt %s -split-input-file --stem-split-attention -verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @cached
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x32xf32>, %[[K:[a-z0-9]+]]: tensor<?x16xf32>, %[[V:[a-z0-9]+]]: tensor<?x16xf32>, %[[P:[a-z0-9]+]]: tensor<?xi32>, %[[S:[a-z0-9]+]]: tensor<?xi32>, %[[C:[a-z0-9]+]]: !stem.kv_cache, %[[L:[a-z0-9]+]]: index
// CHECK: stem.kv_append %[[K]], %[[V]] at %[[P]] of %[[S]] in %[[C]][%[[L]]]
// CHECK-NEXT: %[[A:.*]] = stem.attend %[[Q]] at %[[P]] of %[[S]] cache %[[C]][%[[L]]] {head_dim = 8 : i64, kv_heads = 2 : i64, scale = 5.000000e-01 : f64, window = 7 : i64}
// CHECK: return %[[A]]
func.func @cached(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x32xf32> {
  %0 = stem.attention %q, %k, %v at %p of %s cache %c[%l] {head_dim = 8 : i64, scale = 0.5 : f64, window = 7 : i64} : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// CHECK: func.func private @external
func.func private @external()

// -----

func.func @no_cache(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %p: tensor<?xi32>) -> tensor<?x32xf32> {
  // expected-error @+1 {{'stem.attention' op has no cache to append to; run stem-scratch-attention first}}
  %0 = stem.attention %q, %k, %k at %p of %p {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// -----

func.func @two_types(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %v: tensor<?x16xbf16>, %p: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x32xf32> {
  // expected-error @+1 {{'stem.attention' op has queries 'tensor<?x32xf32>', keys 'tensor<?x16xf32>' and values 'tensor<?x16xbf16>'; a cache holds one type, f32 or bf16}}
  %0 = stem.attention %q, %k, %v at %p of %p cache %c[%l] {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}

// -----

func.func @half(%q: tensor<?x32xf16>, %k: tensor<?x16xf16>, %p: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x32xf16> {
  // expected-error @+1 {{a cache holds one type, f32 or bf16}}
  %0 = stem.attention %q, %k, %k at %p of %p cache %c[%l] {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf16>, tensor<?x16xf16>, tensor<?x16xf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf16>
  return %0 : tensor<?x32xf16>
}

// -----

func.func @mixed(%q: tensor<?x32xf32>, %k: tensor<?x16xbf16>, %p: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x32xf32> {
  // expected-error @+1 {{a cache holds one type, f32 or bf16}}
  %0 = stem.attention %q, %k, %k at %p of %p cache %c[%l] {head_dim = 8 : i64, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
