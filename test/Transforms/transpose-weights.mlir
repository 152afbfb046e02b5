// RUN: stem-opt %s -split-input-file --stem-transpose-weights -verify-diagnostics --remarks-filter=stem-transpose-weights --remark-format=emitRemark | FileCheck %s

// In the function itself, once for every reader. The load that nothing reads
// any more goes.

stem.param @w = "w" : tensor<64x32xbf16>
stem.param @v = "v" : tensor<64x32xbf16>
// CHECK-LABEL: func.func @local
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x32xbf16>, %[[C:[a-z0-9]+]]: tensor<?x64xf32>
// CHECK-NOT: stem.param_load @v
// CHECK-DAG: %[[W:.*]] = stem.param_load @w : tensor<64x32xbf16>
// CHECK-DAG: %[[WT:.*]] = stem.param_load transposed @w : tensor<32x64xbf16>
// CHECK-DAG: %[[VT:.*]] = stem.param_load transposed @v : tensor<32x64xbf16>
// CHECK: stem.linear %[[X]], %[[W]]
// CHECK: stem.linear %[[C]], %[[WT]] : tensor<?x64xf32>, tensor<32x64xbf16> -> tensor<?x32xf32>
// CHECK: stem.linear %[[C]], %[[WT]]
// CHECK: stem.linear %[[C]], %[[VT]]
// CHECK-NOT: stem.linear_input_vjp
func.func @local(%x: tensor<?x32xbf16>, %c: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>) {
  %w = stem.param_load @w : tensor<64x32xbf16>
  %v = stem.param_load @v : tensor<64x32xbf16>
  %0 = stem.linear %x, %w : tensor<?x32xbf16>, tensor<64x32xbf16> -> tensor<?x64xf32>
  %1 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, tensor<64x32xbf16>) -> tensor<?x32xf32>
  %2 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, tensor<64x32xbf16>) -> tensor<?x32xf32>
  %3 = stem.linear_input_vjp %c, %v : (tensor<?x64xf32>, tensor<64x32xbf16>) -> tensor<?x32xf32>
  return %0, %1, %2, %3 : tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>
}

// What is transposed already is taken as it is stored.

// CHECK-LABEL: func.func @back_again
// CHECK: %[[W:.*]] = stem.param_load @w : tensor<64x32xbf16>
// CHECK: stem.linear %{{.*}}, %[[W]] : tensor<?x32xf32>, tensor<64x32xbf16> -> tensor<?x64xf32>
func.func @back_again(%c: tensor<?x32xf32>) -> tensor<?x64xf32> {
  %w = stem.param_load transposed @w : tensor<32x64xbf16>
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x32xf32>, tensor<32x64xbf16>) -> tensor<?x64xf32>
  return %0 : tensor<?x64xf32>
}

// -----

// The head's other direction beside the head; a given one stays.

stem.param @h = "h" : tensor<96x32xf32>
// CHECK-LABEL: func.func @loss
// CHECK-SAME: %[[GIVEN:[a-z0-9]+]]: tensor<32x96xf32>
// CHECK-DAG: %[[H:.*]] = stem.param_load @h : tensor<96x32xf32>
// CHECK-DAG: %[[HT:.*]] = stem.param_load transposed @h : tensor<32x96xf32>
// CHECK: stem.cross_entropy_step %{{.*}}, %[[H]], %{{.*}}, %{{.*}} transposed %[[HT]]
// CHECK: stem.cross_entropy_step %{{.*}}, %[[H]], %{{.*}}, %{{.*}} transposed %[[GIVEN]]
func.func @loss(%x: tensor<?x32xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>, %given: tensor<32x96xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %h = stem.param_load @h : tensor<96x32xf32>
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<?x32xf32>, tensor<96x32xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x32xf32>, tensor<96x32xf32>)
  %1:3 = stem.cross_entropy_step %x, %h, %l, %c transposed %given : (tensor<?x32xf32>, tensor<96x32xf32>, tensor<?xi32>, tensor<?xf32>, tensor<32x96xf32>) -> (tensor<?xf32>, tensor<?x32xf32>, tensor<96x32xf32>)
  return %0#0, %1#0 : tensor<?xf32>, tensor<?xf32>
}

// -----

// Through calls of calls, one argument for each weight that is read backwards;
// the plain one goes where nothing reads it.

stem.param @w0 = "w0" : tensor<64x32xf32>
stem.param @w1 = "w1" : tensor<64x32xf32>
// CHECK-LABEL: func.func private @inner(
// CHECK-SAME: %[[C:[a-z0-9]+]]: tensor<?x64xf32>, %[[WT:[a-z0-9]+]]: tensor<32x64xf32>) -> tensor<?x32xf32>
// CHECK: stem.linear %[[C]], %[[WT]]
func.func private @inner(%c: tensor<?x64xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> {
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func private @outer(
// CHECK-SAME: %[[C:[a-z0-9]+]]: tensor<?x64xf32>, %[[WT:[a-z0-9]+]]: tensor<32x64xf32>) -> tensor<?x32xf32>
// CHECK: call @inner(%[[C]], %[[WT]])
func.func private @outer(%c: tensor<?x64xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> {
  %0 = call @inner(%c, %w) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func private @both(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[W:[a-z0-9]+]]: tensor<64x32xf32>, %[[WT:[a-z0-9]+]]: tensor<32x64xf32>) -> tensor<?x32xf32>
// CHECK: %[[Y:.*]] = stem.linear %[[X]], %[[W]]
// CHECK: stem.linear %[[Y]], %[[WT]]
func.func private @both(%x: tensor<?x32xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> {
  %0 = stem.linear %x, %w : tensor<?x32xf32>, tensor<64x32xf32> -> tensor<?x64xf32>
  %1 = stem.linear_input_vjp %0, %w : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func @entry
// CHECK-DAG: %[[W1:.*]] = stem.param_load @w1
// CHECK-DAG: %[[W0T:.*]] = stem.param_load transposed @w0
// CHECK-DAG: %[[W1T:.*]] = stem.param_load transposed @w1
// CHECK-NOT: stem.param_load @w0
// CHECK: call @outer(%{{[a-z0-9]+}}, %[[W0T]])
// CHECK: call @outer(%{{[a-z0-9]+}}, %[[W1T]])
// CHECK: call @both(%{{[a-z0-9]+}}, %[[W1]], %[[W1T]])
func.func @entry(%x: tensor<?x32xf32>, %c: tensor<?x64xf32>) -> (tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>) {
  %w0 = stem.param_load @w0 : tensor<64x32xf32>
  %w1 = stem.param_load @w1 : tensor<64x32xf32>
  %0 = call @outer(%c, %w0) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %1 = call @outer(%c, %w1) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %2 = call @both(%x, %w1) : (tensor<?x32xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %0, %1, %2 : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>
}

// -----

// What is no parameter stays: an argument of a public function, of one that is
// named without being called, a computed weight, one of several callers' that is
// none, and one that is passed to itself.

stem.param @w = "w" : tensor<64x32xf32>
// CHECK-LABEL: func.func @public(%{{[a-z0-9]+}}: tensor<?x64xf32>, %{{[a-z0-9]+}}: tensor<64x32xf32>)
// CHECK: stem.linear_input_vjp
func.func @public(%c: tensor<?x64xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> {
  // expected-remark @+1 {{the weight is an argument of @public, whose callers are not all known: the function is public, or something other than a call refers to it}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func private @named(%{{[a-z0-9]+}}: tensor<?x64xf32>, %{{[a-z0-9]+}}: tensor<64x32xf32>)
// CHECK: stem.linear_input_vjp
func.func private @named(%c: tensor<?x64xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> {
  // expected-remark @+1 {{the weight is an argument of @named, whose callers are not all known: the function is public, or something other than a call refers to it}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func private @gets_others(%{{[a-z0-9]+}}: tensor<?x64xf32>, %{{[a-z0-9]+}}: tensor<64x32xf32>)
// CHECK: stem.linear_input_vjp
func.func private @gets_others(%c: tensor<?x64xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> {
  // expected-remark @+1 {{the weight is no parameter, nor an argument that is given one}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func private @again(%{{[a-z0-9]+}}: tensor<?x64xf32>, %{{[a-z0-9]+}}: tensor<64x32xf32>)
// CHECK: stem.linear_input_vjp
func.func private @again(%c: tensor<?x64xf32>, %w: tensor<64x32xf32>) -> tensor<?x32xf32> {
  // expected-remark @+1 {{the weight is an argument that @again passes to itself}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %1 = call @again(%c, %w) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
// CHECK-LABEL: func.func @entry
// CHECK: %[[W:.*]] = stem.param_load @w
// CHECK-NOT: transposed
// CHECK: stem.linear_input_vjp
func.func @entry(%c: tensor<?x64xf32>) -> tensor<?x32xf32> {
  %w = stem.param_load @w : tensor<64x32xf32>
  %f = constant @named : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %double = arith.addf %w, %w : tensor<64x32xf32>
  %0 = call @public(%c, %w) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %1 = call @named(%c, %w) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %2 = call @gets_others(%c, %w) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %3 = call @gets_others(%c, %double) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  %4 = call @again(%c, %w) : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  // expected-remark @+1 {{the weight is no parameter, nor an argument that is given one}}
  %5 = stem.linear_input_vjp %c, %double : (tensor<?x64xf32>, tensor<64x32xf32>) -> tensor<?x32xf32>
  return %5 : tensor<?x32xf32>
}

// -----

// A head that is no parameter, and a weight that is packed already.

// CHECK-LABEL: func.func @head
// CHECK: stem.cross_entropy_step
// CHECK-NOT: transposed
func.func @head(%x: tensor<?x32xf32>, %h: tensor<96x32xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>) -> tensor<?xf32> {
  // expected-remark @+1 {{the weight is an argument of @head, whose callers are not all known}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<?x32xf32>, tensor<96x32xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x32xf32>, tensor<96x32xf32>)
  return %0#0 : tensor<?xf32>
}
// CHECK-LABEL: func.func @packed
// CHECK: stem.linear_input_vjp
func.func @packed(%c: tensor<?x64xf32>, %w: !stem.packed<32x64xf32>) -> tensor<?x32xf32> {
  // expected-remark @+1 {{!stem.packed<32x64xf32> is no matrix to transpose: run stem-transpose-weights before stem-pack-weights}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x64xf32>, !stem.packed<32x64xf32>) -> tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
