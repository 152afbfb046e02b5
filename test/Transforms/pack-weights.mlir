// RUN: stem-opt %s -split-input-file --stem-pack-weights -verify-diagnostics --remarks-filter=stem-pack-weights --remark-format=emitRemark | FileCheck %s

// Every operand that a matrix kernel reads, and the bias that none does.
stem.param @w = "w" : tensor<16x8xf32>
stem.param @v = "v" : tensor<8x16xf32>
stem.param @b = "b" : tensor<16xf32>
// CHECK-LABEL: func.func @operands
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[U:[a-z0-9]+]]: tensor<?x16xf32>, %[[I:[a-z0-9]+]]: tensor<?xi32>
func.func @operands(%x: tensor<?x8xf32>, %u: tensor<?x16xf32>, %i: tensor<?xi32>) {
  // CHECK-DAG: %[[W:.*]] = stem.param_load @w : !stem.packed<8x16xf32>
  // CHECK-DAG: %[[V:.*]] = stem.param_load @v : !stem.packed<16x8xf32>
  // CHECK-DAG: %[[B:.*]] = stem.param_load @b : tensor<16xf32>
  %w = stem.param_load @w : tensor<16x8xf32>
  %v = stem.param_load @v : tensor<8x16xf32>
  %b = stem.param_load @b : tensor<16xf32>
  // CHECK: stem.linear %[[X]], %[[W]] bias %[[B]]
  %0 = stem.linear %x, %w bias %b : tensor<?x8xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<?x16xf32>
  // CHECK: stem.dense_ffn %[[X]] gate %[[W]] up %[[W]] down %[[V]]
  %1 = stem.dense_ffn %x gate %w up %w down %v : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  // CHECK: stem.gated_ffn %[[X]] gate %[[W]] rows %[[U]] down %[[V]]
  %2 = stem.gated_ffn %x gate %w rows %u down %v : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  // CHECK: stem.fused_ffn %[[X]] gate %[[W]] rows %[[U]][%[[I]]] down %[[V]]
  %3 = stem.fused_ffn %x gate %w rows %u[%i] down %v : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<?xi32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  // CHECK: stem.mix %[[U]], %[[U]] a %[[W]] b %[[V]]
  %4 = stem.mix %u, %u a %w b %v : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  // CHECK: stem.select_up %[[U]], %[[X]] weight %[[W]]
  %5 = stem.select_up %u, %x weight %w ids %i in %i : (tensor<?x16xf32>, tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x16xf32>
  // CHECK: stem.cross_entropy %[[X]], %[[W]]
  %6 = stem.cross_entropy %x, %w, %i : tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32> -> tensor<?xf32>
  return
}

// -----

// Through calls of calls. An argument stays plain where something else reads
// it or something else is passed.
// CHECK-LABEL: func.func private @inner
// CHECK-SAME: tensor<?x8xf32>, %{{[a-z0-9]+}}: !stem.packed<8x16xf32>
// CHECK-LABEL: func.func private @outer
// CHECK-SAME: tensor<?x8xf32>, %{{[a-z0-9]+}}: !stem.packed<8x16xf32>
// CHECK-LABEL: func.func private @reads_otherwise
// CHECK-SAME: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<16x8xf32>
// CHECK-LABEL: func.func private @gets_others
// CHECK-SAME: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<16x8xf32>
// CHECK-LABEL: func.func private @referenced
// CHECK-SAME: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<16x8xf32>
// CHECK-LABEL: func.func @public
// CHECK-SAME: tensor<?x8xf32>, %{{[a-z0-9]+}}: tensor<16x8xf32>
stem.param @w = "w" : tensor<16x8xf32>
func.func private @inner(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return
}
func.func private @outer(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  call @inner(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  return
}
func.func private @reads_otherwise(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) -> tensor<16x8xf32> {
  // expected-remark @+1 {{'func.return' reads it plain}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return %w : tensor<16x8xf32>
}
func.func private @gets_others(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  // expected-remark @+1 {{a call of @gets_others passes an argument that is not packed}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return
}
func.func private @referenced(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  // expected-remark @+1 {{it is an argument of @referenced, whose callers are not all known: the function is public, or something other than a call refers to it}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return
}
func.func @public(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  // expected-remark @+1 {{it is an argument of @public, whose callers are not all known}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return
}
func.func private @external(tensor<?x8xf32>, tensor<16x8xf32>)
// CHECK-LABEL: func.func @entry
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[GIVEN:[a-z0-9]+]]: tensor<16x8xf32>
// CHECK-DAG: %[[PACKED:.*]] = stem.param_load @w : !stem.packed<8x16xf32>
// CHECK-DAG: %[[PLAIN:.*]] = stem.param_load @w : tensor<16x8xf32>
// CHECK: call @outer(%[[X]], %[[PACKED]])
// CHECK: call @inner(%[[X]], %[[PACKED]])
// CHECK: call @reads_otherwise(%[[X]], %[[PLAIN]])
// CHECK: call @gets_others(%[[X]], %[[PLAIN]])
// CHECK: call @gets_others(%[[X]], %[[GIVEN]])
// CHECK: call @referenced(%[[X]], %[[PLAIN]])
// CHECK: call @public(%[[X]], %[[PLAIN]])
// CHECK: call @external(%[[X]], %[[PLAIN]])
func.func @entry(%x: tensor<?x8xf32>, %given: tensor<16x8xf32>) {
  // expected-remark @+1 {{@w is held twice, packed and plain: @}}
  %w = stem.param_load @w : tensor<16x8xf32>
  call @outer(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  call @inner(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  %0 = call @reads_otherwise(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  call @gets_others(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  call @gets_others(%x, %given) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  call @referenced(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  %f = constant @referenced : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  call @public(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  call @external(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  return
}

// -----

// Matrices that have no packed form stay: other types, no elements.
// CHECK-LABEL: func.func @no_form
// CHECK-NOT: stem.packed
stem.param @half = "half" : tensor<16x8xf16>
stem.param @double = "double" : tensor<16x8xf64>
stem.param @none = "none" : tensor<16x0xf32>
func.func @no_form(%x: tensor<?x8xf32>, %y: tensor<?x8xf64>, %z: tensor<?x0xf32>) {
  %h = stem.param_load @half : tensor<16x8xf16>
  %d = stem.param_load @double : tensor<16x8xf64>
  %n = stem.param_load @none : tensor<16x0xf32>
  // expected-remark @+1 {{tensor<16x8xf16> has no packed form: wanted a matrix of f32 or bf16 of a static size, not empty}}
  %0 = stem.linear %x, %h : tensor<?x8xf32>, tensor<16x8xf16> -> tensor<?x16xf32>
  // expected-remark @+1 {{tensor<16x8xf64> has no packed form: wanted a matrix of f32 or bf16 of a static size, not empty}}
  %1 = stem.linear %y, %d : tensor<?x8xf64>, tensor<16x8xf64> -> tensor<?x16xf64>
  // expected-remark @+1 {{tensor<16x0xf32> has no packed form: wanted a matrix of f32 or bf16 of a static size, not empty}}
  %2 = stem.linear %z, %n : tensor<?x0xf32>, tensor<16x0xf32> -> tensor<?x16xf32>
  return
}

// -----

// One matrix as tokens and as weight, of one product.
// CHECK-LABEL: func.func @square
// CHECK-DAG: %[[PACKED:.*]] = stem.param_load @s : !stem.packed<8x8xf32>
// CHECK-DAG: %[[PLAIN:.*]] = stem.param_load @s : tensor<8x8xf32>
// CHECK: stem.linear %[[PLAIN]], %[[PACKED]]
// CHECK: stem.dense_ffn %[[PLAIN]] gate %[[PACKED]] up %[[PACKED]] down %[[PACKED]]
stem.param @s = "s" : tensor<8x8xf32>
func.func @square() -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  // expected-remark @+1 {{@s is held twice, packed and plain: 'stem.}}
  %s = stem.param_load @s : tensor<8x8xf32>
  %0 = stem.linear %s, %s : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
  %1 = stem.dense_ffn %s gate %s up %s down %s : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A tied embedding reads the packed head.
// CHECK-LABEL: func.func @tied
// CHECK: %[[E:.*]] = stem.param_load @e : !stem.packed<8x16xf32>
// CHECK-NOT: stem.param_load
// CHECK: stem.embedding %{{.*}}, %[[E]]
// CHECK: stem.linear %{{.*}}, %[[E]]
stem.param @e = "e" : tensor<16x8xf32>
func.func @tied(%i: tensor<?xi32>) -> tensor<?x16xf32> {
  %e = stem.param_load @e : tensor<16x8xf32>
  %x = stem.embedding %i, %e : tensor<?xi32>, tensor<16x8xf32> -> tensor<?x8xf32>
  %y = stem.linear %x, %e : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}

// -----

// A weight that a loop carries, several blocks, and recursion.
// CHECK-LABEL: func.func private @blocks
// CHECK-SAME: %{{[a-z0-9]+}}: !stem.packed<8x16xf32>
// CHECK-LABEL: func.func private @again
// CHECK-SAME: %{{[a-z0-9]+}}: !stem.packed<8x16xf32>
// CHECK-LABEL: func.func @loop
// CHECK: scf.for
// CHECK: stem.linear %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<16x8xf32>
stem.param @w = "w" : tensor<16x8xf32>
func.func private @blocks(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  cf.br ^bb1
^bb1:
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return
}
func.func private @again(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  call @again(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  return
}
func.func @loop(%x: tensor<?x8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  // expected-remark @+1 {{@w is held twice, packed and plain: 'scf.for' reads it plain}}
  %w = stem.param_load @w : tensor<16x8xf32>
  %last = scf.for %i = %c0 to %n step %n iter_args(%v = %w) -> tensor<16x8xf32> {
    // expected-remark @+1 {{it is no parameter, nor an argument that is given one}}
    %0 = stem.linear %x, %v : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
    scf.yield %v : tensor<16x8xf32>
  }
  call @blocks(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  call @again(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  return
}

// -----

// Both directions of a head, and of a weight that is transposed.
// CHECK-LABEL: func.func @step
// CHECK-DAG: %[[H:.*]] = stem.param_load @h : !stem.packed<8x16xf32>
// CHECK-DAG: %[[T:.*]] = stem.param_load transposed @h : !stem.packed<16x8xf32>
// CHECK: stem.cross_entropy_step %{{.*}}, %[[H]], %{{.*}}, %{{.*}} transposed %[[T]]
// CHECK: stem.linear %{{.*}}, %[[T]] : tensor<?x16xf32>, !stem.packed<16x8xf32> -> tensor<?x8xf32>
stem.param @h = "h" : tensor<16x8xf32>
func.func @step(%x: tensor<?x8xf32>, %y: tensor<?x16xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>) {
  %h = stem.param_load @h : tensor<16x8xf32>
  %t = stem.param_load transposed @h : tensor<8x16xf32>
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c transposed %t : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<?xf32>, tensor<8x16xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<16x8xf32>)
  %1 = stem.linear %y, %t : tensor<?x16xf32>, tensor<8x16xf32> -> tensor<?x8xf32>
  return %0#0, %1 : tensor<?xf32>, tensor<?x8xf32>
}

// -----

// What an argument is given may be computed, and may go where it is read plain.
// CHECK-LABEL: func.func private @computed
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<16x8xf32>
// CHECK-LABEL: func.func private @passes_on
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<16x8xf32>
stem.param @w = "w" : tensor<16x8xf32>
func.func private @computed(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  // expected-remark @+1 {{a call of @computed passes what is no parameter}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  return
}
func.func private @passes_on(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) {
  // expected-remark @+1 {{@computed takes it plain}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  call @computed(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  return
}
func.func @entry(%x: tensor<?x8xf32>) {
  %w = stem.param_load @w : tensor<16x8xf32>
  %double = arith.addf %w, %w : tensor<16x8xf32>
  call @computed(%x, %double) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  call @passes_on(%x, %w) : (tensor<?x8xf32>, tensor<16x8xf32>) -> ()
  return
}
