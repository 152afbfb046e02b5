// RUN: stem-opt %s --pass-pipeline='builtin.module(func.func(stem-to-linalg))' | FileCheck %s
// RUN: stem-opt %s --stem-schedule-pipeline --stem-structured-pipeline --stem-buffer-pipeline | FileCheck %s --check-prefix=BUFFERS

// Blocks of elements, each a task: 16384 of an update, 65536 of a sum. Sums of
// blocks are added up in their order.

stem.param @w = "w" : tensor<100x200xf32>

// CHECK-LABEL: func.func @step
// CHECK: tensor.collapse_shape %{{.*}} {{\[\[}}0, 1]] : tensor<100x200xf32> into tensor<20000xf32>
// CHECK: scf.forall (%{{.*}}) in (1)
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction"]} ins(%{{.*}} : tensor<?xf32>) outs(%{{.*}} : tensor<f64>)
// CHECK: arith.extf
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: scf.for
// CHECK: arith.addf {{.*}} : f64
// CHECK: tensor.insert %{{.*}} into %{{.*}}[%{{.*}}] : tensor<2xf64>
// CHECK: scf.forall
// CHECK: tensor.insert %{{.*}} into %{{.*}}[%{{.*}}] : tensor<2xf64>
// CHECK: scf.for
// CHECK: arith.select
// CHECK: %[[SCALE:.*]] = tensor.from_elements
// CHECK: scf.forall (%{{.*}}) in (2) shared_outs
// CHECK: arith.cmpf ord
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel"]}
// CHECK: math.fma
// CHECK: math.sqrt
// CHECK: tensor.expand_shape

// The states are updated where they lie; nothing of their size is copied.
// BUFFERS: func.func private @step
// BUFFERS-SAME: stem.bytes_per_output = 64 : i64
// BUFFERS-SAME: stem.fixed_bytes = 64 : i64
// BUFFERS-NOT: memref.copy
// BUFFERS: stem.parallel_call
func.func @step(%g: tensor<100x200xf32> {stem.name = "g"}, %r: tensor<?x8xf32> {stem.name = "rows", stem.rows = "outputs"}, %s: tensor<3xf32> {stem.name = "step"}, %w: tensor<100x200xf32> {stem.name = "w", stem.output, stem.state_of = @w}, %m: tensor<100x200xf32> {stem.name = "m", stem.output, stem.state_of = @w}, %v: tensor<100x200xf32> {stem.name = "v", stem.output, stem.state_of = @w}) -> (tensor<100x200xf32>, tensor<100x200xf32>, tensor<100x200xf32>) attributes {stem.entry, stem.tile = 64 : i64} {
  %zeros = arith.constant dense<0.0> : tensor<2xf64>
  %0 = stem.sum_squares %g into %zeros[0] : tensor<100x200xf32>, tensor<2xf64>
  %1 = stem.sum_squares %r into %0[1] : tensor<?x8xf32>, tensor<2xf64>
  %2 = stem.gradient_scale %1 : tensor<2xf64>
  %3:3 = stem.adamw %g into %w, %m, %v step %s scale %2 {beta1 = 0.9 : f64, beta2 = 0.95 : f64, decays, epsilon = 1.0e-8 : f64} : tensor<100x200xf32>
  return %3#0, %3#1, %3#2 : tensor<100x200xf32>, tensor<100x200xf32>, tensor<100x200xf32>
}
