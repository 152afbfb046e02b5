// Updates take the place of gradients: four layers' gradients of 64 KiB each
// are outputs of one step, and share one place of the other's arena, which has
// the sums of squares besides.
// RUN: stem-opt %s --stem-training-pipeline -o %t.plain.mlir
// RUN: stem-opt %t.plain.mlir --stem-graph-pipeline --stem-schedule-pipeline --stem-structured-pipeline --stem-buffer-pipeline | FileCheck %s --check-prefix=PLAIN
// RUN: stem-opt %s --stem-training-pipeline='stem-optimizer=true' -o %t.update.mlir
// RUN: stem-opt %t.update.mlir --stem-graph-pipeline --stem-schedule-pipeline --stem-structured-pipeline --stem-buffer-pipeline -o %t.buffers.mlir
// RUN: FileCheck %s --check-prefix=UPDATE < %t.buffers.mlir
// RUN: stem-opt %t.buffers.mlir --stem-target-pipeline | mlir-translate --mlir-to-llvmir -o /dev/null
// The pipeline's options are those of the pass.
// RUN: stem-opt %s --stem-training-pipeline='stem-optimizer=true stem-beta1=0.8 stem-beta2=0.99 stem-epsilon=1e-6' -o %t.other.mlir
// RUN: stem-opt %t.plain.mlir --stem-insert-optimizer='stem-beta1=0.8 stem-beta2=0.99 stem-epsilon=1e-6' --canonicalize --cse | diff - %t.other.mlir

// PLAIN: func.func private @loss_vjp
// PLAIN-COUNT-4: memref<128x128xf32> {stem.gradient_of = @w{{[0-3]}}
// PLAIN: stem.fixed_bytes = 2097152 : i64

// UPDATE: func.func private @loss_vjp
// UPDATE-NOT: stem.gradient_of
// UPDATE-COUNT-12: stem.state_of = @w{{[0-3]}}
// UPDATE: stem.fixed_bytes = 2162880 : i64

stem.param @e = "e" : tensor<16x128xf32> {stem.frozen}
stem.param @w0 = "w0" : tensor<128x128xf32>
stem.param @w1 = "w1" : tensor<128x128xf32>
stem.param @w2 = "w2" : tensor<128x128xf32>
stem.param @w3 = "w3" : tensor<128x128xf32>

func.func private @layer(%x: tensor<?x128xf32>, %w: tensor<128x128xf32>) -> tensor<?x128xf32> {
  %0 = stem.linear %x, %w : tensor<?x128xf32>, tensor<128x128xf32> -> tensor<?x128xf32>
  %1 = stem.silu %0 : tensor<?x128xf32> -> tensor<?x128xf32>
  return %1 : tensor<?x128xf32>
}

func.func @loss(%ids: tensor<?xi32> {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 16 : i64}, %out: tensor<?x128xf32> {stem.name = "y", stem.rows = "tokens", stem.output}) -> tensor<?x128xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %e = stem.param_load @e : tensor<16x128xf32>
  %w0 = stem.param_load @w0 : tensor<128x128xf32>
  %w1 = stem.param_load @w1 : tensor<128x128xf32>
  %w2 = stem.param_load @w2 : tensor<128x128xf32>
  %w3 = stem.param_load @w3 : tensor<128x128xf32>
  %x = stem.embedding %ids, %e : tensor<?xi32>, tensor<16x128xf32> -> tensor<?x128xf32>
  %0 = call @layer(%x, %w0) : (tensor<?x128xf32>, tensor<128x128xf32>) -> tensor<?x128xf32>
  %1 = call @layer(%0, %w1) : (tensor<?x128xf32>, tensor<128x128xf32>) -> tensor<?x128xf32>
  %2 = call @layer(%1, %w2) : (tensor<?x128xf32>, tensor<128x128xf32>) -> tensor<?x128xf32>
  %3 = call @layer(%2, %w3) : (tensor<?x128xf32>, tensor<128x128xf32>) -> tensor<?x128xf32>
  return %3 : tensor<?x128xf32>
}
