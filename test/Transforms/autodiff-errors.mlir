// RUN: stem-opt %s -split-input-file --stem-autodiff='stem-function=f' -verify-diagnostics

// RUN: echo 'func.func private @f()' | not stem-opt --stem-autodiff='stem-function=g' 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: echo 'func.func private @f()' | not stem-opt --stem-autodiff='stem-function=f' 2>&1 | FileCheck %s --check-prefix=BODY
// RUN: echo '' | not stem-opt --stem-autodiff 2>&1 | FileCheck %s --check-prefix=DEFAULT
// MISSING: error: stem-function is 'g', and the module has no function of that name with a body
// BODY: error: stem-function is 'f', and the module has no function of that name with a body
// DEFAULT: error: stem-function is 'loss', and the module has no function of that name with a body

// 70 functions that call each other.
// RUN: %python -c "t='tensor<4x4xf32>'; print('\n'.join(f'func.func private @g{i}(%%x: {t}) -> {t} {{ %%0 = call @g{i+1}(%%x) : ({t}) -> {t} return %%0 : {t} }}' for i in range(70))); print(f'func.func private @g70(%%x: {t}) -> {t} {{ %%0 = stem.silu %%x : {t} -> {t} return %%0 : {t} }}')" > %t.deep.mlir
// RUN: not stem-opt %t.deep.mlir --stem-autodiff=stem-function=g0 2>&1 | FileCheck %s --check-prefix=DEEP
// RUN: stem-opt %t.deep.mlir --stem-autodiff=stem-function=g6 -o /dev/null
// DEEP: error: a derivative flows through this call, but calls are nested deeper than 64
// DEEP: note: asked for by stem-autodiff of 'g0'

// 20 functions that call the next one twice: the values that are kept double.
// RUN: %python -c "t='tensor<4x4xf32>'; print('\n'.join(f'func.func private @g{i}(%%x: {t}) -> {t} {{ %%0 = call @g{i+1}(%%x) : ({t}) -> {t} %%1 = call @g{i+1}(%%0) : ({t}) -> {t} return %%1 : {t} }}' for i in range(20))); print(f'func.func private @g20(%%x: {t}) -> {t} {{ %%0 = arith.negf %%x : {t} %%1 = stem.silu %%0 : {t} -> {t} return %%1 : {t} }}')" > %t.wide.mlir
// RUN: not stem-opt %t.wide.mlir --stem-autodiff=stem-function=g0 2>&1 | FileCheck %s --check-prefix=WIDE
// WIDE: error: the derivative of 'g3_forward' keeps 131072 values of its forward, and the limit is 65536

// An op without a rule.
// expected-note @+1 {{asked for by stem-autodiff of 'f'}}
func.func @f(%x: tensor<3x8xf32>, %g: tensor<16x8xf32>, %rows: tensor<9x16xf32>, %i: tensor<3xi32>, %d: tensor<8x16xf32>) -> tensor<3x8xf32> {
  // expected-error @+1 {{a derivative flows through this op, but 'stem.fused_ffn' has no VJP rule}}
  %0 = stem.fused_ffn %x gate %g rows %rows[%i] down %d : (tensor<3x8xf32>, tensor<16x8xf32>, tensor<9x16xf32>, tensor<3xi32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// -----

// In a called function.
func.func private @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{a derivative flows through this op, but 'math.exp' has no VJP rule}}
  %0 = math.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
// expected-note @+1 {{asked for by stem-autodiff of 'f'}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @layer(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// What an op's regions use counts as used by the op.
// expected-note @+1 {{asked for}}
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32> {stem.output}, %c: i1) -> tensor<4xf32> {
  // expected-error @+1 {{a derivative flows through this op, but 'scf.if' has no VJP rule}}
  %0 = scf.if %c -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  } else {
    scf.yield %y : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// Weights that regions load count too.
stem.param @w = "w" : tensor<4xf32>
// expected-note @+1 {{asked for}}
func.func @f(%c: i1) -> tensor<4xf32> {
  // expected-error @+1 {{'scf.if' has no VJP rule}}
  %0 = scf.if %c -> tensor<4xf32> {
    %w = stem.param_load @w : tensor<4xf32>
    scf.yield %w : tensor<4xf32>
  } else {
    %z = arith.constant dense<0.0> : tensor<4xf32>
    scf.yield %z : tensor<4xf32>
  }
  return %0 : tensor<4xf32>
}

// -----

// Through a number.
// expected-note @+1 {{asked for}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %e = tensor.extract %x[%c0] : tensor<4xf32>
  // expected-error @+1 {{'tensor.splat' has no VJP rule}}
  %0 = tensor.splat %e : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Memory may hold what depends on a weight.
// expected-note @+1 {{asked for}}
func.func @f(%x: tensor<4xf32>, %m: memref<4xf32>) -> tensor<4xf32> {
  %b = bufferization.to_buffer %x : tensor<4xf32> to memref<4xf32>
  memref.copy %b, %m : memref<4xf32> to memref<4xf32>
  // expected-error @+1 {{'bufferization.to_tensor' has no VJP rule}}
  %0 = bufferization.to_tensor %m restrict : memref<4xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// In a called function too.
func.func private @load(%m: memref<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'bufferization.to_tensor' has no VJP rule}}
  %0 = bufferization.to_tensor %m restrict : memref<4xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}
// expected-note @+1 {{asked for}}
func.func @f(%m: memref<4xf32>) -> tensor<4xf32> {
  %0 = call @load(%m) : (memref<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// An unknown callee may load weights.
func.func private @layer(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
// expected-note @+1 {{asked for}}
func.func @f(%x: tensor<4xf32> {stem.output}) -> tensor<4xf32> {
  %g = func.constant @layer : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'func.call_indirect' has no VJP rule}}
  %0 = func.call_indirect %g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @f(%q: tensor<3x4xf32>, %p: tensor<3xi32>, %cache: !stem.kv_cache, %layer: index) -> tensor<3x4xf32> {
  // expected-error @+1 {{'stem.attention' op with a cache has no derivative: the keys and values of past positions are not in the function}}
  %0 = stem.attention %q, %q, %q at %p of %p cache %cache[%layer] {head_dim = 4 : i64, scale = 0.5 : f64} : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xi32>, tensor<3xi32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

func.func @f(%ids: tensor<3xi32>, %w: tensor<?x4xf32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{'stem.embedding' op has no derivative: its gradient is a matrix, whose number of rows must be static}}
  %0 = stem.embedding %ids, %w : tensor<3xi32>, tensor<?x4xf32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

func.func @f(%i: tensor<3xi32>, %w: tensor<9x?xf32>) -> tensor<3x?xf32> {
  // expected-error @+1 {{'stem.lookup' op has no derivative: its result must have a static number of columns, and one at least}}
  %0 = stem.lookup %w, %i : tensor<9x?xf32>, tensor<3xi32> -> tensor<3x?xf32>
  return %0 : tensor<3x?xf32>
}

// -----

func.func @f(%i: tensor<3xi32>, %w: tensor<9x0xf32>) -> tensor<3x0xf32> {
  // expected-error @+1 {{'stem.lookup' op has no derivative: its result must have a static number of columns, and one at least}}
  %0 = stem.lookup %w, %i : tensor<9x0xf32>, tensor<3xi32> -> tensor<3x0xf32>
  return %0 : tensor<3x0xf32>
}

// -----

// Angles that depend on an argument.
// expected-note @+1 {{asked for}}
func.func @f(%x: tensor<3x4xf32>, %c: tensor<3x2xf32>) -> tensor<3x4xf32> {
  %s = arith.negf %c : tensor<3x2xf32>
  // expected-error @+1 {{operand 1 depends on a weight or an argument, but the rule of 'stem.rope' takes it as data}}
  %0 = stem.rope %x, %c, %s : tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x2xf32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

stem.table @t = "t" : !stem.table<9x4xf32>
func.func @f(%ids: tensor<3xi32>) -> tensor<?x4xf32> {
  %t = stem.table_load @t : !stem.table<9x4xf32>
  // expected-error @+1 {{the rows of 't' have a dense gradient: what reads them is no stem.lookup}}
  %rows, %index = stem.table_rows %t, %ids : !stem.table<9x4xf32>, tensor<3xi32> -> tensor<?x4xf32>, tensor<3xi32>
  %0 = arith.negf %rows : tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

stem.table @t = "t" : !stem.table<9x4xf32>
func.func @f(%ids: tensor<3xi32>) -> (tensor<?x4xf32>, tensor<3x4xf32>) {
  %t = stem.table_load @t : !stem.table<9x4xf32>
  // expected-error @+1 {{stem.lookup reads this, and so does an op whose gradient is no row for each token: the two do not add up}}
  %rows, %index = stem.table_rows %t, %ids : !stem.table<9x4xf32>, tensor<3xi32> -> tensor<?x4xf32>, tensor<3xi32>
  %0 = arith.negf %rows : tensor<?x4xf32>
  %1 = stem.lookup %rows, %index : tensor<?x4xf32>, tensor<3xi32> -> tensor<3x4xf32>
  return %0, %1 : tensor<?x4xf32>, tensor<3x4xf32>
}

// -----

stem.table @t = "t" : !stem.table<9x4xf32>
func.func @f(%ids: tensor<3xi32>) -> tensor<3x4xf32> {
  %t = stem.table_load @t : !stem.table<9x4xf32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<9x4xf32>, tensor<3xi32> -> tensor<?x4xf32>, tensor<3xi32>
  // expected-error @+1 {{'t' is read twice, and stem-autodiff adds up the rows of one read only}}
  %rows2, %index2 = stem.table_rows %t, %ids : !stem.table<9x4xf32>, tensor<3xi32> -> tensor<?x4xf32>, tensor<3xi32>
  %0 = stem.lookup %rows, %index : tensor<?x4xf32>, tensor<3xi32> -> tensor<3x4xf32>
  %1 = stem.lookup %rows2, %index2 : tensor<?x4xf32>, tensor<3xi32> -> tensor<3x4xf32>
  %2 = arith.addf %0, %1 : tensor<3x4xf32>
  return %2 : tensor<3x4xf32>
}

// -----

stem.param @w = "w" : tensor<9x4xf32>
func.func @f(%ids: tensor<3xi32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{stem.lookup reads 'w', whose gradient is dense: read it with stem.embedding, or make it a stem.table}}
  %w = stem.param_load @w : tensor<9x4xf32>
  %0 = stem.lookup %w, %ids : tensor<9x4xf32>, tensor<3xi32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// Rows that are computed.
stem.param @w = "w" : tensor<9x4xbf16>
func.func @f(%ids: tensor<3xi32>) -> tensor<3x4xf32> {
  %w = stem.param_load @w : tensor<9x4xbf16>
  // expected-error @+1 {{stem.lookup reads what this op gives, and only rows of stem.table_rows and arguments have the gradient of that}}
  %wide = arith.extf %w : tensor<9x4xbf16> to tensor<9x4xf32>
  %0 = stem.lookup %wide, %ids : tensor<9x4xf32>, tensor<3xi32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// A table that is passed on.
stem.table @t = "t" : !stem.table<9x4xf32>
func.func private @rows(%t: !stem.table<9x4xf32>, %ids: tensor<3xi32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{stem.lookup reads what this op gives}}
  %rows, %index = stem.table_rows %t, %ids : !stem.table<9x4xf32>, tensor<3xi32> -> tensor<?x4xf32>, tensor<3xi32>
  %0 = stem.lookup %rows, %index : tensor<?x4xf32>, tensor<3xi32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
func.func @f(%ids: tensor<3xi32>) -> tensor<3x4xf32> {
  %t = stem.table_load @t : !stem.table<9x4xf32>
  %0 = call @rows(%t, %ids) : (!stem.table<9x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// Weights are loaded where their gradients are returned.
stem.param @w = "w" : tensor<4x4xf32>
func.func private @layer(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{loads a weight in 'layer', which is called: load it in 'f' and pass it on, or give the symbol stem.frozen}}
  %w = stem.param_load @w : tensor<4x4xf32>
  %0 = stem.linear %x, %w : tensor<3x4xf32>, tensor<4x4xf32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
func.func @f(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = call @layer(%x) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

stem.table @t = "t" : !stem.table<9x4xf32>
func.func private @inner(%ids: tensor<3xi32>) -> tensor<3x4xf32> {
  // expected-error @+1 {{loads a weight in 'inner', which is called}}
  %t = stem.table_load @t : !stem.table<9x4xf32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<9x4xf32>, tensor<3xi32> -> tensor<?x4xf32>, tensor<3xi32>
  %0 = stem.lookup %rows, %index : tensor<?x4xf32>, tensor<3xi32> -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
func.func private @outer(%ids: tensor<3xi32>) -> tensor<3x4xf32> {
  %0 = call @inner(%ids) : (tensor<3xi32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
func.func @f(%ids: tensor<3xi32>, %c: i1) -> tensor<3x4xf32> {
  %0 = scf.if %c -> tensor<3x4xf32> {
    %1 = func.call @outer(%ids) : (tensor<3xi32>) -> tensor<3x4xf32>
    scf.yield %1 : tensor<3x4xf32>
  } else {
    %2 = arith.constant dense<0.0> : tensor<3x4xf32>
    scf.yield %2 : tensor<3x4xf32>
  }
  return %0 : tensor<3x4xf32>
}

// -----

func.func private @outside(tensor<4xf32>) -> tensor<4xf32>
// expected-note @+1 {{asked for by stem-autodiff of 'f'}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{a derivative flows through this call, but 'outside' has no body}}
  %0 = call @outside(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-note @+1 {{asked for by stem-autodiff of 'f'}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{a derivative flows through this call, but 'f' calls itself, directly or through other functions}}
  %0 = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func private @odd(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @even(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @even(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{a derivative flows through this call, but 'odd' calls itself, directly or through other functions}}
  %0 = call @odd(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
// expected-note @+1 {{asked for}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @odd(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @+1 {{'f' is not one block that ends with func.return, and stem-autodiff derives straight-line functions only}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  cf.br ^next
^next:
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{'blocks' is not one block that ends with func.return}}
func.func private @blocks(%x: tensor<4xf32>) -> tensor<4xf32> {
  cf.br ^next
^next:
  return %x : tensor<4xf32>
}
// expected-note @+1 {{asked for}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @blocks(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @+1 {{'f' is not one block that ends with func.return}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  llvm.unreachable
}

// -----

// expected-error @+1 {{no result depends on a weight that is not frozen, nor on an argument: there is nothing to derive}}
func.func @f() {
  return
}

// -----

stem.param @w = "w" : tensor<4xf32> {stem.frozen}
// expected-error @+1 {{there is nothing to derive}}
func.func @f(%x: tensor<4xf32>, %ids: tensor<4xi32>, %out: tensor<4xf32> {stem.output}) -> (tensor<4xf32>, tensor<4xi32>) {
  %w = stem.param_load @w : tensor<4xf32>
  return %w, %ids : tensor<4xf32>, tensor<4xi32>
}

// -----

// expected-error @+1 {{result 1 depends on a weight or an argument, but 'f32' has no derivative}}
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, f32) {
  %c0 = arith.constant 0 : index
  %e = tensor.extract %x[%c0] : tensor<4xf32>
  return %x, %e : tensor<4xf32>, f32
}

// -----

// expected-error @+1 {{result 0 depends on a weight or an argument, but 'tensor<*xf32>' has no derivative}}
func.func @f(%x: tensor<4xf32>) -> tensor<*xf32> {
  %0 = tensor.cast %x : tensor<4xf32> to tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// expected-error @+1 {{result 0 depends on a weight or an argument, but 'tensor<2xf80>' has no derivative}}
func.func @f(%x: tensor<2xf64>) -> tensor<2xf80> {
  %0 = arith.extf %x : tensor<2xf64> to tensor<2xf80>
  return %0 : tensor<2xf80>
}

// -----

// A derivative has no derivative.
// expected-error @+1 {{result 0 depends on a weight or an argument, but '!stem.row_gradient<4xf32>' has no derivative}}
func.func @f(%x: tensor<3x4xf32>, %i: tensor<3xi32>) -> !stem.row_gradient<4xf32> {
  %0 = stem.row_gradient %i, %x : tensor<3xi32>, tensor<3x4xf32> -> !stem.row_gradient<4xf32>
  return %0 : !stem.row_gradient<4xf32>
}

// -----

// expected-error @+1 {{the module has a 'f_vjp' already, which is the name of the function that stem-autodiff makes}}
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
func.func private @f_vjp()

// -----

func.func @f(%x: tensor<?x4xf32>, %w: tensor<9x4xf32>, %l: tensor<?xi32>) -> tensor<?xf32> {
  // expected-error @+1 {{'stem.distillation' op has no derivative of one result alone: return both, and let a cotangent be zero}}
  %0:2 = stem.distillation %x, %w, %l from %x, %w : (tensor<?x4xf32>, tensor<9x4xf32>, tensor<?xi32>, tensor<?x4xf32>, tensor<9x4xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  return %0#1 : tensor<?xf32>
}
