// A loss with a teacher from the graph phase to linalg, by the interpreter: no
// pass changes a number. The vocabulary, 130, is not whole panels, and the
// teacher is wider than the student.

// RUN: stem-opt %s --stem-differential='stem-function=loss stem-tokens=128 stem-pipeline=stem-graph-pipeline,stem-schedule-pipeline,stem-structured-pipeline' -o /dev/null 2>&1 | FileCheck %s
// RUN: stem-opt %s --stem-autodiff -o %t.vjp.mlir
// RUN: stem-opt %t.vjp.mlir --stem-differential='stem-function=loss_vjp stem-tokens=128 stem-pipeline=func.func(stem-decompose-gradients),stem-transpose-weights,canonicalize,cse' -o /dev/null 2>&1 | FileCheck %s
// The step's own loops are no matter of the interpreter; they become code.
// RUN: stem-opt %s --stem-training-pipeline -o %t.step.mlir
// RUN: FileCheck %s --check-prefix=STEP < %t.step.mlir
// RUN: stem-opt %t.step.mlir --stem-graph-pipeline --stem-schedule-pipeline --stem-structured-pipeline --stem-buffer-pipeline --stem-target-pipeline | mlir-translate --mlir-to-llvmir -o /dev/null

// CHECK-NOT: not compared
// CHECK: remark: {{[0-9]+}} comparisons agree, largest difference {{[^;]*$}}

// The teacher's head has no gradient; both losses have a cotangent.
// STEP: func.func @loss_vjp
// STEP-SAME: stem.name = "nll_cotangent"
// STEP-SAME: stem.name = "kl_cotangent"
// STEP-NOT: stem.gradient_of = @teacher_head
// STEP: stem.distillation_step {{.*}} transposed

stem.param @embed = "embed" : tensor<130x32xf32>
stem.param @norm = "norm" : tensor<32xf32>
stem.param @teacher_head = "teacher/head" : tensor<130x48xf32> {stem.frozen}

func.func @loss(%ids: tensor<?xi32> {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 130 : i64}, %l: tensor<?xi32> {stem.name = "labels", stem.rows = "tokens", stem.label_bound = 130 : i64}, %y: tensor<?x48xf32> {stem.name = "teacher", stem.rows = "tokens"}, %nll_out: tensor<?xf32> {stem.name = "nll", stem.rows = "tokens", stem.output}, %kl_out: tensor<?xf32> {stem.name = "kl", stem.rows = "tokens", stem.output}) -> (tensor<?xf32>, tensor<?xf32>) attributes {stem.entry, stem.tile = 64 : i64} {
  %e = stem.param_load @embed : tensor<130x32xf32>
  %n = stem.param_load @norm : tensor<32xf32>
  %g = stem.param_load @teacher_head : tensor<130x48xf32>
  %x = stem.embedding %ids, %e : tensor<?xi32>, tensor<130x32xf32> -> tensor<?x32xf32>
  %h = stem.rms_norm %x, %n {eps = 1.0e-5 : f64} : tensor<?x32xf32>, tensor<32xf32> -> tensor<?x32xf32>
  %nll, %kl = stem.distillation %h, %e, %l from %y, %g : (tensor<?x32xf32>, tensor<130x32xf32>, tensor<?xi32>, tensor<?x48xf32>, tensor<130x48xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  return %nll, %kl : tensor<?xf32>, tensor<?xf32>
}
