// RUN: stem-opt %s -split-input-file -allow-unregistered-dialect --stem-verify-schedule -verify-diagnostics

stem.param @w = "w" : tensor<8x8xf32>
func.func @entry(%x: tensor<?x8xf32>, %w: !stem.packed<8x8xf32> {stem.param = @w}) -> tensor<?x8xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %0 = stem.linear %x, %w : tensor<?x8xf32>, !stem.packed<8x8xf32> -> tensor<?x8xf32>
  %1 = arith.addf %0, %x : tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// -----

// S1: every offending op is reported.
stem.param @w = "w" : tensor<8x8xf32>
stem.table @t = "t" : !stem.table<10x16xf32>
func.func @entry(%x: tensor<?x8xf32>, %p: tensor<?xi32>, %c: !stem.kv_cache, %l: index) attributes {stem.entry, stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.param_load' op does not belong at the end of the schedule phase; a pass should have replaced it}}
  %w = stem.param_load @w : tensor<8x8xf32>
  // expected-error @+1 {{'stem.table_load' op does not belong at the end of the schedule phase}}
  %t = stem.table_load @t : !stem.table<10x16xf32>
  // expected-error @+1 {{'stem.attend' op does not belong at the end of the schedule phase}}
  %a = stem.attend %x at %p of %p cache %c[%l] {head_dim = 8 : i64, kv_heads = 1 : i64, scale = 1.0 : f64} : tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  // expected-error @+1 {{'unknown.op' op does not belong at the end of the schedule phase}}
  "unknown.op"() : () -> ()
  return
}

// -----

// S2: every function has a tile size and a body.
// expected-error @+1 {{'func.func' op has no body: a compiled module calls nothing but the runtime}}
func.func private @external() attributes {stem.tile = 64 : i64}
// expected-error @+1 {{'func.func' op has no 'stem.tile': mark it as an entry with 'stem.entry' and 'stem.tile', call it from one, or remove it}}
func.func @untiled() {
  return
}
