// RUN: stem-opt %s --stem-differential='stem-tokens=256 stem-sequences=2 stem-pipeline=stem-scratch-attention,func.func(stem-split-attention),func.func(stem-tile-tokens),func.func(stem-to-linalg),func.func(convert-elementwise-to-linalg),canonicalize stem-tolerance=1e-6 stem-max-steps=1000000000' -o /dev/null 2>&1 | FileCheck %s

// Attention of a step among its own tokens means the same after each pass, two
// tiles of two sequences.

// CHECK-NOT: not compared
// CHECK: remark: {{[0-9]+}} comparisons agree
// CHECK-NOT: beyond the interpreter
func.func @forward(%q: tensor<?x8xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> tensor<?x8xf32> attributes {stem.tile = 64 : i64} {
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

func.func @backward(%q: tensor<?x8xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %g: tensor<?x8xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>) attributes {stem.tile = 64 : i64} {
  %0:3 = stem.attention_vjp %q, %k, %v, %g at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  return %0#0, %0#1, %0#2 : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}

func.func @window(%q: tensor<?x8xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %g: tensor<?x8xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>) attributes {stem.tile = 64 : i64} {
  %0:3 = stem.attention_vjp %q, %k, %v, %g at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64, window = 7 : i64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  return %0#0, %0#1, %0#2 : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}

// What the VJP takes from attention it would compute itself.
func.func @both(%q: tensor<?x8xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %g: tensor<?x8xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>) attributes {stem.tile = 64 : i64} {
  %o = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %l = stem.attention_logsumexp %q, %k at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x2xf32>
  %0:3 = stem.attention_vjp %q, %k, %v, %g forward %o, %l at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
  return %l, %0#0, %0#1, %0#2 : tensor<?x2xf32>, tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}
