// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Each numbered constraint of the gradient ops, of !stem.row_gradient and of the
// attributes of gradients: the function's name says which.

func.func @rms_norm_vjp_c1(%x: tensor<3x8xf32>, %w: tensor<3xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_vjp' op length of the weight (3) must divide the columns of x (8), both static}}
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<3xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3xf32>)
  return
}

// -----

func.func @rms_norm_vjp_c1_dynamic(%x: tensor<3x?xf32>, %w: tensor<4xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_vjp' op length of the weight (4) must divide the columns of x (-9223372036854775808), both static}}
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<3x?xf32>, tensor<4xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @rms_norm_vjp_c2(%x: tensor<3x8xf32>, %w: tensor<4xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_vjp' op eps must be positive, got 0.000000e+00}}
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 0.0 : f64} : (tensor<3x8xf32>, tensor<4xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @rms_norm_vjp_c3(%x: tensor<3x8xf32>, %w: tensor<4xf32>, %c: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_vjp' op cotangent must have the shape of x ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<4xf32>, tensor<4x8xf32>) -> (tensor<3x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @rms_norm_vjp_c3_result(%x: tensor<3x8xf32>, %w: tensor<4xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_vjp' op dx must have the shape of its value ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<4xf32>, tensor<3x8xf32>) -> (tensor<3x4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @rms_norm_vjp_c4(%x: tensor<3x8xf32>, %w: tensor<4xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_vjp' op dweight must have the shape of its value ('tensor<4xf32>'), got 'tensor<8xf32>'}}
  %0:2 = stem.rms_norm_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<4xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<8xf32>)
  return
}

// -----

func.func @silu_vjp_c1(%x: tensor<3x8xf32>, %c: tensor<3x4xf32>) {
  // expected-error @+1 {{'stem.silu_vjp' op cotangent must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0 = stem.silu_vjp %x, %c : (tensor<3x8xf32>, tensor<3x4xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @silu_vjp_c2(%x: tensor<3x8xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.silu_vjp' op result must have the shape of x ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0 = stem.silu_vjp %x, %c : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @linear_input_vjp_c1(%c: tensor<3x8xf32>, %w: tensor<16x8xf32>) {
  // expected-error @+1 {{'stem.linear_input_vjp' op columns of cotangent must be the outputs of the weight, which is 16, got 8}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<3x8xf32>, tensor<16x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @linear_input_vjp_c1_packed(%c: tensor<3x16xf32>, %w: !stem.packed<8x12xf32>) {
  // expected-error @+1 {{'stem.linear_input_vjp' op columns of cotangent must be the outputs of the weight, which is 12, got 16}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<3x16xf32>, !stem.packed<8x12xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @linear_input_vjp_c2(%c: tensor<3x16xf32>, %w: tensor<16x8xf32>) {
  // expected-error @+1 {{'stem.linear_input_vjp' op columns of the result must be the inputs of the weight, which is 8, got 16}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<3x16xf32>, tensor<16x8xf32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @linear_input_vjp_c2_rows(%c: tensor<3x16xf32>, %w: tensor<16x8xf32>) {
  // expected-error @+1 {{'stem.linear_input_vjp' op rows of the result must be the rows of cotangent, which is 3, got 4}}
  %0 = stem.linear_input_vjp %c, %w : (tensor<3x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @linear_weight_vjp_c1(%x: tensor<3x8xf32>, %c: tensor<4x16xf32>) {
  // expected-error @+1 {{'stem.linear_weight_vjp' op rows of cotangent must be the rows of x, which is 3, got 4}}
  %0 = stem.linear_weight_vjp %x, %c : (tensor<3x8xf32>, tensor<4x16xf32>) -> tensor<16x8xf32>
  return
}

// -----

func.func @linear_weight_vjp_c2(%x: tensor<3x8xf32>, %c: tensor<3x16xf32>) {
  // expected-error @+1 {{'stem.linear_weight_vjp' op rows of the result must be the columns of cotangent, which is 16, got 8}}
  %0 = stem.linear_weight_vjp %x, %c : (tensor<3x8xf32>, tensor<3x16xf32>) -> tensor<8x8xf32>
  return
}

// -----

func.func @linear_weight_vjp_c2_columns(%x: tensor<3x8xf32>, %c: tensor<3x16xf32>) {
  // expected-error @+1 {{'stem.linear_weight_vjp' op columns of the result must be the columns of x, which is 8, got 16}}
  %0 = stem.linear_weight_vjp %x, %c : (tensor<3x8xf32>, tensor<3x16xf32>) -> tensor<16x16xf32>
  return
}

// -----

func.func @sum_tokens_c1(%x: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.sum_tokens' op length of the result (3) must divide the columns of x (8)}}
  %0 = stem.sum_tokens %x : tensor<3x8xf32> -> tensor<3xf32>
  return
}

// -----

func.func @attention_logsumexp_c1(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_logsumexp' op head_dim (3) must divide the columns of q (8) and of k (4), both static}}
  %0 = stem.attention_logsumexp %q, %k at %p of %s {head_dim = 3 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @sum_tokens_c1_longer(%x: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.sum_tokens' op length of the result (16) must divide the columns of x (8)}}
  %0 = stem.sum_tokens %x : tensor<3x8xf32> -> tensor<16xf32>
  return
}

// -----

func.func @attention_logsumexp_c2(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_logsumexp' op columns of the result must be the number of query heads, which is 2, got 3}}
  %0 = stem.attention_logsumexp %q, %k at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @attention_logsumexp_c3(%q: tensor<3x8xf32>, %k: tensor<3x12xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_logsumexp' op the number of query heads (2) must be a multiple of the number of key-value heads (3)}}
  %0 = stem.attention_logsumexp %q, %k at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x12xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @attention_logsumexp_c6(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_logsumexp' op window must not be negative, got -1}}
  %0 = stem.attention_logsumexp %q, %k at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64, window = -1 : i64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @attention_logsumexp_c7(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %p: tensor<4xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_logsumexp' op rows of a token operand must be the rows of q, which is 3, got 4}}
  %0 = stem.attention_logsumexp %q, %k at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<4xi32>, tensor<3xi32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @attention_vjp_c9(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %p: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op forward must be nothing, or what attention gave and its logarithms, got 1 values}}
  %0:3 = stem.attention_vjp %q, %k, %k, %q forward %q at %p of %p {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c9_result(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %l: tensor<3x2xf32>, %p: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op the forward result must have the shape of q ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:3 = stem.attention_vjp %q, %k, %k, %q forward %k, %l at %p of %p {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @sum_tokens_c1_empty(%x: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.sum_tokens' op length of the result (0) must divide the columns of x (8)}}
  %0 = stem.sum_tokens %x : tensor<3x8xf32> -> tensor<0xf32>
  return
}

// -----

func.func @attention_vjp_c1(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op head_dim (3) must divide the columns of q (8) and of k (4), both static}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 3 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c2(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x8xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op k and v must have the same shape, got 'tensor<3x4xf32>' and 'tensor<3x8xf32>'}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c3(%q: tensor<3x8xf32>, %k: tensor<3x12xf32>, %v: tensor<3x12xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op the number of query heads (2) must be a multiple of the number of key-value heads (3)}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x12xf32>, tensor<3x12xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c5(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x4xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op cotangent must have the shape of q ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c6(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op window must not be negative, got -1}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64, window = -1 : i64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c7(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x8xf32>, %p: tensor<4xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op rows of a token operand must be the rows of q, which is 3, got 4}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<4xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c7_sequences(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<5xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op rows of a token operand must be the rows of q, which is 3, got 5}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<5xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c7_k(%q: tensor<3x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op rows of a token operand must be the rows of q, which is 3, got 4}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c8(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op dq must have the shape of its value ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c8_dk(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op dk must have the shape of its value ('tensor<3x4xf32>'), got 'tensor<3x8xf32>'}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x4xf32>)
  return
}

// -----

func.func @attention_vjp_c8_dv(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %c: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention_vjp' op dv must have the shape of its value ('tensor<3x4xf32>'), got 'tensor<4x4xf32>'}}
  %0:3 = stem.attention_vjp %q, %k, %v, %c at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<4x4xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c1(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<12x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op gate and up must have the same shape, got 'tensor<16x8xf32>' and 'tensor<12x8xf32>'}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<12x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c1_x(%x: tensor<3x4xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op columns of x must be the inputs of gate, which is 8, got 4}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x4xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c2(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x12xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op inputs of down must be the outputs of gate, which is 16, got 12}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x12xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c2_outputs(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<4x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op outputs of down must be the inputs of gate, which is 8, got 4}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<4x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c3(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %bg: tensor<5xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op length of gate_bias must be as long as its weight has outputs, which is 16, got 5}}
  %0:5 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c, %bg) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<5xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<5xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c3_up(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %bu: tensor<5xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op length of up_bias must be as long as its weight has outputs, which is 16, got 5}}
  %0:5 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c, %bu) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<5xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<5xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c4(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x4xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op cotangent must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x4xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c5(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op dx must have the shape of its value ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<4x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c5_dgate(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op dgate must have the shape of its value ('tensor<16x8xf32>'), got 'tensor<8x16xf32>'}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c5_dup(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op dup must have the shape of its value ('tensor<16x8xf32>'), got 'tensor<8x16xf32>'}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c5_ddown(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op ddown must have the shape of its value ('tensor<8x16xf32>'), got 'tensor<16x8xf32>'}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c5_packed(%x: tensor<3x8xf32>, %g: !stem.packed<8x16xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op rows of dgate must be the outputs of its weight, which is 16, got 8}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, !stem.packed<8x16xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<8x16xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c5_packed_columns(%x: tensor<3x8xf32>, %g: !stem.packed<8x16xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op columns of dgate must be the inputs of its weight, which is 8, got 4}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, !stem.packed<8x16xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x4xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c6(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %bg: tensor<16xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op gate_bias and dgate_bias must come together}}
  %0:4 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c, %bg) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<16xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c6_up(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op up_bias and dup_bias must come together}}
  %0:5 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<16xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c6_shape(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %bg: tensor<16xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op dgate_bias must have the shape of its value ('tensor<16xf32>'), got 'tensor<8xf32>'}}
  %0:5 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c, %bg) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<16xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<8xf32>)
  return
}

// -----

func.func @dense_ffn_vjp_c6_up_shape(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %bu: tensor<16xf32>) {
  // expected-error @+1 {{'stem.dense_ffn_vjp' op dup_bias must have the shape of its value ('tensor<16xf32>'), got 'tensor<8xf32>'}}
  %0:5 = "stem.dense_ffn_vjp"(%x, %g, %u, %d, %c, %bu) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 0, 1>, resultSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1>}> : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<16xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<8xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c1(%x: tensor<3x4xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op columns of x must be the inputs of gate, which is 8, got 4}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x4xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c2(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<4x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op rows of up must be the rows of x, which is 3, got 4}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<4x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c2_columns(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x8xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op columns of up must be the outputs of gate, which is 16, got 8}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x8xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c3(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x12xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op inputs of down must be the outputs of gate, which is 16, got 12}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x12xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c3_outputs(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<4x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op outputs of down must be the inputs of gate, which is 8, got 4}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<4x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c4(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op length of gate_bias must be as long as its weight has outputs, which is 16, got 5}}
  %0:5 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c gate_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<5xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<5xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c4_cotangent(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x4xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op cotangent must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x4xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c5(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op dx must have the shape of its value ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<4x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c5_dgate(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op dgate must have the shape of its value ('tensor<16x8xf32>'), got 'tensor<8x16xf32>'}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<8x16xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c5_dup(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op dup must have the shape of its value ('tensor<3x16xf32>'), got 'tensor<16x8xf32>'}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c5_ddown(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op ddown must have the shape of its value ('tensor<8x16xf32>'), got 'tensor<16x8xf32>'}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<16x8xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c6(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %b: tensor<16xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op gate_bias and dgate_bias must come together}}
  %0:4 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c gate_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<16xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c6_alone(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op gate_bias and dgate_bias must come together}}
  %0:5 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<16xf32>)
  return
}

// -----

func.func @gated_ffn_vjp_c6_shape(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %c: tensor<3x8xf32>, %b: tensor<16xf32>) {
  // expected-error @+1 {{'stem.gated_ffn_vjp' op dgate_bias must have the shape of its value ('tensor<16xf32>'), got 'tensor<8xf32>'}}
  %0:5 = stem.gated_ffn_vjp %x gate %g rows %u down %d cotangent %c gate_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<3x8xf32>, tensor<16xf32>) -> (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<8xf32>)
  return
}

// -----

func.func @cross_entropy_vjp_c1(%x: tensor<3x8xf32>, %h: tensor<32x4xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_vjp' op columns of x must be the inputs of head, which is 4, got 8}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x4xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_vjp_c2(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<4xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_vjp' op length of labels must be the rows of x, which is 3, got 4}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<4xi32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_vjp_c2_cotangent(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<4xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_vjp' op length of cotangent must be the rows of x, which is 3, got 4}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<4xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_vjp_c3(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_vjp' op dx must have the shape of its value ('tensor<3x8xf32>'), got 'tensor<8x3xf32>'}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<8x3xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_vjp_c3_dhead(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_vjp' op dhead must have the shape of its value ('tensor<32x8xf32>'), got 'tensor<8x32xf32>'}}
  %0:2 = stem.cross_entropy_vjp %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<8x32xf32>)
  return
}

// -----

func.func @embedding_vjp_c1(%i: tensor<3xi32>, %c: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.embedding_vjp' op rows of cotangent must be the number of ids, which is 3, got 4}}
  %0 = stem.embedding_vjp %i, %c : (tensor<3xi32>, tensor<4x8xf32>) -> tensor<32x8xf32>
  return
}

// -----

func.func @embedding_vjp_c2(%i: tensor<3xi32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.embedding_vjp' op columns of the result must be the columns of cotangent, which is 8, got 4}}
  %0 = stem.embedding_vjp %i, %c : (tensor<3xi32>, tensor<3x8xf32>) -> tensor<32x4xf32>
  return
}

// -----

func.func @embedding_vjp_c4(%i: tensor<3xi32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.embedding_vjp' op padding_id must be one of the 32 rows, got 32}}
  %0 = stem.embedding_vjp %i, %c {padding_id = 32 : i64} : (tensor<3xi32>, tensor<3x8xf32>) -> tensor<32x8xf32>
  return
}

// -----

func.func @embedding_vjp_c3(%i: tensor<3xi32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.embedding_vjp' op rows of the result must be static, got 'tensor<?x8xf32>'}}
  %0 = stem.embedding_vjp %i, %c : (tensor<3xi32>, tensor<3x8xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @keep_selected_c1(%x: tensor<3x8xf32>, %i: tensor<4xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.keep_selected' op length of ids must be the rows of x, which is 3, got 4}}
  %0 = stem.keep_selected %x ids %i in %s : (tensor<3x8xf32>, tensor<4xi32>, tensor<2xi32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @keep_selected_c2(%x: tensor<3x8xf32>, %i: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.keep_selected' op result must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0 = stem.keep_selected %x ids %i in %s : (tensor<3x8xf32>, tensor<3xi32>, tensor<2xi32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @row_gradient_c1(%i: tensor<3xi32>, %c: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.row_gradient' op rows of cotangent must be the length of index, which is 3, got 4}}
  %0 = stem.row_gradient %i, %c : tensor<3xi32>, tensor<4x8xf32> -> !stem.row_gradient<8xf32>
  return
}

// -----

func.func @row_gradient_c2(%i: tensor<3xi32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.row_gradient' op result must have the columns and element type of cotangent ('tensor<3x8xf32>'), got '!stem.row_gradient<4xf32>'}}
  %0 = stem.row_gradient %i, %c : tensor<3xi32>, tensor<3x8xf32> -> !stem.row_gradient<4xf32>
  return
}

// -----

func.func @row_gradient_c2_type(%i: tensor<3xi32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.row_gradient' op result must have the columns and element type of cotangent ('tensor<3x8xf32>'), got '!stem.row_gradient<8xf64>'}}
  %0 = stem.row_gradient %i, %c : tensor<3xi32>, tensor<3x8xf32> -> !stem.row_gradient<8xf64>
  return
}

// -----

func.func @merge_row_gradients(%a: !stem.row_gradient<8xf32>, %b: !stem.row_gradient<8xf64>) {
  // expected-error @+1 {{'stem.merge_row_gradients' op requires the same type for all operands and results}}
  %0 = "stem.merge_row_gradients"(%a, %b) : (!stem.row_gradient<8xf32>, !stem.row_gradient<8xf64>) -> !stem.row_gradient<8xf32>
  return
}

// -----

func.func @table_gradient_c1(%p: !stem.row_gradient<8xf32>, %i: tensor<3xi32>, %s: tensor<4xi32>) {
  // expected-error @+1 {{'stem.table_gradient' op length of ids must be the length of index, which is 3, got 4}}
  %0:2 = stem.table_gradient %p index %i ids %s : (!stem.row_gradient<8xf32>, tensor<3xi32>, tensor<4xi32>) -> (tensor<?xi32>, tensor<?x8xf32>)
  return
}

// -----

func.func @table_gradient_c2(%p: !stem.row_gradient<8xf32>, %i: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.table_gradient' op rows of rows must be the length of unique, which is 2, got 3}}
  %0:2 = stem.table_gradient %p index %i ids %s : (!stem.row_gradient<8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<2xi32>, tensor<3x8xf32>)
  return
}

// -----

func.func @table_gradient_c3(%p: !stem.row_gradient<8xf32>, %i: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.table_gradient' op rows must have the columns and element type of '!stem.row_gradient<8xf32>', got 'tensor<?x4xf32>'}}
  %0:2 = stem.table_gradient %p index %i ids %s : (!stem.row_gradient<8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<?xi32>, tensor<?x4xf32>)
  return
}

// -----

func.func @table_gradient_c3_type(%p: !stem.row_gradient<8xf32>, %i: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.table_gradient' op rows must have the columns and element type of '!stem.row_gradient<8xf32>', got 'tensor<?x8xbf16>'}}
  %0:2 = stem.table_gradient %p index %i ids %s : (!stem.row_gradient<8xf32>, tensor<3xi32>, tensor<3xi32>) -> (tensor<?xi32>, tensor<?x8xbf16>)
  return
}

// -----

// expected-error @+1 {{columns of a row gradient must be positive, got 0}}
func.func private @row_gradient_type_c1(!stem.row_gradient<0xf32>)

// -----

// expected-error @+1 {{element type of a row gradient must be f32 or f64, got 'bf16'}}
func.func private @row_gradient_type_c2(!stem.row_gradient<8xbf16>)

// -----

// expected-error @+1 {{expected one size and an element type, got 2 sizes}}
func.func private @row_gradient_type_sizes(!stem.row_gradient<8x4xf32>)

// -----

// expected-error @+1 {{expected one size and an element type, got 0 sizes}}
func.func private @row_gradient_type_no_size(!stem.row_gradient<f32>)

// -----

// What is right says nothing.
stem.param @w = "w" : tensor<4xf32> {stem.frozen}
stem.table @t = "t" : !stem.table<4x8xf32> {stem.frozen}
func.func private @attributes(tensor<4xf32>) -> (tensor<4xf32> {stem.gradient_of_argument = 0 : i64}, tensor<4xf32> {stem.gradient_of = @w}, tensor<?xi32> {stem.gradient_ids_of = @t}, tensor<?x8xf32> {stem.gradient_of = @t})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.frozen' means nothing on this op to the stem dialect}}
func.func private @a1_frozen() attributes {stem.frozen}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.gradient_of' means nothing on this op to the stem dialect}}
func.func private @a1_gradient_of() attributes {stem.gradient_of = @w}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.gradient_ids_of' means nothing on an argument to the stem dialect}}
func.func private @a1_argument(tensor<?xi32> {stem.gradient_ids_of = @t})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.frozen' means nothing on a result to the stem dialect}}
func.func private @a1_result() -> (tensor<4xf32> {stem.frozen})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.output' means nothing on a result to the stem dialect}}
func.func private @a1_output() -> (tensor<4xf32> {stem.output})

// -----

// expected-error @+1 {{'stem.param' op attribute 'stem.from' means nothing on this op to the stem dialect}}
stem.param @a1_from = "w" : tensor<4xf32> {stem.from = "v"}

// -----

// expected-error @+1 {{'stem.param' op attribute 'stem.frozen' must be a unit attribute, got true}}
stem.param @a2_frozen = "w" : tensor<4xf32> {stem.frozen = true}

// -----

// expected-error @+1 {{'stem.table' op attribute 'stem.frozen' must be a unit attribute, got 1 : i64}}
stem.table @a2_frozen_table = "t" : !stem.table<4x8xf32> {stem.frozen = 1 : i64}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.gradient_of' must be a symbol, got "w"}}
func.func private @a2_gradient_of() -> (tensor<4xf32> {stem.gradient_of = "w"})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.gradient_ids_of' must be a symbol, got 1 : i64}}
func.func private @a2_gradient_ids_of() -> (tensor<4xi32> {stem.gradient_ids_of = 1 : i64})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.gradient_of_argument' must be an i64 that is not negative, got -1 : i64}}
func.func private @a2_gradient_of_argument() -> (tensor<4xf32> {stem.gradient_of_argument = -1 : i64})
