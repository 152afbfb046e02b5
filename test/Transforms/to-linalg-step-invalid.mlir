// RUN: stem-opt %s -split-input-file --stem-to-linalg -verify-diagnostics --remarks-filter=stem-to-linalg --remark-format=emitRemark

// What has no lowering says so.

func.func @double(%x: tensor<?x8xf64>, %c: tensor<?x4xf64>, %i: tensor<?xi32>, %h: tensor<96x8xf64>, %n: tensor<?xf64>, %w: tensor<4x8xf64>) attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.linear_weight_vjp' op computes in f64, which only the interpreter does}}
  %0 = stem.linear_weight_vjp %x, %c : (tensor<?x8xf64>, tensor<?x4xf64>) -> tensor<4x8xf64>
  // expected-error @+1 {{'stem.sum_tokens' op computes in f64, which only the interpreter does}}
  %1 = stem.sum_tokens %x : tensor<?x8xf64> -> tensor<8xf64>
  // expected-error @+1 {{'stem.cross_entropy_step' op computes in f64, which only the interpreter does}}
  %2:3 = stem.cross_entropy_step %x, %h, %i, %n : (tensor<?x8xf64>, tensor<96x8xf64>, tensor<?xi32>, tensor<?xf64>) -> (tensor<?xf64>, tensor<?x8xf64>, tensor<96x8xf64>)
  // expected-error @+1 {{'stem.gate_vjp' op computes in f64, which only the interpreter does}}
  %3:3 = stem.gate_vjp %x, %x, %x : (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>) -> (tensor<?x8xf64>, tensor<?x8xf64>, tensor<?x8xf64>)
  // expected-error @+1 {{'stem.linear_input_vjp' op computes in f64, which only the interpreter does}}
  %4 = stem.linear_input_vjp %c, %w : (tensor<?x4xf64>, tensor<4x8xf64>) -> tensor<?x8xf64>
  return
}

// -----

func.func @dynamic(%x: tensor<?x?xf32>, %c: tensor<?x4xf32>, %i: tensor<?xi32>) {
  // expected-error @+1 {{'stem.linear_weight_vjp' op has an operand or result 'tensor<?x?xf32>'; only the number of rows may be dynamic}}
  %0 = stem.linear_weight_vjp %x, %c : (tensor<?x?xf32>, tensor<?x4xf32>) -> tensor<4x8xf32>
  // expected-error @+1 {{'stem.linear_weight_vjp' op gives 'tensor<?x4xf32>', whose rows nothing tells: they must be static}}
  %1 = stem.linear_weight_vjp %c, %c : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  // expected-error @+1 {{'stem.sum_tokens' op gives 'tensor<?xf32>', whose rows nothing tells: they must be static}}
  %2 = stem.sum_tokens %c : tensor<?x4xf32> -> tensor<?xf32>
  // expected-error @+1 {{'stem.sum_rows' op has an operand or result 'tensor<?x?xf32>'; only the number of rows may be dynamic}}
  %3 = stem.sum_rows %x by %i : (tensor<?xi32>, tensor<?x?xf32>) -> tensor<8x?xf32>
  return
}

// -----

func.func @types(%x: tensor<?x8xf16>, %y: tensor<?x8xbf16>, %h: tensor<96x8xf16>, %b: tensor<96x8xbf16>, %i: tensor<?xi32>, %c: tensor<?xf32>) attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.linear_weight_vjp' op multiplies 'f16'; products over tokens are of f32 or bf16}}
  %0 = stem.linear_weight_vjp %x, %x : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<8x8xf32>
  // expected-error @+1 {{'stem.linear_weight_vjp' op gives gradients in 'bf16'; they are added up in f32}}
  %1 = stem.linear_weight_vjp %y, %y : (tensor<?x8xbf16>, tensor<?x8xbf16>) -> tensor<8x8xbf16>
  // expected-error @+1 {{'stem.cross_entropy_step' op multiplies 'f16'; products over tokens are of f32 or bf16}}
  %2:3 = stem.cross_entropy_step %x, %h, %i, %c : (tensor<?x8xf16>, tensor<96x8xf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<96x8xf32>)
  // expected-error @+1 {{'stem.cross_entropy_step' op gives losses in 'bf16'; they are added up in f32}}
  %3:3 = stem.cross_entropy_step %y, %b, %i, %c : (tensor<?x8xbf16>, tensor<96x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xbf16>, tensor<?x8xf32>, tensor<96x8xf32>)
  // expected-error @+1 {{'stem.cross_entropy_step' op gives gradients in 'bf16'; they are added up in f32}}
  %4:3 = stem.cross_entropy_step %y, %b, %i, %c : (tensor<?x8xbf16>, tensor<96x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<96x8xbf16>)
  return
}

// -----

func.func @no_elements(%e: tensor<0x8xf32>) {
  // expected-error @+1 {{'stem.gate_vjp' op has an operand or result without elements, 'tensor<0x8xf32>'}}
  %0:3 = stem.gate_vjp %e, %e, %e : (tensor<0x8xf32>, tensor<0x8xf32>, tensor<0x8xf32>) -> (tensor<0x8xf32>, tensor<0x8xf32>, tensor<0x8xf32>)
  return
}

// -----

// Rows that only the caller's memory tells.
func.func @rows(%x: tensor<?x8xf32>, %i: tensor<?xi32>, %out: tensor<?x8xf32> {stem.output}) -> tensor<?x8xf32> {
  // expected-error @+1 {{'stem.sum_rows' op is not returned in a 'stem.output', which alone tells its number of rows}}
  %0 = stem.sum_rows %x by %i : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %x : tensor<?x8xf32>
}

// -----

func.func @rows_without_output(%x: tensor<?x8xf32>, %i: tensor<?xi32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'stem.sum_rows' op is not returned in a 'stem.output', which alone tells its number of rows}}
  %0 = stem.sum_rows %x by %i : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// Weights that are packed for the forward alone.
func.func @packed(%x: tensor<?x8xf32>, %h: !stem.packed<8x96xf32>, %i: tensor<?xi32>, %c: tensor<?xf32>, %d: tensor<?x96xf32>) attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.linear_input_vjp' op has a weight that is packed for the other direction; run stem-transpose-weights before stem-pack-weights}}
  %0 = stem.linear_input_vjp %d, %h : (tensor<?x96xf32>, !stem.packed<8x96xf32>) -> tensor<?x8xf32>
  // expected-error @+1 {{'stem.cross_entropy_step' op has a packed head and no transposed form of it; run stem-transpose-weights before stem-pack-weights}}
  %1:3 = stem.cross_entropy_step %x, %h, %i, %c : (tensor<?x8xf32>, !stem.packed<8x96xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<96x8xf32>)
  return
}

// -----

func.func @tiles(%x: tensor<?x8xf32>, %h: tensor<96x8xf32>, %n: tensor<0x8xf32>, %i: tensor<?xi32>, %c: tensor<?xf32>, %s: tensor<96x8xf32>, %si: tensor<96xi32>, %sc: tensor<96xf32>) attributes {stem.tile = 32 : i64} {
  // expected-error @+1 {{'stem.cross_entropy_step' op works on 64 tokens at a time, but function 'tiles' has 'stem.tile' 32, wanted a multiple of them}}
  %0:3 = stem.cross_entropy_step %x, %h, %i, %c : (tensor<?x8xf32>, tensor<96x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<96x8xf32>)
  // expected-error @+1 {{'stem.cross_entropy_step' op has 96 tokens, which is not a multiple of 64}}
  %1:3 = stem.cross_entropy_step %s, %h, %si, %sc : (tensor<96x8xf32>, tensor<96x8xf32>, tensor<96xi32>, tensor<96xf32>) -> (tensor<96xf32>, tensor<96x8xf32>, tensor<96x8xf32>)
  // expected-error @+1 {{'stem.cross_entropy_step' op has a head without outputs}}
  %2:3 = stem.cross_entropy_step %x, %n, %i, %c : (tensor<?x8xf32>, tensor<0x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<0x8xf32>)
  return
}

// -----

func.func @no_tile(%x: tensor<?x8xf32>, %h: tensor<96x8xf32>, %i: tensor<?xi32>, %c: tensor<?xf32>) {
  // expected-error @+1 {{'stem.cross_entropy_step' op works on 64 tokens at a time, but function 'no_tile' has 'stem.tile' 0, wanted a multiple of them}}
  %0:3 = stem.cross_entropy_step %x, %h, %i, %c : (tensor<?x8xf32>, tensor<96x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<96x8xf32>)
  return
}

// -----

// What the logits of a chunk take is a remark.
func.func @chunk(%x: tensor<?x8xbf16>, %h: tensor<50000x8xbf16>, %i: tensor<?xi32>, %c: tensor<?xf32>) -> tensor<?xf32> attributes {stem.tile = 64 : i64} {
  // expected-remark @+3 {{LogitBytes=64000000, Tokens=640}}
  // expected-remark @+2 {{a weight, tensor<50000x8xbf16>, is not packed: a plain loop nest multiplies by it}}
  // expected-remark @+1 {{a weight, tensor<50000x8xbf16>, is not transposed: a plain loop nest multiplies by it}}
  %0:3 = stem.cross_entropy_step %x, %h, %i, %c : (tensor<?x8xbf16>, tensor<50000x8xbf16>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<50000x8xf32>)
  return %0#0 : tensor<?xf32>
}
