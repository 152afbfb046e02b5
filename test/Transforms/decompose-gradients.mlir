// RUN: stem-opt %s -split-input-file --stem-decompose-gradients | FileCheck %s
// RUN: stem-opt %s -split-input-file --stem-decompose-gradients --stem-decompose-gradients | FileCheck %s

// The cotangent of tokens, and the weight's as a sum over them; heads share one
// weight.

// CHECK-LABEL: func.func @rms_norm
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[W:[a-z0-9]+]]: tensor<4xf32>, %[[C:[a-z0-9]+]]: tensor<?x8xf32>
// CHECK: %[[DX:.*]] = stem.rms_norm_input_vjp %[[X]], %[[W]], %[[C]] {eps = {{.*}} : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
// CHECK: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<4xf32>
// CHECK: %[[N:.*]] = stem.rms_norm %[[X]], %[[ONES]] {eps = {{.*}} : f64}
// CHECK: %[[TERMS:.*]] = arith.mulf %[[N]], %[[C]] : tensor<?x8xf32>
// CHECK: %[[DW:.*]] = stem.sum_tokens %[[TERMS]] : tensor<?x8xf32> -> tensor<4xf32>
// CHECK: return %[[DX]], %[[DW]]
func.func @rms_norm(%x: tensor<?x8xf32>, %w: tensor<4xf32>, %c: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<4xf32>) {
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<4xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<?x8xf32>, tensor<4xf32>
}

// A frozen weight: nothing is added up.

// CHECK-LABEL: func.func @frozen_norm
// CHECK-NOT: stem.sum_tokens
// CHECK: stem.rms_norm_input_vjp
// CHECK-NOT: stem.sum_tokens
// CHECK: return
func.func @frozen_norm(%x: tensor<?x8xf32>, %w: tensor<8xf32>, %c: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<8xf32>)
  return %0#0 : tensor<?x8xf32>
}

// -----

// Products in bf16: what a product multiplies is bf16, and what is added up f32.

// CHECK-LABEL: func.func @dense_ffn
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xbf16>, %[[G:[a-z0-9]+]]: tensor<16x8xbf16>, %[[U:[a-z0-9]+]]: tensor<16x8xbf16>, %[[D:[a-z0-9]+]]: tensor<8x16xbf16>, %[[GB:[a-z0-9]+]]: tensor<16xf32>, %[[UB:[a-z0-9]+]]: tensor<16xf32>, %[[C:[a-z0-9]+]]: tensor<?x8xf32>
// CHECK: %[[GATE:.*]] = stem.linear %[[X]], %[[G]] bias %[[GB]] : tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<16xf32> -> tensor<?x16xf32>
// CHECK: %[[THROUGH:.*]] = stem.linear_input_vjp %[[C]], %[[D]] : (tensor<?x8xf32>, tensor<8x16xbf16>) -> tensor<?x16xf32>
// CHECK: %[[UP:.*]] = stem.linear %[[X]], %[[U]] bias %[[UB]] : {{.*}} -> tensor<?x16xf32>
// CHECK: %[[DG:.*]], %[[DU:.*]], %[[P:.*]] = stem.gate_vjp %[[GATE]], %[[UP]], %[[THROUGH]] : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xbf16>)
// CHECK: %[[LEFT:.*]] = stem.linear_input_vjp %[[DG]], %[[G]] : (tensor<?x16xbf16>, tensor<16x8xbf16>) -> tensor<?x8xf32>
// CHECK: %[[RIGHT:.*]] = stem.linear_input_vjp %[[DU]], %[[U]]
// CHECK: %[[DX:.*]] = arith.addf %[[LEFT]], %[[RIGHT]] : tensor<?x8xf32>
// CHECK: %[[DGATE:.*]] = stem.linear_weight_vjp %[[X]], %[[DG]] : (tensor<?x8xbf16>, tensor<?x16xbf16>) -> tensor<16x8xf32>
// CHECK: %[[DUP:.*]] = stem.linear_weight_vjp %[[X]], %[[DU]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[C]] : tensor<?x8xf32> to tensor<?x8xbf16>
// CHECK: %[[DDOWN:.*]] = stem.linear_weight_vjp %[[P]], %[[NARROW]] : (tensor<?x16xbf16>, tensor<?x8xbf16>) -> tensor<8x16xf32>
// CHECK: %[[DGB:.*]] = stem.sum_tokens %[[DG]] : tensor<?x16xbf16> -> tensor<16xf32>
// CHECK: %[[DUB:.*]] = stem.sum_tokens %[[DU]]
// CHECK: return %[[DX]], %[[DGATE]], %[[DUP]], %[[DDOWN]], %[[DGB]], %[[DUB]]
func.func @dense_ffn(%x: tensor<?x8xbf16>, %g: tensor<16x8xbf16>, %u: tensor<16x8xbf16>, %d: tensor<8x16xbf16>, %gb: tensor<16xf32>, %ub: tensor<16xf32>, %c: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>) {
  %0:6 = stem.dense_ffn_vjp %x gate %g up %u down %d cotangent %c gate_bias %gb up_bias %ub {resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1>} : (tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<16x8xbf16>, tensor<8x16xbf16>, tensor<?x8xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>)
  return %0#0, %0#1, %0#2, %0#3, %0#4, %0#5 : tensor<?x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>, tensor<16xf32>
}

// The cotangent of a table's rows has its own type.

// CHECK-LABEL: func.func @gated_ffn
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xbf16>, %[[G:[a-z0-9]+]]: tensor<16x8xbf16>, %[[R:[a-z0-9]+]]: tensor<?x16xbf16>, %[[D:[a-z0-9]+]]: tensor<8x16xbf16>, %[[C:[a-z0-9]+]]: tensor<?x8xf32>
// CHECK: %[[GATE:.*]] = stem.linear %[[X]], %[[G]] : {{.*}} -> tensor<?x16xf32>
// CHECK: %[[THROUGH:.*]] = stem.linear_input_vjp %[[C]], %[[D]]
// CHECK: %[[DG:.*]], %[[DR:.*]], %[[P:.*]] = stem.gate_vjp %[[GATE]], %[[R]], %[[THROUGH]] : (tensor<?x16xf32>, tensor<?x16xbf16>, tensor<?x16xf32>) -> (tensor<?x16xbf16>, tensor<?x16xf32>, tensor<?x16xbf16>)
// CHECK: %[[DX:.*]] = stem.linear_input_vjp %[[DG]], %[[G]]
// CHECK: %[[DGATE:.*]] = stem.linear_weight_vjp %[[X]], %[[DG]]
// CHECK: %[[DDOWN:.*]] = stem.linear_weight_vjp %[[P]], %{{.*}} : (tensor<?x16xbf16>, tensor<?x8xbf16>)
// CHECK-NOT: stem.sum_tokens
// CHECK: return %[[DX]], %[[DGATE]], %[[DR]], %[[DDOWN]]
func.func @gated_ffn(%x: tensor<?x8xbf16>, %g: tensor<16x8xbf16>, %u: tensor<?x16xbf16>, %d: tensor<8x16xbf16>, %c: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>) {
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<?x16xbf16>, tensor<8x16xbf16>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>
}

// CHECK-LABEL: func.func @gated_ffn_with_bias
// CHECK: %[[DG:.*]], %{{.*}}, %{{.*}} = stem.gate_vjp
// CHECK: %[[DGB:.*]] = stem.sum_tokens %[[DG]] : tensor<?x16xf32> -> tensor<16xf32>
// CHECK: return %{{.*}}, %[[DGB]]
func.func @gated_ffn_with_bias(%x: tensor<?x8xf32>, %g: tensor<16x8xf32>, %u: tensor<?x16xf32>, %d: tensor<8x16xf32>, %c: tensor<?x8xf32>, %b: tensor<16xf32>) -> (tensor<?x8xf32>, tensor<16xf32>) {
  %0:5 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c gate_bias %b : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>, tensor<?x8xf32>, tensor<16xf32>) -> (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<8x16xf32>, tensor<16xf32>)
  return %0#0, %0#4 : tensor<?x8xf32>, tensor<16xf32>
}

// -----

// A cotangent is rounded to a narrower x, and never widened.

// CHECK-LABEL: func.func @narrow
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xbf16>, %[[Y:[a-z0-9]+]]: tensor<?x8xf32>, %[[C:[a-z0-9]+]]: tensor<?x4xf32>, %[[H:[a-z0-9]+]]: tensor<?x4xbf16>
// CHECK: %[[N:.*]] = arith.truncf %[[C]] : tensor<?x4xf32> to tensor<?x4xbf16>
// CHECK: stem.linear_weight_vjp %[[X]], %[[N]]
// CHECK: stem.linear_weight_vjp %[[Y]], %[[C]]
// CHECK: stem.linear_weight_vjp %[[Y]], %[[H]]
func.func @narrow(%x: tensor<?x8xbf16>, %y: tensor<?x8xf32>, %c: tensor<?x4xf32>, %h: tensor<?x4xbf16>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = stem.linear_weight_vjp %x, %c : (tensor<?x8xbf16>, tensor<?x4xf32>) -> tensor<4x8xf32>
  %1 = stem.linear_weight_vjp %y, %c : (tensor<?x8xf32>, tensor<?x4xf32>) -> tensor<4x8xf32>
  %2 = stem.linear_weight_vjp %y, %h : (tensor<?x8xf32>, tensor<?x4xbf16>) -> tensor<4x8xf32>
  return %0, %1, %2 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A tied embedding's rows go into the gradient of the head, on either side of
// the sum.

// CHECK-LABEL: func.func @embeddings
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<?xi32>, %[[C:[a-z0-9]+]]: tensor<?x8xf32>, %[[H:[a-z0-9]+]]: tensor<32x8xf32>
// CHECK: %[[ALONE:.*]] = stem.sum_rows %[[C]] by %[[IDS]] : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
// CHECK: %[[LEFT:.*]] = stem.sum_rows %[[C]] by %[[IDS]] onto %[[H]] {padding_id = 3 : i64}
// CHECK: %[[RIGHT:.*]] = stem.sum_rows %[[C]] by %[[IDS]] onto %[[H]] :
// CHECK-NOT: arith.addf
// CHECK: return %[[ALONE]], %[[LEFT]], %[[RIGHT]]
func.func @embeddings(%ids: tensor<?xi32>, %c: tensor<?x8xf32>, %h: tensor<32x8xf32>) -> (tensor<32x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>) {
  %0 = stem.embedding_vjp %ids, %c : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  %1 = stem.embedding_vjp %ids, %c {padding_id = 3 : i64} : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  %2 = arith.addf %1, %h : tensor<32x8xf32>
  %3 = stem.embedding_vjp %ids, %c : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  %4 = arith.addf %h, %3 : tensor<32x8xf32>
  return %0, %2, %4 : tensor<32x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>
}

// Rows that something else reads too keep their sum.

// CHECK-LABEL: func.func @rows_read_twice
// CHECK: %[[S:.*]] = stem.sum_rows
// CHECK: %[[D:.*]] = arith.addf %[[S]], %[[S]]
// CHECK: return %[[D]]
func.func @rows_read_twice(%ids: tensor<?xi32>, %c: tensor<?x8xf32>) -> tensor<32x8xf32> {
  %0 = stem.embedding_vjp %ids, %c : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<32x8xf32>
  %1 = arith.addf %0, %0 : tensor<32x8xf32>
  return %1 : tensor<32x8xf32>
}

// Rows in other types stay, for the interpreter.

// CHECK-LABEL: func.func @double_embedding
// CHECK: stem.embedding_vjp
func.func @double_embedding(%ids: tensor<?xi32>, %c: tensor<?x8xf64>) -> tensor<32x8xf64> {
  %0 = stem.embedding_vjp %ids, %c : (tensor<?xi32>, tensor<?x8xf64>) -> tensor<32x8xf64>
  return %0 : tensor<32x8xf64>
}

// -----

// The loss and its derivative are one op, where the loss was.

// CHECK-LABEL: func.func @loss
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[H:[a-z0-9]+]]: tensor<32x8xf32>, %[[L:[a-z0-9]+]]: tensor<?xi32>, %[[C:[a-z0-9]+]]: tensor<?xf32>
// CHECK: %[[NLL:.*]], %[[DX:.*]], %[[DH:.*]] = stem.cross_entropy_step %[[X]], %[[H]], %[[L]], %[[C]] : {{.*}} -> (tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>)
// CHECK: arith.negf
// CHECK-NOT: stem.cross_entropy
// CHECK: return %[[NLL]], %[[DX]], %[[DH]]
func.func @loss(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>, tensor<?x8xf32>) {
  %0 = stem.cross_entropy %x, %h, %l : tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32> -> tensor<?xf32>
  %1 = arith.negf %x : tensor<?x8xf32>
  %2:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  return %0, %2#0, %2#1, %1 : tensor<?xf32>, tensor<?x8xf32>, tensor<32x8xf32>, tensor<?x8xf32>
}

// A loss of other labels, or one that the cotangent depends on, stays.

// CHECK-LABEL: func.func @other_loss
// CHECK: %[[NLL:.*]] = stem.cross_entropy %
// CHECK: %{{.*}}, %[[DX:.*]], %{{.*}} = stem.cross_entropy_step
// CHECK: return %[[NLL]], %[[DX]]
func.func @other_loss(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %l: tensor<?xi32>, %m: tensor<?xi32>, %c: tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>) {
  %0 = stem.cross_entropy %x, %h, %l : tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32> -> tensor<?xf32>
  %1:2 = stem.cross_entropy_vjp %x, %h, %m, %c : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  return %0, %1#0 : tensor<?xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @dependent_cotangent
// CHECK: %[[NLL:.*]] = stem.cross_entropy %
// CHECK: %[[C:.*]] = arith.mulf %[[NLL]], %[[NLL]]
// CHECK: stem.cross_entropy_step %{{.*}}, %{{.*}}, %{{.*}}, %[[C]]
func.func @dependent_cotangent(%x: tensor<?x8xf32>, %h: tensor<32x8xf32>, %l: tensor<?xi32>) -> tensor<?x8xf32> {
  %0 = stem.cross_entropy %x, %h, %l : tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32> -> tensor<?xf32>
  %c = arith.mulf %0, %0 : tensor<?xf32>
  %1:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x8xf32>, tensor<32x8xf32>)
  return %1#0 : tensor<?x8xf32>
}
