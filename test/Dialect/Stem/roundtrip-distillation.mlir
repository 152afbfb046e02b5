// RUN: stem-opt %s | stem-opt | FileCheck %s
// RUN: stem-opt %s --mlir-print-op-generic | stem-opt | FileCheck %s

// CHECK-LABEL: func.func @distillation
func.func @distillation(%x: tensor<?x8xf32>, %h: tensor<32x8xbf16>, %l: tensor<?xi32>, %y: tensor<?x4xbf16>, %g: !stem.packed<4x32xbf16>) -> (tensor<?xf32>, tensor<?xf32>) {
  // CHECK: stem.distillation %{{.*}}, %{{.*}}, %{{.*}} from %{{.*}}, %{{.*}} : (tensor<?x8xf32>, tensor<32x8xbf16>, tensor<?xi32>, tensor<?x4xbf16>, !stem.packed<4x32xbf16>) -> (tensor<?xf32>, tensor<?xf32>)
  %nll, %kl = stem.distillation %x, %h, %l from %y, %g : (tensor<?x8xf32>, tensor<32x8xbf16>, tensor<?xi32>, tensor<?x4xbf16>, !stem.packed<4x32xbf16>) -> (tensor<?xf32>, tensor<?xf32>)
  return %nll, %kl : tensor<?xf32>, tensor<?xf32>
}

// CHECK-LABEL: func.func @gradients
func.func @gradients(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %t: tensor<8x32xf32>, %l: tensor<?xi32>, %y: tensor<?x4xf32>, %g: tensor<32x4xf32>, %c: tensor<?xf32>, %d: tensor<?xf32>) {
  // CHECK: stem.distillation_vjp %{{.*}}, %{{.*}}, %{{.*}} from %{{.*}}, %{{.*}} by %{{.*}}, %{{.*}} : ({{.*}}) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<32x4xf32>, tensor<?xf32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  // CHECK: stem.distillation_step %{{.*}}, %{{.*}}, %{{.*}} from %{{.*}}, %{{.*}} by %{{.*}}, %{{.*}} : ({{.*}}) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  %1:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<32x4xf32>, tensor<?xf32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  // CHECK: stem.distillation_step {{.*}} by %{{.*}}, %{{.*}} transposed %{{.*}} :
  %2:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d transposed %t : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<32x4xf32>, tensor<?xf32>, tensor<?xf32>, tensor<8x32xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
  return
}
