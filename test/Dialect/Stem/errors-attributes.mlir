// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Attributes of the dialect on functions, arguments and tables: the function's
// name says which constraint.

// What is right says nothing.
stem.table @attributes = "t" : !stem.table<4x8xf32> {stem.from = "w", stem.init = "embedding"}
func.func @entry(%ids: tensor<?xi32> {stem.name = "ids", stem.rows = "tokens", stem.id_bound = 4 : i64, stem.role = "ids"}, %labels: tensor<?xi32> {stem.label_bound = 4 : i64}, %rows: tensor<?xi32> {stem.row_index}, %sums: tensor<?xi32> {stem.output_index}, %w: tensor<4xf32> {stem.param = @w}, %back: tensor<4x4xf32> {stem.param = @w, stem.transposed}, %g: tensor<4xf32> {stem.output, stem.gradient_of = @w}, %t: !stem.table<4x8xf32> {stem.table = @attributes}, %y: tensor<?xf32> {stem.output}, %s: memref<?xi8> {stem.scratch}, %a: memref<?xi8> {stem.arena}) attributes {stem.entry, stem.tile = 64 : i64, stem.fixed_bytes = 0 : i64, stem.bytes_per_token = 64 : i64, stem.bytes_per_output = 64 : i64, stem.bytes_per_thread = 64 : i64} {
  return
}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.tiles' means nothing on this op to the stem dialect}}
func.func private @a1_unknown() attributes {stem.tiles = 64 : i64}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.output' means nothing on this op to the stem dialect}}
func.func private @a1_function() attributes {stem.output}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.entry' means nothing on an argument to the stem dialect}}
func.func private @a1_argument(tensor<4xf32> {stem.entry})

// -----

// expected-error @+1 {{'stem.table' op attribute 'stem.entry' means nothing on this op to the stem dialect}}
stem.table @a1_table = "t" : !stem.table<4x8xf32> {stem.entry}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.output_index' means nothing on a result to the stem dialect}}
func.func private @a1_output_index() -> (tensor<?xi32> {stem.output_index})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.transposed' means nothing on a result to the stem dialect}}
func.func private @a1_transposed() -> (tensor<4x8xf32> {stem.transposed})

// -----

func.func @a1_other() {
  // expected-error @+1 {{'arith.constant' op attribute 'stem.from' means nothing on this op to the stem dialect}}
  %0 = arith.constant {stem.from = "w"} 0 : i32
  return
}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.entry' must be a unit attribute, got true}}
func.func private @a2_entry() attributes {stem.entry = true}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.tile' must be a positive i64, the tokens of one tile, got "many"}}
func.func private @a2_tile_type() attributes {stem.tile = "many"}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.tile' must be a positive i64, the tokens of one tile, got 0 : i64}}
func.func private @a2_tile() attributes {stem.tile = 0 : i64}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.fixed_bytes' must be an i64 that is not negative, got -1 : i64}}
func.func private @a2_fixed_bytes() attributes {stem.fixed_bytes = -1 : i64}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.bytes_per_token' must be an i64 that is not negative, got 4 : i32}}
func.func private @a2_bytes_per_token() attributes {stem.bytes_per_token = 4 : i32}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.bytes_per_output' must be an i64 that is not negative, got -1 : i64}}
func.func private @a2_bytes_per_output() attributes {stem.bytes_per_output = -1 : i64}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.bytes_per_thread' must be an i64 that is not negative, got "64"}}
func.func private @a2_bytes_per_thread() attributes {stem.bytes_per_thread = "64"}

// -----

// expected-error @+1 {{'stem.table' op attribute 'stem.from' must be a string, got @w}}
stem.table @a2_from = "t" : !stem.table<4x8xf32> {stem.from = @w}

// -----

// expected-error @+1 {{'stem.table' op attribute 'stem.init' must be a string, got 1 : i64}}
stem.table @a2_init = "t" : !stem.table<4x8xf32> {stem.init = 1 : i64}

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.name' must be a string, got unit}}
func.func private @a2_name(tensor<4xf32> {stem.name})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.rows' must be a string, got 8 : i64}}
func.func private @a2_rows(tensor<?xf32> {stem.rows = 8 : i64})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.output' must be a unit attribute, got false}}
func.func private @a2_output(tensor<?xf32> {stem.output = false})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.param' must be a symbol, got "w"}}
func.func private @a2_param(tensor<4xf32> {stem.param = "w"})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.table' must be a symbol, got "t"}}
func.func private @a2_table(!stem.table<4x8xf32> {stem.table = "t"})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.id_bound' must be a positive i64, got "4"}}
func.func private @a2_id_bound(tensor<?xi32> {stem.id_bound = "4"})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.id_bound' must be a positive i64, got 0 : i64}}
func.func private @a2_id_bound_zero(tensor<?xi32> {stem.id_bound = 0 : i64})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.id_bound' must be a positive i64, got 4 : i128}}
func.func private @a2_id_bound_wide(tensor<?xi32> {stem.id_bound = 4 : i128})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.label_bound' must be a positive i64, got -4 : i64}}
func.func private @a2_label_bound(tensor<?xi32> {stem.label_bound = -4 : i64})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.row_index' must be a unit attribute, got 1 : i64}}
func.func private @a2_row_index(tensor<?xi32> {stem.row_index = 1 : i64})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.output_index' must be a unit attribute, got 1 : i64}}
func.func private @a2_output_index(tensor<?xi32> {stem.output_index = 1 : i64})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.transposed' must be a unit attribute, got true}}
func.func private @a2_transposed(tensor<4x8xf32> {stem.transposed = true})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.gradient_of' must be a symbol, got "w"}}
func.func private @a2_gradient_of(tensor<4xf32> {stem.gradient_of = "w"})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.state_of' must be a symbol, got unit}}
func.func private @a2_state_of(tensor<4xf32> {stem.state_of})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.role' must be "ids", "positions" or "sequences", got "names"}}
func.func private @a2_role(tensor<?xi32> {stem.role = "names"})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.scratch' must be a unit attribute, got 1 : i64}}
func.func private @a2_scratch(memref<?xi8> {stem.scratch = 1 : i64})

// -----

// expected-error @+1 {{'func.func' op attribute 'stem.arena' must be a unit attribute, got 1 : i64}}
func.func private @a2_arena(memref<?xi8> {stem.arena = 1 : i64})
