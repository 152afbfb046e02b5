// RUN: stem-opt %s -split-input-file --stem-specialize -verify-diagnostics | FileCheck %s

// One copy for each tile size, callees of callees too; the originals go.
// CHECK-NOT: @inner(
// CHECK: func.func private @inner_tile1(
// CHECK-SAME: attributes {stem.tile = 1 : i64}
// CHECK: func.func private @inner_tile64(
// CHECK-SAME: attributes {stem.tile = 64 : i64}
// CHECK: func.func private @layer_tile1(
// CHECK: call @inner_tile1
// CHECK: call @inner_tile1
// CHECK: func.func private @layer_tile64(
// CHECK: call @inner_tile64
// CHECK: func.func @prefill(
// CHECK: call @layer_tile64
// CHECK: call @layer_tile64
// CHECK: call @head
// CHECK: func.func @other_prefill(
// CHECK: call @layer_tile64
// CHECK: func.func @decode(
// CHECK: call @layer_tile1
func.func private @inner(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}
func.func private @layer(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = call @inner(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = call @inner(%0) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}
// A function that has a tile size keeps it.
func.func private @head(%x: tensor<?x8xf32>) attributes {stem.tile = 1 : i64} {
  return
}
func.func @prefill(%x: tensor<?x8xf32>) attributes {stem.entry, stem.tile = 64 : i64} {
  %0 = call @layer(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = call @layer(%0) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  call @head(%1) : (tensor<?x8xf32>) -> ()
  return
}
func.func @other_prefill(%x: tensor<?x8xf32>) attributes {stem.entry, stem.tile = 64 : i64} {
  %0 = call @layer(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}
func.func @decode(%x: tensor<?x8xf32>) attributes {stem.entry, stem.tile = 1 : i64} {
  %0 = call @layer(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

// A name that is taken, a public callee, a function without a body, and one
// that nothing calls.
// CHECK: func.func private @f_tile1()
// CHECK: func.func @f()
// CHECK: func.func @[[CLONE:f_tile1_[0-9]+]]() attributes {stem.tile = 1 : i64}
// CHECK: func.func private @external()
// CHECK: func.func private @unused()
// CHECK: func.func @entry()
// CHECK: call @[[CLONE]]()
// CHECK: call @external()
func.func private @f_tile1() {
  return
}
func.func @f() {
  return
}
func.func private @external()
func.func private @unused() {
  return
}
func.func @entry() attributes {stem.entry, stem.tile = 1 : i64} {
  call @f() : () -> ()
  call @external() : () -> ()
  return
}

// -----

// Recursion ends; stem-verify-graph refuses it.
// CHECK: func.func private @even_tile1()
// CHECK: call @odd_tile1
// CHECK: func.func private @odd_tile1()
// CHECK: call @even_tile1
// CHECK: func.func @entry
// CHECK: call @even_tile1
func.func private @even() {
  call @odd() : () -> ()
  return
}
func.func private @odd() {
  call @even() : () -> ()
  return
}
func.func @entry() attributes {stem.entry, stem.tile = 1 : i64} {
  call @even() : () -> ()
  return
}

// -----

// expected-error @+1 {{'func.func' op is an entry without the attribute 'stem.tile'}}
func.func @entry() attributes {stem.entry} {
  return
}

// -----

func.func private @tiled() attributes {stem.tile = 64 : i64} {
  return
}
func.func @entry() attributes {stem.entry, stem.tile = 1 : i64} {
  // expected-error @+1 {{'func.call' op passes tiles of 1 tokens to a function with 'stem.tile' 64, which does not divide it}}
  call @tiled() : () -> ()
  return
}
