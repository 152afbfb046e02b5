// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Each constraint of the transformer ops: the function's name says which.

func.func @embedding_c1(%ids: tensor<4xi32>, %w: tensor<32x8xf32>) {
  // expected-error @+1 {{'stem.embedding' op rows of the result must be the number of ids, which is 4, got 5}}
  %0 = stem.embedding %ids, %w : tensor<4xi32>, tensor<32x8xf32> -> tensor<5x8xf32>
  return
}

// -----

func.func @embedding_c2(%ids: tensor<4xi32>, %w: tensor<32x8xf32>) {
  // expected-error @+1 {{'stem.embedding' op columns of the result must be the columns of the weight, which is 8, got 9}}
  %0 = stem.embedding %ids, %w : tensor<4xi32>, tensor<32x8xf32> -> tensor<4x9xf32>
  return
}

// -----

func.func @embedding_c3(%ids: tensor<4xi32>, %w: tensor<32x8xf32>) {
  // expected-error @+1 {{'stem.embedding' op padding_id must be one of the 32 rows, got -1}}
  %0 = stem.embedding %ids, %w {padding_id = -1 : i64} : tensor<4xi32>, tensor<32x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @silu_c1(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.silu' op result must have the shape of x ('tensor<4x8xf32>'), got 'tensor<4x9xf32>'}}
  %0 = stem.silu %x : tensor<4x8xf32> -> tensor<4x9xf32>
  return
}

// -----

func.func @rms_norm_c1(%x: tensor<4x8xf32>, %w: tensor<3xf32>) {
  // expected-error @+1 {{'stem.rms_norm' op length of the weight (3) must divide the columns of x (8), both static}}
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<4x8xf32>, tensor<3xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @rms_norm_c2(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'stem.rms_norm' op eps must be positive, got 0.000000e+00}}
  %0 = stem.rms_norm %x, %w {eps = 0.0 : f64} : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @rms_norm_c3(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'stem.rms_norm' op result must have the shape of x ('tensor<4x8xf32>'), got 'tensor<5x8xf32>'}}
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<4x8xf32>, tensor<8xf32> -> tensor<5x8xf32>
  return
}

// -----

func.func @linear_c1(%x: tensor<4x8xf32>, %w: tensor<16x9xf32>) {
  // expected-error @+1 {{'stem.linear' op columns of x must be the inputs of the weight, which is 9, got 8}}
  %0 = stem.linear %x, %w : tensor<4x8xf32>, tensor<16x9xf32> -> tensor<4x16xf32>
  return
}

// -----

func.func @linear_c2(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>) {
  // expected-error @+1 {{'stem.linear' op columns of the result must be the outputs of the weight, which is 16, got 8}}
  %0 = stem.linear %x, %w : tensor<4x8xf32>, tensor<16x8xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @linear_c2_rows(%x: tensor<4x8xf32>, %w: !stem.packed<8x16xf32>) {
  // expected-error @+1 {{'stem.linear' op rows of the result must be the rows of x, which is 4, got 5}}
  %0 = stem.linear %x, %w : tensor<4x8xf32>, !stem.packed<8x16xf32> -> tensor<5x16xf32>
  return
}

// -----

func.func @linear_c3(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{'stem.linear' op length of the bias must be as long as its weight has outputs, which is 16, got 8}}
  %0 = stem.linear %x, %w bias %b : tensor<4x8xf32>, tensor<16x8xf32>, tensor<8xf32> -> tensor<4x16xf32>
  return
}

// -----

func.func @rotary_angles_c1(%p: tensor<4xi32>) {
  // expected-error @+1 {{'stem.rotary_angles' op inv_freq must not be empty}}
  %c, %s = stem.rotary_angles %p {inv_freq = array<f32>} : tensor<4xi32> -> tensor<4x0xf32>, tensor<4x0xf32>
  return
}

// -----

func.func @rotary_angles_c1_positive(%p: tensor<4xi32>) {
  // expected-error @+1 {{'stem.rotary_angles' op inv_freq must be positive, got -5.000000e-01}}
  %c, %s = stem.rotary_angles %p {inv_freq = array<f32: 1.0, -0.5>} : tensor<4xi32> -> tensor<4x2xf32>, tensor<4x2xf32>
  return
}

// -----

func.func @rotary_angles_c2(%p: tensor<4xi32>) {
  // expected-error @+1 {{'stem.rotary_angles' op columns of a result must be the length of inv_freq, which is 2, got 3}}
  %c, %s = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.5>} : tensor<4xi32> -> tensor<4x2xf32>, tensor<4x3xf32>
  return
}

// -----

func.func @rotary_angles_c2_rows(%p: tensor<4xi32>) {
  // expected-error @+1 {{'stem.rotary_angles' op rows of a result must be the number of positions, which is 4, got 5}}
  %c, %s = stem.rotary_angles %p {inv_freq = array<f32: 1.0, 0.5>} : tensor<4xi32> -> tensor<5x2xf32>, tensor<4x2xf32>
  return
}

// -----

func.func @rope_c1(%x: tensor<4x8xf32>, %c: tensor<4x2xf32>, %s: tensor<4x4xf32>) {
  // expected-error @+1 {{'stem.rope' op cos and sin must have the same shape, got 'tensor<4x2xf32>' and 'tensor<4x4xf32>'}}
  %0 = stem.rope %x, %c, %s : tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x4xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @rope_c1_rows(%x: tensor<4x8xf32>, %c: tensor<5x2xf32>, %s: tensor<5x2xf32>) {
  // expected-error @+1 {{'stem.rope' op rows of cos and sin must be the rows of x, which is 4, got 5}}
  %0 = stem.rope %x, %c, %s : tensor<4x8xf32>, tensor<5x2xf32>, tensor<5x2xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @rope_c2(%x: tensor<4x8xf32>, %c: tensor<4x3xf32>, %s: tensor<4x3xf32>) {
  // expected-error @+1 {{'stem.rope' op head_dim (twice the columns of cos, 3) must divide the columns of x (8), both static}}
  %0 = stem.rope %x, %c, %s : tensor<4x8xf32>, tensor<4x3xf32>, tensor<4x3xf32> -> tensor<4x8xf32>
  return
}

// -----

func.func @rope_c3(%x: tensor<4x8xf32>, %c: tensor<4x2xf32>, %s: tensor<4x2xf32>) {
  // expected-error @+1 {{'stem.rope' op result must have the shape of x ('tensor<4x8xf32>'), got 'tensor<4x4xf32>'}}
  %0 = stem.rope %x, %c, %s : tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x2xf32> -> tensor<4x4xf32>
  return
}

// -----

func.func @attention_c1(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention' op head_dim (3) must divide the columns of q (8) and of k (4), both static}}
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 3 : i64, scale = 0.5 : f64} : tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x8xf32>
  return
}

// -----

func.func @attention_c2(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention' op k and v must have the same shape, got 'tensor<3x4xf32>' and 'tensor<3x8xf32>'}}
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x8xf32>
  return
}

// -----

func.func @attention_c3(%q: tensor<3x12xf32>, %k: tensor<3x8xf32>, %v: tensor<3x8xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention' op the number of query heads (3) must be a multiple of the number of key-value heads (2)}}
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x12xf32>, tensor<3x8xf32>, tensor<3x8xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x12xf32>
  return
}

// -----

func.func @attention_c4(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %p: tensor<3xi32>, %c: !stem.kv_cache) {
  // expected-error @+1 {{'stem.attention' op cache and layer must come together}}
  %0 = "stem.attention"(%q, %k, %k, %p, %p, %c) <{head_dim = 4 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>, scale = 0.5 : f64}> : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32>, !stem.kv_cache) -> tensor<3x8xf32>
  return
}

// -----

func.func @attention_c5(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention' op result must have the shape of q ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x4xf32>
  return
}

// -----

func.func @attention_c6(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %p: tensor<3xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention' op window must not be negative, got -1}}
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64, window = -1 : i64} : tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x8xf32>
  return
}

// -----

func.func @attention_c7(%q: tensor<3x8xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %p: tensor<2xi32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'stem.attention' op rows of a token operand must be the rows of q, which is 3, got 2}}
  %0 = stem.attention %q, %k, %v at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<2xi32>, tensor<3xi32> -> tensor<3x8xf32>
  return
}

// -----

func.func @dense_ffn_c1(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<8x8xf32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op gate and up must have the same shape, got 'tensor<16x8xf32>' and 'tensor<8x8xf32>'}}
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @dense_ffn_c1_columns(%x: tensor<3x4xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op columns of x must be the inputs of gate, which is 8, got 4}}
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<3x4xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @dense_ffn_c2(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x8xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op inputs of down must be the outputs of gate, which is 16, got 8}}
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @dense_ffn_c2_outputs(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<4x16xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op outputs of down must be the inputs of gate, which is 8, got 4}}
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<4x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @dense_ffn_c3_gate_bias(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op length of gate_bias must be as long as its weight has outputs, which is 16, got 5}}
  %0 = stem.dense_ffn %x gate %g up %u down %d gate_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<5xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @dense_ffn_c3_up_bias(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op length of up_bias must be as long as its weight has outputs, which is 16, got 5}}
  %0 = stem.dense_ffn %x gate %g up %u down %d up_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<5xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @dense_ffn_c3_down_bias(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op length of down_bias must be as long as its weight has outputs, which is 8, got 5}}
  %0 = stem.dense_ffn %x gate %g up %u down %d down_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>, tensor<5xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @dense_ffn_c4(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<16x8xf32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.dense_ffn' op result must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0 = stem.dense_ffn %x gate %g up %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x16xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @cross_entropy_c1(%x: tensor<3x8xf32>, %h: tensor<32x4xf32>, %l: tensor<3xi32>) {
  // expected-error @+1 {{'stem.cross_entropy' op columns of x must be the inputs of head, which is 4, got 8}}
  %0 = stem.cross_entropy %x, %h, %l : tensor<3x8xf32>, tensor<32x4xf32>, tensor<3xi32> -> tensor<3xf32>
  return
}

// -----

func.func @cross_entropy_c2(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<4xi32>) {
  // expected-error @+1 {{'stem.cross_entropy' op length of labels must be the rows of x, which is 3, got 4}}
  %0 = stem.cross_entropy %x, %h, %l : tensor<3x8xf32>, tensor<32x8xf32>, tensor<4xi32> -> tensor<3xf32>
  return
}

// -----

func.func @cross_entropy_c2_result(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>) {
  // expected-error @+1 {{'stem.cross_entropy' op length of the result must be the rows of x, which is 3, got 4}}
  %0 = stem.cross_entropy %x, %h, %l : tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32> -> tensor<4xf32>
  return
}
