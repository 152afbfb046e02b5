// RUN: stem-opt %s -split-input-file --stem-interpret='stem-tokens=4' -verify-diagnostics -o /dev/null

// Sizes that the IR does not know, and ids that are no rows: %three has three
// rows where the others have four.

func.func @rms_norm(%x: tensor<?x2xf32>, %w: tensor<2xf32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0:2 = stem.rms_norm_vjp %x, %w, %three {eps = 1.0 : f64} : (tensor<?x2xf32>, tensor<2xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @silu(%x: tensor<?x2xf32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0 = stem.silu_vjp %x, %three : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @silu_columns(%x: tensor<?x2xf32>, %c: tensor<?x?xf32>) {
  // expected-error @+1 {{columns of the cotangent is 4, expected 2}}
  %0 = stem.silu_vjp %x, %c : (tensor<?x2xf32>, tensor<?x?xf32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @input(%c: tensor<?x?xf32>, %w: tensor<3x2xf32>) {
  // expected-error @+1 {{columns of the cotangent is 4, expected 3}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<?x?xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @weight(%x: tensor<?x2xf32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0 = stem.linear_weight_vjp %x, %three : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @attention_k(%x: tensor<?x2xf32>, %p: tensor<?xi32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of k is 3, expected 4}}
  %0:3 = stem.attention_vjp %x, %three, %x, %x at %p of %p {head_dim = 2 : i64, scale = 1.0 : f64} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

func.func @attention_v(%x: tensor<?x2xf32>, %p: tensor<?xi32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of v is 3, expected 4}}
  %0:3 = stem.attention_vjp %x, %x, %three, %x at %p of %p {head_dim = 2 : i64, scale = 1.0 : f64} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

func.func @attention_positions(%x: tensor<?x2xf32>, %p: tensor<?xi32>, %t: tensor<3xi32>) {
  %three = tensor.cast %t : tensor<3xi32> to tensor<?xi32>
  // expected-error @+1 {{number of positions is 3, expected 4}}
  %0:3 = stem.attention_vjp %x, %x, %x, %x at %three of %p {head_dim = 2 : i64, scale = 1.0 : f64} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

func.func @attention_sequences(%x: tensor<?x2xf32>, %p: tensor<?xi32>, %t: tensor<3xi32>) {
  %three = tensor.cast %t : tensor<3xi32> to tensor<?xi32>
  // expected-error @+1 {{number of sequences is 3, expected 4}}
  %0:3 = stem.attention_vjp %x, %x, %x, %x at %p of %three {head_dim = 2 : i64, scale = 1.0 : f64} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

func.func @attention_cotangent(%x: tensor<?x2xf32>, %p: tensor<?xi32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0:3 = stem.attention_vjp %x, %x, %x, %three at %p of %p {head_dim = 2 : i64, scale = 1.0 : f64} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>)
  return
}

// -----

func.func @attention_columns(%x: tensor<?x2xf32>, %p: tensor<?xi32>, %v: tensor<?x?xf32>) {
  // expected-error @+1 {{columns of v is 4, expected 2}}
  %0:3 = stem.attention_vjp %x, %x, %v, %x at %p of %p {head_dim = 2 : i64, scale = 1.0 : f64} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x?xf32>, tensor<?x2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x?xf32>)
  return
}

// -----

func.func @gated_ffn_rows(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %d: tensor<2x3xf32>, %t: tensor<3x3xf32>) {
  %three = tensor.cast %t : tensor<3x3xf32> to tensor<?x3xf32>
  // expected-error @+1 {{rows of up is 3, expected 4}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %three down %d cotangent %x : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @gated_ffn_columns(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %d: tensor<2x3xf32>, %u: tensor<?x?xf32>) {
  // expected-error @+1 {{columns of up is 4, expected 3}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %x : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x?xf32>, tensor<2x3xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x?xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @gated_ffn_cotangent(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %d: tensor<2x3xf32>, %u: tensor<?x3xf32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %three : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @gated_ffn_down(%x: tensor<?x2xf32>, %g: tensor<3x2xf32>, %d: tensor<2x?xf32>, %u: tensor<?x3xf32>) {
  // expected-error @+1 {{inputs of down is 4, expected 3}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %x : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x?xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?x3xf32>, tensor<2x?xf32>)
  return
}

// -----

func.func @dense_ffn(%x: tensor<?x2xf32>, %g: tensor<?x2xf32>, %t: tensor<3x2xf32>, %d: tensor<2x?xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{columns of up is 3, expected 4}}
  %0:4 = stem.dense_ffn_vjp %x gate %g up %three down %d cotangent %x {resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>} : (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<2x?xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<2x?xf32>)
  return
}

// -----

func.func @cross_entropy_labels(%x: tensor<?x2xf32>, %h: tensor<3x2xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>, %t: tensor<3xi32>) {
  %three = tensor.cast %t : tensor<3xi32> to tensor<?xi32>
  // expected-error @+1 {{length of labels is 3, expected 4}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %three, %c : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>)
  return
}

// -----

func.func @cross_entropy_cotangent(%x: tensor<?x2xf32>, %h: tensor<3x2xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>, %t: tensor<3xf32>) {
  %three = tensor.cast %t : tensor<3xf32> to tensor<?xf32>
  // expected-error @+1 {{length of the cotangent is 3, expected 4}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %l, %three : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>)
  return
}

// -----

func.func @cross_entropy_label(%x: tensor<?x2xf32>, %h: tensor<3x2xf32>, %l: tensor<?xi32>, %c: tensor<?xf32>) {
  %b = arith.constant dense<[0, 3, 1, 1]> : tensor<4xi32>
  %bad = tensor.cast %b : tensor<4xi32> to tensor<?xi32>
  // expected-error @+1 {{label 3 at token 1 is outside of a vocabulary of 3}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %bad, %c : (tensor<?x2xf32>, tensor<3x2xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?x2xf32>, tensor<3x2xf32>)
  return
}

// -----

func.func @embedding(%i: tensor<?xi32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0 = stem.embedding_vjp %i, %three : (tensor<?xi32>, tensor<?x2xf32>) -> tensor<5x2xf32>
  return
}

// -----

func.func @embedding_id(%c: tensor<2x2xf32>) {
  %i = arith.constant dense<[4, 5]> : tensor<2xi32>
  // expected-error @+1 {{id 5 at token 1 is outside of a matrix of 5 rows}}
  %0 = stem.embedding_vjp %i, %c : (tensor<2xi32>, tensor<2x2xf32>) -> tensor<5x2xf32>
  return
}

// -----

func.func @keep_selected(%x: tensor<?x2xf32>, %t: tensor<3xi32>, %s: tensor<2xi32>) {
  %three = tensor.cast %t : tensor<3xi32> to tensor<?xi32>
  // expected-error @+1 {{length of ids is 3, expected 4}}
  %0 = stem.keep_selected %x ids %three in %s : (tensor<?x2xf32>, tensor<?xi32>, tensor<2xi32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @keep_selected_rising(%x: tensor<?x2xf32>, %i: tensor<?xi32>) {
  %s = arith.constant dense<[4, 2]> : tensor<2xi32>
  // expected-error @+1 {{the selected ids must rise, but 2 follows 4}}
  %0 = stem.keep_selected %x ids %i in %s : (tensor<?x2xf32>, tensor<?xi32>, tensor<2xi32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @row_gradient(%i: tensor<?xi32>, %t: tensor<3x2xf32>) {
  %three = tensor.cast %t : tensor<3x2xf32> to tensor<?x2xf32>
  // expected-error @+1 {{rows of the cotangent is 3, expected 4}}
  %0 = stem.row_gradient %i, %three : tensor<?xi32>, tensor<?x2xf32> -> !stem.row_gradient<2xf32>
  return
}

// -----

func.func @table_gradient(%r: !stem.row_gradient<2xf32>, %i: tensor<?xi32>, %t: tensor<3xi32>) {
  %three = tensor.cast %t : tensor<3xi32> to tensor<?xi32>
  // expected-error @+1 {{length of ids is 3, expected 4}}
  %0:2 = stem.table_gradient %r index %i ids %three : (!stem.row_gradient<2xf32>, tensor<?xi32>, tensor<?xi32>) -> (tensor<?xi32>, tensor<?x2xf32>)
  return
}

// -----

func.func @table_gradient_ids(%r: !stem.row_gradient<2xf32>) {
  %i = arith.constant dense<[1, 1]> : tensor<2xi32>
  %s = arith.constant dense<[6, 7]> : tensor<2xi32>
  // expected-error @+1 {{index 1 stands for the ids 6 and 7}}
  %0:2 = stem.table_gradient %r index %i ids %s : (!stem.row_gradient<2xf32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<?xi32>, tensor<?x2xf32>)
  return
}

// -----

func.func @table_gradient_pair(%c: tensor<2x2xf32>) {
  %i = arith.constant dense<[1, 1]> : tensor<2xi32>
  %other = arith.constant dense<[1, 2]> : tensor<2xi32>
  %r = stem.row_gradient %other, %c : tensor<2xi32>, tensor<2x2xf32> -> !stem.row_gradient<2xf32>
  // expected-error @+1 {{pair 1 is of row 2, which is not in index}}
  %0:2 = stem.table_gradient %r index %i ids %i : (!stem.row_gradient<2xf32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<?xi32>, tensor<?x2xf32>)
  return
}

// -----

// expected-error @+1 {{argument 0 is too large for the interpreter}}
func.func @too_wide(%r: !stem.row_gradient<9223372036854775807xf32>) {
  return
}
