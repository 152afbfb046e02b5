// From a loss to machine code: what each phase prints, the next reads. The step has a dense FFN, a layer with a table, norms,
// attention and a tied embedding.
// RUN: stem-opt %s --stem-training-pipeline -o %t.training.mlir
// RUN: stem-opt %t.training.mlir --stem-graph-pipeline -o %t.graph.mlir
// RUN: stem-opt %t.graph.mlir --stem-schedule-pipeline -o %t.schedule.mlir
// RUN: stem-opt %t.schedule.mlir --stem-structured-pipeline -o %t.structured.mlir
// RUN: stem-opt %t.structured.mlir --stem-buffer-pipeline -o %t.buffers.mlir
// RUN: stem-opt %t.buffers.mlir --stem-target-pipeline -o %t.target.mlir
// RUN: mlir-translate --mlir-to-llvmir %t.target.mlir -o /dev/null

// RUN: FileCheck %s --check-prefix=TRAINING < %t.training.mlir
// RUN: FileCheck %s --check-prefix=SCHEDULE < %t.schedule.mlir
// RUN: FileCheck %s --check-prefix=STRUCTURED < %t.structured.mlir
// RUN: FileCheck %s --check-prefix=BUFFERS < %t.buffers.mlir
// RUN: FileCheck %s --check-prefix=TARGET < %t.target.mlir

// The passes by themselves, in the pipeline's order.
// RUN: stem-opt %s --pass-pipeline='builtin.module(stem-autodiff,stem-recompute,stem-unpair-row-gradients,func.func(stem-decompose-gradients),canonicalize,stem-transpose-weights,canonicalize,cse)' | diff - %t.training.mlir
// Another loss by name.
// RUN: sed 's/@loss(/@other(/' %s | stem-opt --stem-training-pipeline=stem-function=other | FileCheck %s --check-prefix=OTHER
// RUN: not stem-opt %s --stem-training-pipeline=stem-function=other 2>&1 | FileCheck %s --check-prefix=MISSING

// OTHER: func.func @other_vjp
// MISSING: error: stem-function is 'other', and the module has no function of that name with a body

// TRAINING-NOT: stem.row_gradient
// TRAINING-NOT: stem.linear_input_vjp
// TRAINING: func.func private @dense_backward
// TRAINING: stem.gate_vjp
// TRAINING: stem.linear_weight_vjp
// TRAINING: func.func @loss_vjp
// TRAINING-SAME: %[[INDEX:[a-z0-9]+]]: tensor<?xi32> {stem.name = "row_index", stem.output_index, stem.rows = "tokens"})
// TRAINING-DAG: stem.param_load transposed @gate
// TRAINING: stem.cross_entropy_step {{.*}} transposed
// TRAINING-DAG: stem.sum_rows %{{.*}} by %[[INDEX]]
// TRAINING-DAG: stem.sum_rows %{{.*}} onto

// SCHEDULE: func.func private @loss_vjp
// SCHEDULE-SAME: {stem.gradient_of = @embed, stem.name = "gradient of embed", stem.output}
// SCHEDULE-SAME: !stem.packed<128x32xf32> {stem.param = @gate, stem.transposed}

// STRUCTURED: func.func private @dense_backward
// STRUCTURED: stem.pack_tokens
// STRUCTURED: stem.panel_matmul
// BUFFERS-NOT: linalg.
// BUFFERS: stem.panel_matmul {{.*}} memref<
// TARGET-DAG: llvm.call @stem_pack_tokens
// TARGET-DAG: llvm.call @stem_transpose_tokens
// TARGET-DAG: llvm.call @stem_packed_matmul
// TARGET-DAG: llvm.func @stem_module_query

stem.param @embed = "embed" : tensor<96x32xf32>
stem.param @norm = "norm" : tensor<32xf32>
stem.param @query = "query" : tensor<32x32xf32>
stem.param @gate = "gate" : tensor<128x32xf32>
stem.param @up = "up" : tensor<128x32xf32>
stem.param @down = "down" : tensor<32x128xf32>
stem.table @rows = "rows" : !stem.table<96x128xf32>

func.func private @dense(%x: tensor<?x32xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %n: tensor<32xf32>, %q: tensor<32x32xf32>, %g: tensor<128x32xf32>, %u: tensor<128x32xf32>, %d: tensor<32x128xf32>) -> tensor<?x32xf32> {
  %h = stem.rms_norm %x, %n {eps = 1.0e-5 : f64} : tensor<?x32xf32>, tensor<32xf32> -> tensor<?x32xf32>
  %k = stem.linear %h, %q : tensor<?x32xf32>, tensor<32x32xf32> -> tensor<?x32xf32>
  %a = stem.attention %k, %h, %h at %p of %s {head_dim = 16 : i64, scale = 0.25 : f64} : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  %y = arith.addf %x, %a : tensor<?x32xf32>
  %f = stem.dense_ffn %y gate %g up %u down %d : (tensor<?x32xf32>, tensor<128x32xf32>, tensor<128x32xf32>, tensor<32x128xf32>) -> tensor<?x32xf32>
  %z = arith.addf %y, %f : tensor<?x32xf32>
  return %z : tensor<?x32xf32>
}

func.func private @looked_up(%x: tensor<?x32xf32>, %rows: tensor<?x128xf32>, %i: tensor<?xi32>, %g: tensor<128x32xf32>, %d: tensor<32x128xf32>) -> tensor<?x32xf32> {
  %u = stem.lookup %rows, %i : tensor<?x128xf32>, tensor<?xi32> -> tensor<?x128xf32>
  %f = stem.gated_ffn %x gate %g rows %u down %d : (tensor<?x32xf32>, tensor<128x32xf32>, tensor<?x128xf32>, tensor<32x128xf32>) -> tensor<?x32xf32>
  %y = arith.addf %x, %f : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

func.func @loss(%ids: tensor<?xi32> {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 96 : i64, stem.role = "ids"}, %p: tensor<?xi32> {stem.name = "positions", stem.rows = "tokens", stem.role = "positions"}, %s: tensor<?xi32> {stem.name = "sequences", stem.rows = "tokens", stem.role = "sequences"}, %l: tensor<?xi32> {stem.name = "labels", stem.rows = "tokens", stem.label_bound = 96 : i64}, %out: tensor<?xf32> {stem.name = "nll", stem.rows = "tokens", stem.output}) -> tensor<?xf32> attributes {stem.entry, stem.tile = 64 : i64} {
  %e = stem.param_load @embed : tensor<96x32xf32>
  %n = stem.param_load @norm : tensor<32xf32>
  %q = stem.param_load @query : tensor<32x32xf32>
  %g = stem.param_load @gate : tensor<128x32xf32>
  %u = stem.param_load @up : tensor<128x32xf32>
  %d = stem.param_load @down : tensor<32x128xf32>
  %t = stem.table_load @rows : !stem.table<96x128xf32>
  %rows, %i = stem.table_rows %t, %ids : !stem.table<96x128xf32>, tensor<?xi32> -> tensor<?x128xf32>, tensor<?xi32>
  %x = stem.embedding %ids, %e : tensor<?xi32>, tensor<96x32xf32> -> tensor<?x32xf32>
  %0 = call @dense(%x, %p, %s, %n, %q, %g, %u, %d) : (tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32>, tensor<32xf32>, tensor<32x32xf32>, tensor<128x32xf32>, tensor<128x32xf32>, tensor<32x128xf32>) -> tensor<?x32xf32>
  %1 = call @looked_up(%0, %rows, %i, %g, %d) : (tensor<?x32xf32>, tensor<?x128xf32>, tensor<?xi32>, tensor<128x32xf32>, tensor<32x128xf32>) -> tensor<?x32xf32>
  %nll = stem.cross_entropy %1, %e, %l : tensor<?x32xf32>, tensor<96x32xf32>, tensor<?xi32> -> tensor<?xf32>
  return %nll : tensor<?xf32>
}
