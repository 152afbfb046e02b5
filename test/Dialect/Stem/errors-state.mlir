// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Each constraint of the state ops and types: the function's name says which.

// param_c1
// expected-error @+1 {{'stem.param' op type must have a static shape, got 'tensor<?x8xf32>'}}
stem.param @param_c1 = "key" : tensor<?x8xf32>

// -----

// expected-error @+1 {{'stem.param' op key must not be empty: it names the checkpoint's tensor}}
stem.param @param_c2 = "" : tensor<4x8xf32>

// -----

// expected-error @+1 {{'stem.table' op key must not be empty: it names the checkpoint's tensor}}
stem.table @table_c1 = "" : !stem.table<4x8xf32>

// -----

func.func private @other()
func.func @param_load_c1() {
  // expected-error @+1 {{'stem.param_load' op 'other' is not a stem.param}}
  %0 = stem.param_load @other : tensor<4x8xf32>
  return
}

// -----

stem.param @w = "w" : tensor<4x8xf32>
func.func @param_load_c2() {
  // expected-error @+1 {{'stem.param_load' op result type 'tensor<8x4xf32>' is not that of the parameter, 'tensor<4x8xf32>'}}
  %0 = stem.param_load @w : tensor<8x4xf32>
  return
}

// -----

stem.param @w = "w" : tensor<4x8xf32>
func.func @param_load_c2_packed() {
  // expected-error @+1 {{'stem.param_load' op result type '!stem.packed<4x8xf32>' is not that of the parameter, 'tensor<4x8xf32>'}}
  %0 = stem.param_load @w : !stem.packed<4x8xf32>
  return
}

// -----

stem.param @w = "w" : tensor<4x8xf32>
func.func @param_load_c2_transposed() {
  // expected-error @+1 {{'stem.param_load' op result type 'tensor<4x8xf32>' is not that of the parameter, transposed, 'tensor<8x4xf32>'}}
  %0 = stem.param_load transposed @w : tensor<4x8xf32>
  return
}

// -----

stem.param @w = "w" : tensor<4x8xf32>
func.func @param_load_c2_transposed_packed() {
  // expected-error @+1 {{'stem.param_load' op result type '!stem.packed<8x4xf32>' is not that of the parameter, transposed, 'tensor<8x4xf32>'}}
  %0 = stem.param_load transposed @w : !stem.packed<8x4xf32>
  return
}

// -----

stem.param @b = "b" : tensor<4xf32>
func.func @param_load_c3() {
  // expected-error @+1 {{'stem.param_load' op cannot be transposed: the parameter is 'tensor<4xf32>', not a matrix}}
  %0 = stem.param_load transposed @b : tensor<4xf32>
  return
}

// -----

stem.param @w = "w" : tensor<4x8xf32>
func.func @table_load_c1() {
  // expected-error @+1 {{'stem.table_load' op 'w' is not a stem.table}}
  %0 = stem.table_load @w : !stem.table<4x8xf32>
  return
}

// -----

stem.table @t = "t" : !stem.table<4x8xf32>
func.func @table_load_c2() {
  // expected-error @+1 {{'stem.table_load' op result type '!stem.table<4x8xbf16>' is not that of the table, '!stem.table<4x8xf32>'}}
  %0 = stem.table_load @t : !stem.table<4x8xbf16>
  return
}

// -----

// expected-error @+1 {{sizes of a table must be positive, got 4 x 0}}
func.func private @table_type_c1(!stem.table<4x0xf32>)

// -----

// expected-error @+1 {{element type of a table must be f32, bf16 or f16, got 'f64'}}
func.func private @table_type_c2(!stem.table<4x8xf64>)

// -----

// expected-error @+1 {{sizes of a packed matrix must be positive, got 0 x 8}}
func.func private @packed_type_c1(!stem.packed<0x8xf32>)

// -----

// expected-error @+1 {{element type of a packed matrix must be f32 or bf16, got 'f16'}}
func.func private @packed_type_c2(!stem.packed<4x8xf16>)

// -----

// expected-error @+1 {{expected two sizes and an element type, got 3 sizes}}
func.func private @sizes(!stem.table<4x8x2xf32>)
