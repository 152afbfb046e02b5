// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Each numbered constraint of the ops of a training step: the function's name
// says which.

func.func @rms_norm_input_vjp_c1(%x: tensor<3x8xf32>, %w: tensor<3xf32>, %c: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_input_vjp' op length of the weight (3) must divide the columns of x (8), both static}}
  %0 = stem.rms_norm_input_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<3xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @rms_norm_input_vjp_c1_dynamic(%x: tensor<3x?xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'stem.rms_norm_input_vjp' op length of the weight (4) must divide the columns of x (-9223372036854775808), both static}}
  %0 = stem.rms_norm_input_vjp %x, %w, %x {eps = 1.0e-5 : f64} : (tensor<3x?xf32>, tensor<4xf32>, tensor<3x?xf32>) -> tensor<3x?xf32>
  return
}

// -----

func.func @rms_norm_input_vjp_c1_empty(%x: tensor<3x8xf32>, %w: tensor<0xf32>) {
  // expected-error @+1 {{'stem.rms_norm_input_vjp' op length of the weight (0) must divide the columns of x (8), both static}}
  %0 = stem.rms_norm_input_vjp %x, %w, %x {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<0xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @rms_norm_input_vjp_c2(%x: tensor<3x8xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'stem.rms_norm_input_vjp' op eps must be positive, got 0.000000e+00}}
  %0 = stem.rms_norm_input_vjp %x, %w, %x {eps = 0.0 : f64} : (tensor<3x8xf32>, tensor<4xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @rms_norm_input_vjp_c3(%x: tensor<3x8xf32>, %w: tensor<4xf32>, %c: tensor<4x8xf32>) {
  // expected-error @+1 {{'stem.rms_norm_input_vjp' op cotangent must have the shape of x ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0 = stem.rms_norm_input_vjp %x, %w, %c {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @rms_norm_input_vjp_c3_result(%x: tensor<3x8xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'stem.rms_norm_input_vjp' op result must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0 = stem.rms_norm_input_vjp %x, %w, %x {eps = 1.0e-5 : f64} : (tensor<3x8xf32>, tensor<4xf32>, tensor<3x8xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @gate_vjp_c1_up(%g: tensor<3x8xf32>, %o: tensor<3x4xf32>) {
  // expected-error @+1 {{'stem.gate_vjp' op up must have the shape of gate ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:3 = stem.gate_vjp %g, %o, %g : (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>)
  return
}

// -----

func.func @gate_vjp_c1_cotangent(%g: tensor<3x8xf32>, %o: tensor<3x4xf32>) {
  // expected-error @+1 {{'stem.gate_vjp' op cotangent must have the shape of gate ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0:3 = stem.gate_vjp %g, %g, %o : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x4xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>)
  return
}

// -----

func.func @gate_vjp_c1_dgate(%g: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gate_vjp' op dgate must have the shape of gate ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:3 = stem.gate_vjp %g, %g, %g : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>) -> (tensor<4x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>)
  return
}

// -----

func.func @gate_vjp_c1_dup(%g: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gate_vjp' op dup must have the shape of gate ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:3 = stem.gate_vjp %g, %g, %g : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<4x8xf32>, tensor<3x8xf32>)
  return
}

// -----

func.func @gate_vjp_c1_product(%g: tensor<3x8xf32>) {
  // expected-error @+1 {{'stem.gate_vjp' op product must have the shape of gate ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:3 = stem.gate_vjp %g, %g, %g : (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>, tensor<4x8xf32>)
  return
}

// -----

func.func @sum_rows_c1(%x: tensor<3x8xf32>, %i: tensor<4xi32>) {
  // expected-error @+1 {{'stem.sum_rows' op rows of x must be the length of index, which is 4, got 3}}
  %0 = stem.sum_rows %x by %i : (tensor<4xi32>, tensor<3x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @sum_rows_c2(%x: tensor<3x8xf32>, %i: tensor<3xi32>) {
  // expected-error @+1 {{'stem.sum_rows' op columns of the result must be the columns of x, which is 8, got 4}}
  %0 = stem.sum_rows %x by %i : (tensor<3xi32>, tensor<3x8xf32>) -> tensor<5x4xf32>
  return
}

// -----

func.func @sum_rows_c3(%x: tensor<3x8xf32>, %i: tensor<3xi32>, %y: tensor<6x8xf32>) {
  // expected-error @+1 {{'stem.sum_rows' op initial must have the type of the result, 'tensor<5x8xf32>', got 'tensor<6x8xf32>'}}
  %0 = stem.sum_rows %x by %i onto %y : (tensor<3xi32>, tensor<3x8xf32>, tensor<6x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @sum_rows_c4(%x: tensor<3x8xf32>, %i: tensor<3xi32>) {
  // expected-error @+1 {{'stem.sum_rows' op padding_id must be one of the 5 rows, got 5}}
  %0 = stem.sum_rows %x by %i {padding_id = 5 : i64} : (tensor<3xi32>, tensor<3x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @cross_entropy_step_c1(%x: tensor<3x4xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op columns of x must be the inputs of head, which is 8, got 4}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<3x4xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3x4xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_step_c2_labels(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<4xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op length of labels must be the rows of x, which is 3, got 4}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<4xi32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_step_c2_cotangent(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<4xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op length of cotangent must be the rows of x, which is 3, got 4}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<4xf32>) -> (tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_step_c2_nll(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op length of nll must be the rows of x, which is 3, got 4}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<4xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_step_c3_dx(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op dx must have the shape of x ('tensor<3x8xf32>'), got 'tensor<4x8xf32>'}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<4x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_step_c3_dhead(%x: tensor<3x8xf32>, %h: !stem.packed<8x32xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op rows of dhead must be the outputs of head, which is 32, got 8}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<3x8xf32>, !stem.packed<8x32xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3x8xf32>, tensor<8x32xf32>)
  return
}

// -----

func.func @cross_entropy_step_c3_dhead_columns(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op columns of dhead must be the inputs of head, which is 8, got 9}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3x8xf32>, tensor<32x9xf32>)
  return
}

// -----

func.func @cross_entropy_step_c4_inputs(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op inputs of transposed must be the outputs of head, which is 32, got 8}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c transposed %h : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>, tensor<32x8xf32>) -> (tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @cross_entropy_step_c4_outputs(%x: tensor<3x8xf32>, %h: tensor<32x8xf32>, %l: tensor<3xi32>, %c: tensor<3xf32>, %t: !stem.packed<32x9xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op outputs of transposed must be the inputs of head, which is 8, got 9}}
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c transposed %t : (tensor<3x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<3xf32>, !stem.packed<32x9xf32>) -> (tensor<3xf32>, tensor<3x8xf32>, tensor<32x8xf32>)
  return
}

// -----

func.func @pack_tokens_c1(%x: tensor<?x40xf32>, %p: tensor<1x4096xbf16>) {
  // expected-error @+1 {{'stem.pack_tokens' op operands must have the same element type, got 'f32' and 'bf16'}}
  %0 = stem.pack_tokens %x into %p : (tensor<?x40xf32>, tensor<1x4096xbf16>) -> tensor<1x4096xbf16>
  return
}

// -----

func.func @pack_tokens_c2(%x: tensor<?x65xf32>, %p: tensor<1x4096xf32>) {
  // expected-error @+1 {{'stem.pack_tokens' op a panel has 64 columns, x has 65}}
  %0 = stem.pack_tokens %x into %p : (tensor<?x65xf32>, tensor<1x4096xf32>) -> tensor<1x4096xf32>
  return
}

// -----

func.func @pack_tokens_c3(%x: memref<?x40xf32>, %p: tensor<1x4096xf32>) {
  // expected-error @+1 {{'stem.pack_tokens' op must have one result of the type of panel on tensors and none on buffers}}
  %0 = stem.pack_tokens %x into %p : (memref<?x40xf32>, tensor<1x4096xf32>) -> tensor<1x4096xf32>
  return
}

// -----

func.func @pack_tokens_c3_result(%x: tensor<?x40xf32>, %p: tensor<1x4096xf32>) {
  // expected-error @+1 {{'stem.pack_tokens' op must have one result of the type of panel on tensors and none on buffers}}
  stem.pack_tokens %x into %p : (tensor<?x40xf32>, tensor<1x4096xf32>) -> ()
  return
}

// -----

func.func @transpose_tokens_c1(%x: tensor<?x40xf32>, %o: tensor<40x?xbf16>) {
  // expected-error @+1 {{'stem.transpose_tokens' op operands must have the same element type, got 'f32' and 'bf16'}}
  %0 = stem.transpose_tokens %x into %o : (tensor<?x40xf32>, tensor<40x?xbf16>) -> tensor<40x?xbf16>
  return
}

// -----

func.func @transpose_tokens_c2(%x: memref<?x40xf32>, %o: memref<40x?xf32>) {
  // expected-error @+1 {{'stem.transpose_tokens' op must have one result of the type of out on tensors and none on buffers}}
  %0 = stem.transpose_tokens %x into %o : (memref<?x40xf32>, memref<40x?xf32>) -> tensor<40x?xf32>
  return
}

// -----

func.func @panel_matmul_c1(%a: tensor<39x?xf32>, %b: tensor<2x4096xf32>, %y: tensor<40x100xf32>, %t: i1) {
  // expected-error @+1 {{'stem.panel_matmul' op rows of acc must be the rows of a, which is 39, got 40}}
  %0 = stem.panel_matmul %a, %b into %y accumulate %t {depth = 64 : i64} : (tensor<39x?xf32>, tensor<2x4096xf32>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  return
}

// -----

func.func @panel_matmul_c2(%a: tensor<40x?xbf16>, %b: tensor<2x4096xf32>, %y: tensor<40x100xf32>, %t: i1) {
  // expected-error @+1 {{'stem.panel_matmul' op operands must have the same element type, got 'bf16' and 'f32'}}
  %0 = stem.panel_matmul %a, %b into %y accumulate %t {depth = 64 : i64} : (tensor<40x?xbf16>, tensor<2x4096xf32>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  return
}

// -----

func.func @panel_matmul_c3(%a: tensor<40x?xf32>, %b: tensor<2x4096xf32>, %y: tensor<40x100xf32>, %t: i1) {
  // expected-error @+1 {{'stem.panel_matmul' op must have one result of the type of acc on tensors and none on buffers}}
  %0 = stem.panel_matmul %a, %b into %y accumulate %t {depth = 64 : i64} : (tensor<40x?xf32>, tensor<2x4096xf32>, tensor<40x100xf32>, i1) -> tensor<40x99xf32>
  return
}

// -----

func.func @panel_matmul_c4_depth(%a: tensor<40x?xf32>, %b: tensor<2x4096xf32>, %y: tensor<40x100xf32>, %t: i1) {
  // expected-error @+1 {{'stem.panel_matmul' op depth must be positive and even, got 63}}
  %0 = stem.panel_matmul %a, %b into %y accumulate %t {depth = 63 : i64} : (tensor<40x?xf32>, tensor<2x4096xf32>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  return
}

// -----

func.func @panel_matmul_c4_no_depth(%a: tensor<40x?xf32>, %b: tensor<2x4096xf32>, %y: tensor<40x100xf32>, %t: i1) {
  // expected-error @+1 {{'stem.panel_matmul' op depth must be positive and even, got 0}}
  %0 = stem.panel_matmul %a, %b into %y accumulate %t {depth = 0 : i64} : (tensor<40x?xf32>, tensor<2x4096xf32>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  return
}

// -----

func.func @panel_matmul_c4_panel(%a: tensor<40x?xf32>, %b: tensor<2x4096xf32>, %y: tensor<40x100xf32>, %t: i1) {
  // expected-error @+1 {{'stem.panel_matmul' op columns of b must be the size of a panel, which is 2048, got 4096}}
  %0 = stem.panel_matmul %a, %b into %y accumulate %t {depth = 32 : i64} : (tensor<40x?xf32>, tensor<2x4096xf32>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  return
}

// -----

func.func @panel_matmul_c4_panels(%a: tensor<40x?xf32>, %b: tensor<1x4096xf32>, %y: tensor<40x100xf32>, %t: i1) {
  // expected-error @+1 {{'stem.panel_matmul' op rows of b must be the panels of acc, which is 2, got 1}}
  %0 = stem.panel_matmul %a, %b into %y accumulate %t {depth = 64 : i64} : (tensor<40x?xf32>, tensor<1x4096xf32>, tensor<40x100xf32>, i1) -> tensor<40x100xf32>
  return
}
