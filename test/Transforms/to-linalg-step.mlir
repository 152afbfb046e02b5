// RUN: stem-opt %s -split-input-file --stem-to-linalg | FileCheck %s

// CHECK-LABEL: func.func @silu_vjp
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK: math.exp
// CHECK: arith.divf
// CHECK: arith.truncf %{{.*}} : f32 to bf16
func.func @silu_vjp(%x: tensor<64x8xf32>, %c: tensor<64x8xf32>) -> tensor<64x8xbf16> {
  %0 = stem.silu_vjp %x, %c : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xbf16>
  return %0 : tensor<64x8xbf16>
}

// One loop gives all three, each in its own type; exp is computed once.

// CHECK-LABEL: func.func @gate_vjp
// CHECK: %{{.*}}:3 = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%{{.*}} : tensor<64x8xf32>, tensor<64x8xbf16>, tensor<64x8xf32>) outs(%{{.*}} : tensor<64x8xbf16>, tensor<64x8xf32>, tensor<64x8xbf16>)
// CHECK: math.exp
// CHECK-NOT: math.exp
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @gate_vjp(%g: tensor<64x8xf32>, %u: tensor<64x8xbf16>, %c: tensor<64x8xf32>) -> (tensor<64x8xbf16>, tensor<64x8xf32>, tensor<64x8xbf16>) {
  %0:3 = stem.gate_vjp %g, %u, %c : (tensor<64x8xf32>, tensor<64x8xbf16>, tensor<64x8xf32>) -> (tensor<64x8xbf16>, tensor<64x8xf32>, tensor<64x8xbf16>)
  return %0#0, %0#1, %0#2 : tensor<64x8xbf16>, tensor<64x8xf32>, tensor<64x8xbf16>
}

// Two sums for each token and group of columns, then the cotangent.

// CHECK-LABEL: func.func @rms_norm_input_vjp
// CHECK: tensor.expand_shape %{{.*}} : tensor<64x8xf32> into tensor<64x2x4xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: math.rsqrt
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel"]
// CHECK: tensor.collapse_shape {{.*}} into tensor<64x8xf32>
func.func @rms_norm_input_vjp(%x: tensor<64x8xf32>, %w: tensor<4xf32>, %c: tensor<64x8xf32>) -> tensor<64x8xf32> {
  %0 = stem.rms_norm_input_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<64x8xf32>, tensor<4xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  return %0 : tensor<64x8xf32>
}

// Each id is looked up by halving, none in an empty list.

// CHECK-LABEL: func.func @keep_selected
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<64x8xf32>, %[[IDS:[a-z0-9]+]]: tensor<64xi32>, %[[SELECTED:[a-z0-9]+]]: tensor<?xi32>
// CHECK: %[[SIZE:.*]] = tensor.dim %[[SELECTED]]
// CHECK: %[[NONE:.*]] = arith.cmpi eq, %[[SIZE]]
// CHECK: %[[OTHERS:.*]] = arith.constant false
// CHECK: scf.for %[[T:[a-z0-9]+]] = {{.*}} -> (tensor<64x8xf32>)
// CHECK:   tensor.extract %[[IDS]][%[[T]]]
// CHECK:   %[[FOUND:.*]] = scf.if %[[NONE]] -> (i1)
// CHECK:     tensor.extract %[[SELECTED]]
// CHECK:   %[[KEEPS:.*]] = arith.cmpi ne, %[[FOUND]], %[[OTHERS]]
// CHECK:   linalg.generic
// CHECK:     arith.select %[[KEEPS]]
// CHECK: %[[OTHERS:.*]] = arith.constant true
// CHECK: arith.cmpi ne, %{{.*}}, %[[OTHERS]]
func.func @keep_selected(%x: tensor<64x8xf32>, %ids: tensor<64xi32>, %in: tensor<?xi32>) -> (tensor<64x8xf32>, tensor<64x8xf32>) {
  %0 = stem.keep_selected %x ids %ids in %in : (tensor<64x8xf32>, tensor<64xi32>, tensor<?xi32>) -> tensor<64x8xf32>
  %1 = stem.keep_selected others %x ids %ids in %in : (tensor<64x8xf32>, tensor<64xi32>, tensor<?xi32>) -> tensor<64x8xf32>
  return %0, %1 : tensor<64x8xf32>, tensor<64x8xf32>
}

// -----

// The gradient of a weight, into the argument that it is returned in: chunks of
// 2048 tokens; of each, panels of x by the threads, then 64 rows of the result
// by each, of which the last are fewer. Only later chunks add to what is there.

// CHECK-LABEL: func.func @weight
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x80xf32>, %[[C:[a-z0-9]+]]: tensor<?x100xf32>, %[[OUT:[a-z0-9]+]]: tensor<100x80xf32>
// CHECK: %[[NEVER:.*]] = arith.constant false
// CHECK: %[[STEP:.*]] = arith.constant 2048 : index
// CHECK: scf.for %[[FIRST:[a-z0-9]+]] = %[[ZERO:[^ ]*]] to %{{.*}} step %[[STEP]] iter_args(%[[ACC:.*]] = %[[OUT]])
// CHECK:   %[[LATER:.*]] = arith.cmpi ne, %[[FIRST]], %[[ZERO]]
// CHECK:   %[[ADDS:.*]] = arith.ori %[[LATER]], %[[NEVER]]
// CHECK:   tensor.empty() : tensor<2x131072xf32>
// CHECK:   %[[PANELS:.*]] = scf.forall (%{{.*}}) in (2)
// CHECK:     stem.pack_tokens %{{.*}} into %{{.*}} -> tensor<1x131072xf32>
// CHECK:   scf.forall (%{{.*}}) in (2) shared_outs(%{{.*}} = %[[ACC]])
// CHECK:     arith.minui
// CHECK:     stem.transpose_tokens
// CHECK:     stem.panel_matmul %{{.*}}, %[[PANELS]] into %{{.*}} accumulate %[[ADDS]] {depth = 2048 : i64} : {{.*}} -> tensor<?x80xf32>
func.func @weight(%x: tensor<?x80xf32>, %c: tensor<?x100xf32>, %out: tensor<100x80xf32> {stem.output}) -> tensor<100x80xf32> {
  %0 = stem.linear_weight_vjp %x, %c : (tensor<?x80xf32>, tensor<?x100xf32>) -> tensor<100x80xf32>
  return %0 : tensor<100x80xf32>
}

// 128 rows by each where 8 tasks are left; the rows of what each transposes are
// a line more apart than their tokens.

// CHECK-LABEL: func.func @wide_weight
// CHECK: scf.forall (%{{.*}}) in (8)
// CHECK:   tensor.empty() : tensor<128x2064xf32>
// CHECK:   stem.panel_matmul {{.*}} -> tensor<128x64xf32>
// CHECK-LABEL: func.func @narrower_weight
// CHECK: scf.forall (%{{.*}}) in (15)
// CHECK:   tensor.empty() : tensor<64x2064xf32>
func.func @wide_weight(%x: tensor<?x64xf32>, %c: tensor<?x1024xf32>) -> tensor<1024x64xf32> {
  %0 = stem.linear_weight_vjp %x, %c : (tensor<?x64xf32>, tensor<?x1024xf32>) -> tensor<1024x64xf32>
  return %0 : tensor<1024x64xf32>
}
func.func @narrower_weight(%x: tensor<?x64xf32>, %c: tensor<?x960xf32>) -> tensor<960x64xf32> {
  %0 = stem.linear_weight_vjp %x, %c : (tensor<?x64xf32>, tensor<?x960xf32>) -> tensor<960x64xf32>
  return %0 : tensor<960x64xf32>
}

// A wider cotangent is rounded first; without an argument there is a new tensor.

// CHECK-LABEL: func.func @narrow_weight
// CHECK: tensor.empty() : tensor<64x128xf32>
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: stem.pack_tokens {{.*}} tensor<1x131072xbf16>
// CHECK: stem.panel_matmul {{.*}} -> tensor<64x128xf32>
func.func @narrow_weight(%x: tensor<?x128xbf16>, %c: tensor<?x64xf32>) -> tensor<64x128xf32> {
  %0 = stem.linear_weight_vjp %x, %c : (tensor<?x128xbf16>, tensor<?x64xf32>) -> tensor<64x128xf32>
  return %0 : tensor<64x128xf32>
}

// A weight that has no transposed form.

// CHECK-LABEL: func.func @input
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
func.func @input(%c: tensor<64x16xf32>, %w: tensor<16x8xbf16>) -> tensor<64x8xf32> {
  %0 = stem.linear_input_vjp %c, %w : (tensor<64x16xf32>, tensor<16x8xbf16>) -> tensor<64x8xf32>
  return %0 : tensor<64x8xf32>
}

// -----

// Tokens are added up one after the other, 64 columns by each thread, from
// zero; two groups of columns here.

// CHECK-LABEL: func.func @tokens
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x200xbf16>
// CHECK: scf.forall (%{{.*}}) in (2)
// CHECK:   linalg.fill
// CHECK:   scf.for %[[T:[a-z0-9]+]] =
// CHECK:     tensor.extract_slice %[[X]][%[[T]],
// CHECK:     arith.extf
// CHECK:     arith.addf
// CHECK:     arith.constant 100 : index
// CHECK:     tensor.extract_slice %[[X]][%[[T]],
// CHECK: tensor.collapse_shape %{{.*}} : tensor<1x100xf32> into tensor<100xf32>
func.func @tokens(%x: tensor<?x200xbf16>) -> tensor<100xf32> {
  %0 = stem.sum_tokens %x : tensor<?x200xbf16> -> tensor<100xf32>
  return %0 : tensor<100xf32>
}

// Rows by number, into an output that says how many there are.

// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[I:[a-z0-9]+]]: tensor<?xi32>, %[[OUT:[a-z0-9]+]]: tensor<?x8xf32>
// CHECK: scf.forall (%{{.*}}) in (1) shared_outs(%{{.*}} = %[[OUT]])
// CHECK:   linalg.fill
// CHECK:   scf.for %[[T:[a-z0-9]+]] =
// CHECK:     %[[N:.*]] = tensor.extract %[[I]][%[[T]]]
// CHECK:     %[[ROW:.*]] = arith.index_cast %[[N]]
// CHECK:     tensor.extract_slice %{{.*}}[%[[ROW]], 0]
// CHECK:     arith.addf
// CHECK-NOT: arith.select
func.func @rows(%x: tensor<?x8xf32>, %i: tensor<?xi32>, %out: tensor<?x8xf32> {stem.output}) -> tensor<?x8xf32> {
  %0 = stem.sum_rows %x by %i : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// Onto what is there: nothing is cleared. Padding adds nothing.

// CHECK-LABEL: func.func @rows_onto
// CHECK-SAME: %[[Y:[a-z0-9]+]]: tensor<32x8xf32>
// CHECK: scf.forall (%{{.*}}) in (1) shared_outs(%{{.*}} = %[[Y]])
// CHECK-NOT: linalg.fill
// CHECK: %[[PADDING:.*]] = arith.constant 3 : index
// CHECK: %[[SKIPPED:.*]] = arith.cmpi eq, %{{.*}}, %[[PADDING]]
// CHECK: arith.select %[[SKIPPED]]
func.func @rows_onto(%x: tensor<?x8xf32>, %i: tensor<?xi32>, %y: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %0 = stem.sum_rows %x by %i onto %y {padding_id = 3 : i64} : (tensor<?xi32>, tensor<?x8xf32>, tensor<32x8xf32>) -> tensor<32x8xf32>
  return %0 : tensor<32x8xf32>
}

// -----

// The loss in chunks of tokens whose logits take 64 MiB at most: here 640 of
// 25600 words. A tile's scores become its cotangents, in the type of x; then the
// head's gradient takes the chunk as one product.

// CHECK-LABEL: func.func @loss
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xf32>, %[[H:[a-z0-9]+]]: !stem.packed<8x25600xf32>, %[[T:[a-z0-9]+]]: !stem.packed<25600x8xf32>, %[[L:[a-z0-9]+]]: tensor<?xi32>, %[[C:[a-z0-9]+]]: tensor<?xf32>, %[[NLL:[a-z0-9]+]]: tensor<?xf32> {stem.output}, %[[DH:[a-z0-9]+]]: tensor<25600x8xf32> {stem.output}
// CHECK: %[[CHUNK:.*]] = arith.constant 640 : index
// CHECK: scf.for %{{.*}} step %[[CHUNK]] iter_args(%{{.*}} = %[[NLL]], %{{.*}} = %{{.*}}, %[[ACC:.*]] = %[[DH]])
// CHECK:   tensor.empty() : tensor<640x25600xf32>
// CHECK:   scf.forall
// CHECK:     %[[SCORES:.*]] = stem.packed_matmul %{{.*}}, %[[H]]{{.*}} -> tensor<64x25600xf32>
// CHECK:     arith.maximumf
// CHECK:     math.exp
// CHECK:     math.log
// CHECK:     %[[G:.*]] = linalg.generic {{.*}} ins(%[[SCORES]],
// CHECK:     stem.packed_matmul %[[G]], %[[T]]{{.*}} -> tensor<64x8xf32>
// CHECK:   stem.pack_tokens
// CHECK:   stem.transpose_tokens
// CHECK:   stem.panel_matmul
func.func @loss(%x: tensor<?x8xf32>, %h: !stem.packed<8x25600xf32>, %t: !stem.packed<25600x8xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>, %nll: tensor<?xf32> {stem.output}, %dh: tensor<25600x8xf32> {stem.output}) -> (tensor<?xf32>, tensor<25600x8xf32>, tensor<?x8xf32>) attributes {stem.tile = 64 : i64} {
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c transposed %t : (tensor<?x8xf32>, !stem.packed<8x25600xf32>, tensor<?xi32>, tensor<?xf32>, !stem.packed<25600x8xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<25600x8xf32>)
  return %0#0, %0#2, %0#1 : tensor<?xf32>, tensor<25600x8xf32>, tensor<?x8xf32>
}

// A frozen head: no product over tokens. A plain head is multiplied by loops.

// CHECK-LABEL: func.func @frozen_head
// CHECK: arith.constant 2048 : index
// CHECK-NOT: stem.panel_matmul
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK-NOT: stem.panel_matmul
func.func @frozen_head(%x: tensor<?x8xbf16>, %h: tensor<96x8xbf16>, %l: tensor<?xi32>, %c: tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>) attributes {stem.tile = 128 : i64} {
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<?x8xbf16>, tensor<96x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<96x8xf32>)
  return %0#0, %0#1 : tensor<?xf32>, tensor<?x8xf32>
}
