// RUN: stem-opt %s --stem-decompose-gradients | FileCheck %s
// RUN: stem-opt %s --stem-decompose-gradients --stem-decompose-gradients | FileCheck %s

// Both losses and their derivative are one op, where the losses were.

// CHECK-LABEL: func.func @losses
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[H:[a-z0-9]+]]: tensor<32x8xf32>, %[[L:[a-z0-9]+]]: tensor<?xi32>, %[[Y:[a-z0-9]+]]: tensor<?x4xf32>, %[[G:[a-z0-9]+]]: tensor<32x4xf32>, %[[C:[a-z0-9]+]]: tensor<?xf32>, %[[D:[a-z0-9]+]]: tensor<?xf32>
// CHECK: %[[NLL:.*]], %[[KL:.*]], %[[DX:.*]], %[[DH:.*]] = stem.distillation_step %[[X]], %[[H]], %[[L]] from %[[Y]], %[[G]] by %[[C]], %[[D]] : {{.*}} -> (tensor<?xf32>, tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
// CHECK: arith.negf
// CHECK-NOT: stem.distillation
// CHECK: return %[[NLL]], %[[KL]], %[[DX]], %[[DH]]
func.func @losses(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %l: tensor<?xi32>, %y: tensor<?x4xf32>, %g: tensor<32x4xf32>, %c: tensor<?xf32>, %d: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>, tensor<?x8xf32>) {
  %nll, %kl = stem.distillation %x, %h, %l from %y, %g : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<32x4xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  %1 = arith.negf %x : tensor<?x8xf32>
  %2:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<32x4xf32>, tensor<?xf32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  return %nll, %kl, %2#0, %2#1, %1 : tensor<?xf32>, tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>, tensor<?x8xf32>
}

// Those of another teacher, or that a cotangent depends on, stay.

// CHECK-LABEL: func.func @other_teacher
// CHECK: stem.distillation %
// CHECK: stem.distillation_step
func.func @other_teacher(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %l: tensor<?xi32>, %y: tensor<?x8xf32>, %c: tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>) {
  %nll, %kl = stem.distillation %x, %h, %l from %y, %h : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x8xf32>, tensor<32x8xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  %2:2 = stem.distillation_vjp %x, %h, %l from %x, %h by %c, %c : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xf32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  return %kl, %2#0 : tensor<?xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @dependent_cotangent
// CHECK: %[[NLL:.*]], %{{.*}} = stem.distillation %
// CHECK: %[[D:.*]] = arith.mulf %[[NLL]], %[[NLL]]
// CHECK: stem.distillation_step {{.*}} by %{{.*}}, %[[D]]
func.func @dependent_cotangent(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %l: tensor<?xi32>, %y: tensor<?x8xf32>, %c: tensor<?xf32>) -> tensor<?x8xf32> {
  %nll, %kl = stem.distillation %x, %h, %l from %y, %h : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x8xf32>, tensor<32x8xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  %d = arith.mulf %nll, %nll : tensor<?xf32>
  %2:2 = stem.distillation_vjp %x, %h, %l from %y, %h by %c, %d : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xf32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  return %2#0 : tensor<?x8xf32>
}
