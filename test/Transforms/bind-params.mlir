// RUN: stem-opt %s -split-input-file --stem-bind-params -verify-diagnostics | FileCheck %s

// One argument for each symbol and type, parameters before tables, in the
// order of their first loads.
stem.param @w = "w" : tensor<16x8xf32>
stem.param @b = "b" : tensor<8xf32>
stem.table @t = "t" : !stem.table<10x16xf32>
// CHECK-LABEL: func.func private @entry
// CHECK-SAME: (%[[X:[a-z0-9]+]]: tensor<?x8xf32> {stem.name = "x"}
// CHECK-SAME: %[[B:[a-z0-9]+]]: tensor<8xf32> {stem.param = @b}
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<16x8xf32> {stem.param = @w}
// CHECK-SAME: %[[P:[a-z0-9]+]]: !stem.packed<8x16xf32> {stem.param = @w}
// CHECK-SAME: %[[T:[a-z0-9]+]]: !stem.table<10x16xf32> {stem.table = @t})
// CHECK-SAME: stem.entry
// CHECK-NOT: _load
// CHECK: return %[[B]], %[[B]], %[[W]], %[[P]], %[[T]]
func.func @entry(%x: tensor<?x8xf32> {stem.name = "x"}) -> (tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, !stem.packed<8x16xf32>, !stem.table<10x16xf32>) attributes {stem.entry} {
  %t = stem.table_load @t : !stem.table<10x16xf32>
  %b = stem.param_load @b : tensor<8xf32>
  %w = stem.param_load @w : tensor<16x8xf32>
  cf.br ^bb1
^bb1:
  %p = stem.param_load @w : !stem.packed<8x16xf32>
  %again = stem.param_load @b : tensor<8xf32>
  return %b, %again, %w, %p, %t : tensor<8xf32>, tensor<8xf32>, tensor<16x8xf32>, !stem.packed<8x16xf32>, !stem.table<10x16xf32>
}

// A parameter in both directions is two arguments.
// CHECK-LABEL: func.func private @both
// CHECK-SAME: (%[[P:[a-z0-9]+]]: !stem.packed<8x16xf32> {stem.param = @w}
// CHECK-SAME: %[[T:[a-z0-9]+]]: !stem.packed<16x8xf32> {stem.param = @w, stem.transposed})
// CHECK: return %[[P]], %[[T]], %[[T]]
func.func @both() -> (!stem.packed<8x16xf32>, !stem.packed<16x8xf32>, !stem.packed<16x8xf32>) attributes {stem.entry} {
  %p = stem.param_load @w : !stem.packed<8x16xf32>
  %t = stem.param_load transposed @w : !stem.packed<16x8xf32>
  %again = stem.param_load transposed @w : !stem.packed<16x8xf32>
  return %p, %t, %again : !stem.packed<8x16xf32>, !stem.packed<16x8xf32>, !stem.packed<16x8xf32>
}

// An entry that loads nothing, and a declaration.
// CHECK-LABEL: func.func private @plain() attributes {stem.entry}
func.func @plain() attributes {stem.entry} {
  return
}
// CHECK-LABEL: func.func private @declared() attributes {stem.entry}
func.func private @declared() attributes {stem.entry}

// -----

stem.param @b = "b" : tensor<8xf32>
stem.table @t = "t" : !stem.table<10x16xf32>
func.func private @layer() {
  // expected-error @+1 {{'stem.param_load' op stands in a function that is not an entry; pass the value as an argument}}
  %b = stem.param_load @b : tensor<8xf32>
  // expected-error @+1 {{'stem.table_load' op stands in a function that is not an entry; pass the value as an argument}}
  %t = stem.table_load @t : !stem.table<10x16xf32>
  return
}

// -----

stem.param @b = "b" : tensor<8xf32>
// expected-error @+1 {{'func.func' op is an entry, which only the runtime calls, but the module refers to it}}
func.func @called() attributes {stem.entry} {
  %b = stem.param_load @b : tensor<8xf32>
  return
}
func.func @entry() attributes {stem.entry} {
  call @called() : () -> ()
  return
}

// -----

// Of a square matrix the types of both directions are the same.
stem.param @s = "s" : tensor<8x8xf32>
// CHECK-LABEL: func.func private @square
// CHECK-SAME: (%[[P:[a-z0-9]+]]: tensor<8x8xf32> {stem.param = @s}, %[[T:[a-z0-9]+]]: tensor<8x8xf32> {stem.param = @s, stem.transposed})
// CHECK: return %[[P]], %[[T]]
func.func @square() -> (tensor<8x8xf32>, tensor<8x8xf32>) attributes {stem.entry} {
  %p = stem.param_load @s : tensor<8x8xf32>
  %t = stem.param_load transposed @s : tensor<8x8xf32>
  return %p, %t : tensor<8x8xf32>, tensor<8x8xf32>
}
