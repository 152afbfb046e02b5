// RUN: stem-opt %s --verify-roundtrip | FileCheck %s
// RUN: stem-opt %s --mlir-print-op-generic | stem-opt | FileCheck %s

// Updates of parameters, printed and parsed again.

// CHECK-LABEL: func.func @update
func.func @update(%g: tensor<4x8xf32>, %r: tensor<?x8xf32>, %b: tensor<8xf32>, %w: tensor<4x8xf32>, %m: tensor<4x8xf32>, %v: tensor<4x8xf32>, %z: tensor<3xf64>, %s: tensor<3xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[A:.*]] = stem.sum_squares %{{.*}} into %{{.*}}[0] : tensor<4x8xf32>, tensor<3xf64>
  %0 = stem.sum_squares %g into %z[0] : tensor<4x8xf32>, tensor<3xf64>
  // CHECK: %[[B:.*]] = stem.sum_squares %{{.*}} into %[[A]][2] : tensor<?x8xf32>, tensor<3xf64>
  %1 = stem.sum_squares %r into %0[2] : tensor<?x8xf32>, tensor<3xf64>
  // CHECK: %[[C:.*]] = stem.sum_squares %{{.*}} into %[[B]][1] : tensor<8xf32>, tensor<3xf64>
  %2 = stem.sum_squares %b into %1[1] : tensor<8xf32>, tensor<3xf64>
  // CHECK: %[[SCALE:.*]] = stem.gradient_scale %[[C]] : tensor<3xf64>
  %3 = stem.gradient_scale %2 : tensor<3xf64>
  // CHECK: %[[W:.*]], %[[M:.*]], %[[V:.*]] = stem.adamw %{{.*}} into %{{.*}}, %{{.*}}, %{{.*}} step %{{.*}} scale %[[SCALE]] {beta1 = 9.000000e-01 : f64, beta2 = 0.94999999999999996 : f64, decays, epsilon = 1.000000e-08 : f64} : tensor<4x8xf32>
  %4:3 = stem.adamw %g into %w, %m, %v step %s scale %3 {beta1 = 0.9 : f64, beta2 = 0.95 : f64, decays, epsilon = 1.0e-8 : f64} : tensor<4x8xf32>
  // CHECK: stem.adamw %{{.*}} into %[[W]], %[[M]], %[[V]] step %{{.*}} scale %{{.*}} {beta1 = 0.000000e+00 : f64, beta2 = 0.000000e+00 : f64, epsilon = 1.000000e+00 : f64} : tensor<4x8xf32>
  %5:3 = stem.adamw %g into %4#0, %4#1, %4#2 step %s scale %3 {beta1 = 0.0 : f64, beta2 = 0.0 : f64, epsilon = 1.0 : f64} : tensor<4x8xf32>
  return %5#0 : tensor<4x8xf32>
}

// CHECK: func.func private @attributes(tensor<4x8xf32> {stem.output, stem.state_of = @w})
func.func private @attributes(tensor<4x8xf32> {stem.output, stem.state_of = @w})
