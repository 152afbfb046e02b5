// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Each constraint of the table ops: the function's name says which.

func.func @table_rows_c1(%t: !stem.table<32x16xbf16>, %ids: tensor<3xi32>) {
  // expected-error @+1 {{'stem.table_rows' op columns of rows must be the columns of the table, which is 16, got 8}}
  %rows, %index = stem.table_rows %t, %ids : !stem.table<32x16xbf16>, tensor<3xi32> -> tensor<?x8xbf16>, tensor<3xi32>
  return
}

// -----

func.func @table_rows_c1_element(%t: !stem.table<32x16xbf16>, %ids: tensor<3xi32>) {
  // expected-error @+1 {{'stem.table_rows' op rows must have the element type of the table, 'bf16', got 'f32'}}
  %rows, %index = stem.table_rows %t, %ids : !stem.table<32x16xbf16>, tensor<3xi32> -> tensor<?x16xf32>, tensor<3xi32>
  return
}

// -----

func.func @table_rows_c2(%t: !stem.table<32x16xbf16>, %ids: tensor<3xi32>) {
  // expected-error @+1 {{'stem.table_rows' op length of index must be the number of ids, which is 3, got 4}}
  %rows, %index = stem.table_rows %t, %ids : !stem.table<32x16xbf16>, tensor<3xi32> -> tensor<?x16xbf16>, tensor<4xi32>
  return
}

// -----

func.func @prefetch_c1(%t: !stem.table<32x16xbf16>, %p: !stem.row_plan) {
  // expected-error @+1 {{'stem.prefetch' op the ticket must have the columns and the element type of the table, 16 x 'bf16', got 8 x 'bf16'}}
  %k = stem.prefetch %t, %p : !stem.table<32x16xbf16> -> !stem.ticket<8xbf16>
  return
}

// -----

func.func @prefetch_c1_element(%t: !stem.table<32x16xbf16>, %p: !stem.row_plan) {
  // expected-error @+1 {{the table, 16 x 'bf16', got 16 x 'f16'}}
  %k = stem.prefetch %t, %p : !stem.table<32x16xbf16> -> !stem.ticket<16xf16>
  return
}

// -----

func.func @await_c1(%k: !stem.ticket<16xbf16>) {
  // expected-error @+1 {{'stem.await' op columns of rows must be the columns of the ticket, which is 16, got 8}}
  %rows, %index = stem.await %k : !stem.ticket<16xbf16> -> tensor<?x8xbf16>, tensor<?xi32>
  return
}

// -----

func.func @await_c1_element(%k: !stem.ticket<16xbf16>) {
  // expected-error @+1 {{'stem.await' op rows must have the element type of the ticket, 'bf16', got 'f32'}}
  %rows, %index = stem.await %k : !stem.ticket<16xbf16> -> memref<?x16xf32>, memref<?xi32>
  return
}

// -----

// expected-error @+1 {{columns of a ticket must be positive, got 0}}
func.func private @ticket_type_c1(!stem.ticket<0xf32>)

// -----

// expected-error @+1 {{element type of a ticket must be f32, bf16 or f16, got 'f64'}}
func.func private @ticket_type_c2(!stem.ticket<4xf64>)

// -----

// expected-error @+1 {{expected one size and an element type, got 2 sizes}}
func.func private @ticket_type_sizes(!stem.ticket<4x4xf32>)

// -----

func.func @lookup_c1(%r: tensor<32x16xf32>, %i: tensor<3xi32>) {
  // expected-error @+1 {{'stem.lookup' op rows of the result must be the length of index, which is 3, got 4}}
  %0 = stem.lookup %r, %i : tensor<32x16xf32>, tensor<3xi32> -> tensor<4x16xf32>
  return
}

// -----

func.func @lookup_c2(%r: tensor<32x16xf32>, %i: tensor<3xi32>) {
  // expected-error @+1 {{'stem.lookup' op columns of the result must be the columns of rows, which is 16, got 8}}
  %0 = stem.lookup %r, %i : tensor<32x16xf32>, tensor<3xi32> -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c1(%x: tensor<3x8xf32>, %g: tensor<16x4xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op columns of x must be the inputs of gate, which is 4, got 8}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<3x8xf32>, tensor<16x4xf32>, tensor<3x16xf32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c2(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<4x16xf32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op rows of up must be the rows of x, which is 3, got 4}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<4x16xf32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c2_columns(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x8xf32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op columns of up must be the outputs of gate, which is 16, got 8}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x8xf32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c3(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x8xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op inputs of down must be the outputs of gate, which is 16, got 8}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c3_outputs(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<4x16xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op outputs of down must be the inputs of gate, which is 8, got 4}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<4x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c4(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op length of gate_bias must be as long as its weight has outputs, which is 16, got 5}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d gate_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<5xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c4_down(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op length of down_bias must be as long as its weight has outputs, which is 8, got 5}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d down_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>, tensor<5xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gated_ffn_c5(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %u: tensor<3x16xf32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.gated_ffn' op result must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0 = stem.gated_ffn %x gate %g rows %u down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<3x16xf32>, tensor<8x16xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @fused_ffn_c1(%x: tensor<3x8xf32>, %g: tensor<16x4xf32>, %r: tensor<32x16xf32>, %i: tensor<3xi32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op columns of x must be the inputs of gate, which is 4, got 8}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d : (tensor<3x8xf32>, tensor<16x4xf32>, tensor<32x16xf32>, tensor<3xi32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @fused_ffn_c2(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %r: tensor<32x8xf32>, %i: tensor<3xi32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op columns of rows must be the outputs of gate, which is 16, got 8}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<32x8xf32>, tensor<3xi32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @fused_ffn_c3(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %r: tensor<32x16xf32>, %i: tensor<4xi32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op length of index must be the rows of x, which is 3, got 4}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<32x16xf32>, tensor<4xi32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @fused_ffn_c4(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %r: tensor<32x16xf32>, %i: tensor<3xi32>, %d: tensor<8x8xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op inputs of down must be the outputs of gate, which is 16, got 8}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<32x16xf32>, tensor<3xi32>, tensor<8x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @fused_ffn_c4_outputs(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %r: tensor<32x16xf32>, %i: tensor<3xi32>, %d: tensor<4x16xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op outputs of down must be the inputs of gate, which is 8, got 4}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<32x16xf32>, tensor<3xi32>, tensor<4x16xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @fused_ffn_c5(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %r: tensor<32x16xf32>, %i: tensor<3xi32>, %d: tensor<8x16xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op length of gate_bias must be as long as its weight has outputs, which is 16, got 5}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d gate_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<32x16xf32>, tensor<3xi32>, tensor<8x16xf32>, tensor<5xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @fused_ffn_c5_down(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %r: tensor<32x16xf32>, %i: tensor<3xi32>, %d: tensor<8x16xf32>, %b: tensor<5xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op length of down_bias must be as long as its weight has outputs, which is 8, got 5}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d down_bias %b : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<32x16xf32>, tensor<3xi32>, tensor<8x16xf32>, tensor<5xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @fused_ffn_c6(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %r: tensor<32x16xf32>, %i: tensor<3xi32>, %d: tensor<8x16xf32>) {
  // expected-error @+1 {{'stem.fused_ffn' op result must have the shape of x ('tensor<3x8xf32>'), got 'tensor<3x4xf32>'}}
  %0 = stem.fused_ffn %x gate %g rows %r[%i] down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<32x16xf32>, tensor<3xi32>, tensor<8x16xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @map_ids_c1(%i: tensor<3xi32>, %m: tensor<9xi32>) {
  // expected-error @+1 {{'stem.map_ids' op length of the result must be the number of ids, which is 3, got 4}}
  %0 = stem.map_ids %i, %m {unknown = 0 : i32} : tensor<3xi32>, tensor<9xi32> -> tensor<4xi32>
  return
}

// -----

func.func @map_ids_c2(%i: tensor<3xi32>, %m: tensor<9xi32>) {
  // expected-error @+1 {{'stem.map_ids' op unknown must not be negative, got -1}}
  %0 = stem.map_ids %i, %m {unknown = -1 : i32} : tensor<3xi32>, tensor<9xi32> -> tensor<3xi32>
  return
}

// -----

func.func @map_ids_c3(%i: tensor<3xi32>, %m: tensor<0xi32>) {
  // expected-error @+1 {{'stem.map_ids' op map must not be empty}}
  %0 = stem.map_ids %i, %m {unknown = 0 : i32} : tensor<3xi32>, tensor<0xi32> -> tensor<3xi32>
  return
}

// -----

func.func @mix_c1(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %a: tensor<16x2xf32>, %b: tensor<2x4xf32>) {
  // expected-error @+1 {{'stem.mix' op inputs of b must be the columns of x, which is 8, got 4}}
  %0 = stem.mix %u, %x a %a b %b : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<16x2xf32>, tensor<2x4xf32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @mix_c2(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %a: tensor<16x3xf32>, %b: tensor<2x8xf32>) {
  // expected-error @+1 {{'stem.mix' op inputs of a must be the outputs of b, which is 2, got 3}}
  %0 = stem.mix %u, %x a %a b %b : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<16x3xf32>, tensor<2x8xf32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @mix_c3(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %a: tensor<8x2xf32>, %b: tensor<2x8xf32>) {
  // expected-error @+1 {{'stem.mix' op outputs of a must be the columns of up, which is 16, got 8}}
  %0 = stem.mix %u, %x a %a b %b : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<8x2xf32>, tensor<2x8xf32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @mix_c4(%u: tensor<3x16xf32>, %x: tensor<4x8xf32>, %a: tensor<16x2xf32>, %b: tensor<2x8xf32>) {
  // expected-error @+1 {{'stem.mix' op rows of x must be the rows of up, which is 3, got 4}}
  %0 = stem.mix %u, %x a %a b %b : (tensor<3x16xf32>, tensor<4x8xf32>, tensor<16x2xf32>, tensor<2x8xf32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @mix_c5(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %a: tensor<16x2xf32>, %b: tensor<2x8xf32>) {
  // expected-error @+1 {{'stem.mix' op result must have the shape of up ('tensor<3x16xf32>'), got 'tensor<3x8xf32>'}}
  %0 = stem.mix %u, %x a %a b %b : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<16x2xf32>, tensor<2x8xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @select_up_c1(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %w: tensor<16x4xf32>, %i: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.select_up' op columns of x must be the inputs of the weight, which is 4, got 8}}
  %0 = stem.select_up %u, %x weight %w ids %i in %s : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<16x4xf32>, tensor<3xi32>, tensor<2xi32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @select_up_c2(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %w: tensor<8x8xf32>, %i: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.select_up' op outputs of the weight must be the columns of up, which is 16, got 8}}
  %0 = stem.select_up %u, %x weight %w ids %i in %s : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<8x8xf32>, tensor<3xi32>, tensor<2xi32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @select_up_c3(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %w: tensor<16x8xf32>, %i: tensor<4xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.select_up' op length of ids must be the rows of up, which is 3, got 4}}
  %0 = stem.select_up %u, %x weight %w ids %i in %s : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<2xi32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @select_up_c4(%u: tensor<3x16xf32>, %x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %i: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.select_up' op rows of x must be the rows of up, which is 3, got 4}}
  %0 = stem.select_up %u, %x weight %w ids %i in %s : (tensor<3x16xf32>, tensor<4x8xf32>, tensor<16x8xf32>, tensor<3xi32>, tensor<2xi32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @select_up_c5(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %w: tensor<16x8xf32>, %i: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.select_up' op result must have the shape of up ('tensor<3x16xf32>'), got 'tensor<3x8xf32>'}}
  %0 = stem.select_up %u, %x weight %w ids %i in %s : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<16x8xf32>, tensor<3xi32>, tensor<2xi32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @select_up_c6(%u: tensor<3x16xf32>, %x: tensor<3x8xf32>, %w: tensor<16x8xf32>, %b: tensor<8xf32>, %i: tensor<3xi32>, %s: tensor<2xi32>) {
  // expected-error @+1 {{'stem.select_up' op length of the bias must be as long as its weight has outputs, which is 16, got 8}}
  %0 = stem.select_up %u, %x weight %w bias %b ids %i in %s : (tensor<3x16xf32>, tensor<3x8xf32>, tensor<16x8xf32>, tensor<3xi32>, tensor<2xi32>, tensor<8xf32>) -> tensor<3x16xf32>
  return
}
