// RUN: stem-opt %s -split-input-file -verify-diagnostics

// One case for each numbered constraint of stem.distillation, its VJP and its
// step.

func.func @distillation_c1(%x: tensor<3x8xf32>, %h: tensor<32x9xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>) {
  // expected-error @+1 {{'stem.distillation' op columns of x must be the inputs of head, which is 9, got 8}}
  %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<3x8xf32>, tensor<32x9xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @distillation_c2(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x5xf32>) {
  // expected-error @+1 {{'stem.distillation' op columns of teacher must be the inputs of teacher_head, which is 5, got 4}}
  %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x5xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @distillation_c3_teacher(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<2x4xf32>, %g: tensor<32x4xf32>) {
  // expected-error @+1 {{'stem.distillation' op rows of teacher must be the rows of x, which is 3, got 2}}
  %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<2x4xf32>, tensor<32x4xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @distillation_c3_labels(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<4xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>) {
  // expected-error @+1 {{'stem.distillation' op length of labels must be the rows of x, which is 3, got 4}}
  %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<4xi32>, tensor<3x4xf32>, tensor<32x4xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @distillation_c3_nll(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>) {
  // expected-error @+1 {{'stem.distillation' op length of nll must be the rows of x, which is 3, got 4}}
  %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>) -> (tensor<4xf32>, tensor<3xf32>)
  return
}

// -----

func.func @distillation_c3_kl(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>) {
  // expected-error @+1 {{'stem.distillation' op length of kl must be the rows of x, which is 3, got 4}}
  %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>) -> (tensor<3xf32>, tensor<4xf32>)
  return
}

// -----

func.func @distillation_c4(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<33x4xf32>) {
  // expected-error @+1 {{'stem.distillation' op outputs of teacher_head must be the outputs of head, which is 32, got 33}}
  %0:2 = stem.distillation %x, %h, %l from %y, %g : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<33x4xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @distillation_vjp_c1(%x: tensor<3x8xf32>, %h: tensor<32x9xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op columns of x must be the inputs of head, which is 9, got 8}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x9xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c2(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x5xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op columns of teacher must be the inputs of teacher_head, which is 5, got 4}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x5xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c3_teacher(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<2x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op rows of teacher must be the rows of x, which is 3, got 2}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<2x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c3_labels(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<4xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op length of labels must be the rows of x, which is 3, got 4}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<4xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c3_nll_cotangent(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<4xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op length of nll_cotangent must be the rows of x, which is 3, got 4}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<4xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c3_kl_cotangent(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<4xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op length of kl_cotangent must be the rows of x, which is 3, got 4}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<4xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c4(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<33x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op outputs of teacher_head must be the outputs of head, which is 32, got 33}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<33x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c5_dx(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op dx must have the shape of x ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c5_dhead(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op rows of dhead must be the outputs of head, which is 32, got 8}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<8x8xf32>)
  return
}

// -----

func.func @distillation_vjp_c5_dhead_columns(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_vjp' op columns of dhead must be the inputs of head, which is 8, got 9}}
  %0:2 = stem.distillation_vjp %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x8xf32>, tensor<32x9xf32>)
  return
}

// -----

func.func @distillation_step_c1(%x: tensor<3x8xf32>, %h: tensor<32x9xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op columns of x must be the inputs of head, which is 9, got 8}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x9xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c2(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x5xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op columns of teacher must be the inputs of teacher_head, which is 5, got 4}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x5xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c3_teacher(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<2x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op rows of teacher must be the rows of x, which is 3, got 2}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<2x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c3_labels(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<4xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op length of labels must be the rows of x, which is 3, got 4}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<4xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c3_nll(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op length of nll must be the rows of x, which is 3, got 4}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c3_kl(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op length of kl must be the rows of x, which is 3, got 4}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<4xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c3_nll_cotangent(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<4xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op length of nll_cotangent must be the rows of x, which is 3, got 4}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<4xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c3_kl_cotangent(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<4xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op length of kl_cotangent must be the rows of x, which is 3, got 4}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<4xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c4(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<33x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op outputs of teacher_head must be the outputs of head, which is 32, got 33}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<33x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c5_dx(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op dx must have the shape of x ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<4x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c5_dhead(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op rows of dhead must be the outputs of head, which is 32, got 8}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<8x8xf32>)
  return
}

// -----

func.func @distillation_step_c5_dhead_columns(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op columns of dhead must be the inputs of head, which is 8, got 9}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x9xf32>)
  return
}

// -----

func.func @distillation_step_c6_inputs(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>, %t: tensor<32x8xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op inputs of transposed must be the outputs of head, which is 32, got 8}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d transposed %t : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<32x8xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @distillation_step_c6_outputs(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %y: tensor<3x4xf32>, %g: tensor<32x4xf32>, %c: tensor<3xf32>, %d: tensor<3xf32>, %t: tensor<9x32xf32>) {
  // expected-error @+1 {{'stem.distillation_step' op outputs of transposed must be the inputs of head, which is 8, got 9}}
  %0:4 = stem.distillation_step %x, %h, %l from %y, %g by %c, %d transposed %t : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3x4xf32>, tensor<32x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<9x32xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}
