// RUN: stem-opt %s -split-input-file --stem-autodiff='stem-function=f' | FileCheck %s
// RUN: stem-opt %s -split-input-file --stem-autodiff='stem-function=f' -o /dev/null

// The gradients are results behind those of the function: of the arguments, of
// the parameters in their order, of the tables. A table's ids come before its
// rows, and nothing has the size of the table.
stem.param @second = "second" : tensor<4x4xbf16>
stem.param @first = "first" : tensor<4xf32>
stem.table @t = "t" : !stem.table<100x4xbf16>
// CHECK-LABEL: func.func @f_vjp
// CHECK-SAME: (%[[X:.*]]: tensor<?x4xf32>, %[[IDS:.*]]: tensor<?xi32>, %[[DY:.*]]: tensor<?x4xf32>)
// CHECK-SAME: -> (tensor<?x4xf32>,
// CHECK-SAME: tensor<?x4xf32> {stem.gradient_of_argument = 0 : i64},
// CHECK-SAME: tensor<4x4xf32> {stem.gradient_of = @second},
// CHECK-SAME: tensor<4xf32> {stem.gradient_of = @first},
// CHECK-SAME: tensor<?xi32> {stem.gradient_ids_of = @t},
// CHECK-SAME: tensor<?x4xf32> {stem.gradient_of = @t})
// CHECK-NOT: 100x4xf
// CHECK: %[[ROWS:.*]], %[[INDEX:.*]] = stem.table_rows
// CHECK: %[[N:.*]] = stem.rms_norm
// CHECK: %[[Y:.*]] = arith.addf
// CHECK: %[[PAIRS:.*]] = stem.row_gradient %[[INDEX]], %[[DY]] : {{.*}} -> !stem.row_gradient<4xf32>
// CHECK: %[[DN:.*]] = stem.linear_input_vjp %[[DY]], %{{.*}} : (tensor<?x4xf32>, tensor<4x4xbf16>) -> tensor<?x4xf32>
// CHECK: %[[DW:.*]] = stem.linear_weight_vjp %[[N]], %[[DY]] : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<4x4xf32>
// CHECK: %[[DX:.*]], %[[DG:.*]] = stem.rms_norm_vjp %[[X]], %{{.*}}, %[[DN]]
// CHECK: %[[UNIQUE:.*]], %[[SUMS:.*]] = stem.table_gradient %[[PAIRS]] index %[[INDEX]] ids %[[IDS]]
// CHECK: return %[[Y]], %[[DX]], %[[DW]], %[[DG]], %[[UNIQUE]], %[[SUMS]]
func.func @f(%x: tensor<?x4xf32>, %ids: tensor<?xi32>) -> tensor<?x4xf32> {
  %g = stem.param_load @first : tensor<4xf32>
  %w = stem.param_load @second : tensor<4x4xbf16>
  %t = stem.table_load @t : !stem.table<100x4xbf16>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<100x4xbf16>, tensor<?xi32> -> tensor<?x4xbf16>, tensor<?xi32>
  %n = stem.rms_norm %x, %g {eps = 1.0e-5 : f64} : tensor<?x4xf32>, tensor<4xf32> -> tensor<?x4xf32>
  %y = stem.linear %n, %w : tensor<?x4xf32>, tensor<4x4xbf16> -> tensor<?x4xf32>
  %u = stem.lookup %rows, %index : tensor<?x4xbf16>, tensor<?xi32> -> tensor<?x4xf32>
  %z = arith.addf %y, %u : tensor<?x4xf32>
  return %z : tensor<?x4xf32>
}

// -----

// A function that is called twice is derived once. Of its values the backward
// takes what it uses, arguments as arguments, and a constant is made again.
stem.param @w0 = "w0" : tensor<4x4xf32>
stem.param @w1 = "w1" : tensor<4x4xf32>
// CHECK-LABEL: func.func private @layer(
// CHECK-LABEL: func.func private @layer_forward(
// CHECK-SAME: %[[X:.*]]: tensor<?x4xf32>, %[[W:.*]]: tensor<4x4xf32>, %[[UNUSED:.*]]: index)
// CHECK-SAME: -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<4x4xf32>)
// CHECK: %[[SCALED:.*]] = arith.mulf %[[W]]
// CHECK: %[[H:.*]] = stem.linear %[[X]], %[[SCALED]]
// CHECK: %[[S:.*]] = stem.silu %[[H]]
// CHECK: return %[[S]], %[[H]], %[[SCALED]]
// CHECK-LABEL: func.func private @layer_backward(
// CHECK-SAME: %[[X:.*]]: tensor<?x4xf32>, %[[H:.*]]: tensor<?x4xf32>, %[[SCALED:.*]]: tensor<4x4xf32>, %[[DY:.*]]: tensor<?x4xf32>)
// CHECK-SAME: -> (tensor<?x4xf32>, tensor<4x4xf32>)
// CHECK: %[[TWO:.*]] = arith.constant dense<2.000000e+00>
// CHECK: %[[DH:.*]] = stem.silu_vjp %[[H]], %[[DY]]
// CHECK: %[[DX:.*]] = stem.linear_input_vjp %[[DH]], %[[SCALED]]
// CHECK: %[[DS:.*]] = stem.linear_weight_vjp %[[X]], %[[DH]]
// CHECK-NEXT: %[[DW:.*]] = arith.mulf %[[DS]], %[[TWO]]
// CHECK-NEXT: return %[[DX]], %[[DW]]
// CHECK-NOT: func.func private
// CHECK-LABEL: func.func @f_vjp
// CHECK-SAME: %[[X:.*]]: tensor<?x4xf32>, %[[DY:.*]]: tensor<?x4xf32>)
// CHECK: %[[W0:.*]] = stem.param_load @w0
// CHECK: %[[W1:.*]] = stem.param_load @w1
// CHECK: %[[Y:.*]]:3 = call @layer_forward(%[[X]], %[[W0]], %
// CHECK: %[[Z:.*]]:3 = call @layer_forward(%[[Y]]#0, %[[W1]], %
// CHECK: %[[BZ:.*]]:2 = call @layer_backward(%[[Y]]#0, %[[Z]]#1, %[[Z]]#2, %[[DY]])
// CHECK: %[[BY:.*]]:2 = call @layer_backward(%[[X]], %[[Y]]#1, %[[Y]]#2, %[[BZ]]#0)
// CHECK: return %[[Z]]#0, %[[BY]]#0, %[[BY]]#1, %[[BZ]]#1
func.func private @layer(%x: tensor<?x4xf32>, %w: tensor<4x4xf32>, %unused: index) -> tensor<?x4xf32> {
  %c = arith.constant dense<2.0> : tensor<4x4xf32>
  %scaled = arith.mulf %w, %c : tensor<4x4xf32>
  %h = stem.linear %x, %scaled : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
  %y = stem.silu %h : tensor<?x4xf32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
func.func @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %w0 = stem.param_load @w0 : tensor<4x4xf32>
  %w1 = stem.param_load @w1 : tensor<4x4xf32>
  %y = call @layer(%x, %w0, %c0) : (tensor<?x4xf32>, tensor<4x4xf32>, index) -> tensor<?x4xf32>
  %z = call @layer(%y, %w1, %c0) : (tensor<?x4xf32>, tensor<4x4xf32>, index) -> tensor<?x4xf32>
  return %z : tensor<?x4xf32>
}

// -----

// Nothing is computed for what is frozen, and a function that gets nothing else
// is called as it is.
stem.param @w = "w" : tensor<4x4xf32>
stem.param @frozen = "frozen" : tensor<4x4xf32> {stem.frozen}
stem.table @t = "t" : !stem.table<9x4xf32> {stem.frozen}
// CHECK-LABEL: func.func private @rows(
// CHECK-LABEL: func.func @f_vjp
// CHECK-SAME: (%{{.*}}: tensor<?xi32>, %[[DY:.*]]: tensor<?x4xf32>)
// CHECK-SAME: -> (tensor<?x4xf32>, tensor<4x4xf32> {stem.gradient_of = @w})
// CHECK: %[[X:.*]] = call @rows(
// CHECK: %[[FROZEN:.*]] = stem.param_load @frozen
// CHECK: stem.linear
// CHECK: %[[Y:.*]] = stem.linear
// CHECK-NEXT: %[[DH:.*]] = stem.linear_input_vjp %[[DY]], %[[FROZEN]]
// CHECK-NEXT: %[[DW:.*]] = stem.linear_weight_vjp %[[X]], %[[DH]]
// CHECK-NEXT: return %[[Y]], %[[DW]]
func.func private @rows(%rows: tensor<?x4xf32>, %index: tensor<?xi32>) -> tensor<?x4xf32> {
  %u = stem.lookup %rows, %index : tensor<?x4xf32>, tensor<?xi32> -> tensor<?x4xf32>
  return %u : tensor<?x4xf32>
}
func.func @f(%ids: tensor<?xi32>) -> tensor<?x4xf32> {
  %t = stem.table_load @t : !stem.table<9x4xf32>
  %rows, %index = stem.table_rows %t, %ids : !stem.table<9x4xf32>, tensor<?xi32> -> tensor<?x4xf32>, tensor<?xi32>
  %x = call @rows(%rows, %index) : (tensor<?x4xf32>, tensor<?xi32>) -> tensor<?x4xf32>
  %w = stem.param_load @w : tensor<4x4xf32>
  %frozen = stem.param_load @frozen : tensor<4x4xf32>
  %h = stem.linear %x, %w : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
  %y = stem.linear %h, %frozen : tensor<?x4xf32>, tensor<4x4xf32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// An entry's results are built in arguments, which have no gradient; the
// cotangent is named after the one of its result.
// CHECK-LABEL: func.func @f_vjp
// CHECK-SAME: %{{.*}}: tensor<?x4xf32> {stem.name = "x"}
// CHECK-SAME: %{{.*}}: tensor<?x4xf32> {stem.name = "y", stem.output, stem.rows = "tokens"}
// CHECK-SAME: %{{.*}}: tensor<?x4xf32> {stem.name = "y_cotangent", stem.rows = "tokens"})
// CHECK-SAME: -> (tensor<?x4xf32>, tensor<?x4xf32> {stem.gradient_of_argument = 0 : i64})
func.func @f(%x: tensor<?x4xf32> {stem.name = "x"}, %out: tensor<?x4xf32> {stem.name = "y", stem.output, stem.rows = "tokens"}) -> tensor<?x4xf32> attributes {stem.entry} {
  %y = stem.silu %x : tensor<?x4xf32> -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// Angles are data, in a called function too, and results that nothing flows
// into get zeros.
// CHECK-LABEL: func.func private @turn_backward(
// CHECK-SAME: %[[SIN:.*]]: tensor<?x2xf32>, %[[COS:.*]]: tensor<?x2xf32>, %[[D0:.*]]: tensor<?x4xf32>, %[[D1:.*]]: tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK: %[[NEGATED:.*]] = arith.negf %[[SIN]]
// CHECK: %[[TURNED:.*]] = stem.rope %[[D0]], %[[COS]], %[[NEGATED]]
// CHECK: %[[SUM:.*]] = arith.addf %[[D1]], %[[TURNED]]
// CHECK: return %[[SUM]]
// CHECK-LABEL: func.func @f_vjp
// CHECK-SAME: -> (tensor<?x4xf32>, tensor<?x4xf32> {stem.gradient_of_argument = 0 : i64})
// CHECK: %[[Y:.*]]:2 = call @turn_forward(
// CHECK: %[[N:.*]] = tensor.dim %[[Y]]#1
// CHECK: %[[EMPTY:.*]] = tensor.empty(%[[N]])
// CHECK: %[[ZEROS:.*]] = linalg.fill {{.*}} outs(%[[EMPTY]]
// CHECK: %[[DX:.*]] = call @turn_backward(%{{.*}}, %{{.*}}, %{{.*}}, %[[ZEROS]])
// CHECK: return %[[Y]]#0, %[[DX]]
func.func private @turn(%x: tensor<?x4xf32>, %c: tensor<?x2xf32>, %s: tensor<?x2xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %y = stem.rope %x, %c, %s : tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32> -> tensor<?x4xf32>
  return %y, %x : tensor<?x4xf32>, tensor<?x4xf32>
}
func.func @f(%x: tensor<?x4xf32>, %c: tensor<?x2xf32>, %s: tensor<?x2xf32>) -> tensor<?x4xf32> {
  %y:2 = call @turn(%x, %c, %s) : (tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
  return %y#0 : tensor<?x4xf32>
}

// -----

// What no derivative flows through may be anything: calls without results, of
// functions without a body or of several blocks, and ops with regions.
// CHECK-LABEL: func.func @f_vjp
// CHECK: call @watch(
// CHECK: call @blocks(
// CHECK: call @itself(
// CHECK: scf.if
// CHECK: func.call @watch(
// CHECK: %[[DX:.*]] = stem.silu_vjp
// CHECK-NEXT: return %{{.*}}, %[[DX]]
// CHECK-NOT: _forward
func.func private @watch(tensor<?x4xf32>)
func.func private @blocks(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  cf.br ^next
^next:
  return %x : tensor<?x4xf32>
}
func.func private @itself(%x: tensor<?x4xf32>) {
  call @itself(%x) : (tensor<?x4xf32>) -> ()
  return
}
func.func @f(%x: tensor<?x4xf32>, %n: i1) -> (tensor<?x4xf32>, i32) {
  %c1 = arith.constant 1 : i32
  call @watch(%x) : (tensor<?x4xf32>) -> ()
  %unused = call @blocks(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
  call @itself(%x) : (tensor<?x4xf32>) -> ()
  %i = scf.if %n -> i32 {
    func.call @watch(%x) : (tensor<?x4xf32>) -> ()
    scf.yield %c1 : i32
  } else {
    scf.yield %c1 : i32
  }
  %y = stem.silu %x : tensor<?x4xf32> -> tensor<?x4xf32>
  return %y, %i : tensor<?x4xf32>, i32
}

// -----

// What attention has at hand of its softmax is a value of the forward function,
// beside its result.
stem.param @w = "w" : tensor<8x8xf32>
// CHECK-LABEL: func.func private @layer_forward
// CHECK: %[[A:.*]] = stem.attention %[[Q:.*]], %[[K:.*]], %[[V:.*]] at %[[P:.*]] of %[[S:.*]] {
// CHECK-NEXT: %[[L:.*]] = stem.attention_logsumexp %[[Q]], %[[K]] at %[[P]] of %[[S]] {head_dim = 4 : i64, scale = 5.000000e-01 : f64, window = 3 : i64} : {{.*}} -> tensor<?x2xf32>
// CHECK: return %{{.*}}, %[[A]], {{.*}}%[[L]]
// CHECK-LABEL: func.func private @layer_backward
// CHECK-NOT: stem.attention_logsumexp
// CHECK: stem.attention_vjp {{.*}} forward %arg{{[0-9]+}}, %arg{{[0-9]+}} at
func.func private @layer(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> tensor<?x8xf32> {
  %q = stem.linear %x, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  %a = stem.attention %q, %q, %q at %p of %s {head_dim = 4 : i64, scale = 0.5 : f64, window = 3 : i64} : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x8xf32>
  %o = stem.linear %a, %w : tensor<?x8xf32>, tensor<8x8xf32> -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}
func.func @f(%x: tensor<?x8xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>) -> tensor<?x8xf32> {
  %w = stem.param_load @w : tensor<8x8xf32>
  %y = func.call @layer(%x, %w, %p, %s) : (tensor<?x8xf32>, tensor<8x8xf32>, tensor<?xi32>, tensor<?xi32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// What goes into the product of a gated FFN stands beside it in the type of x,
// a value of the forward function that the backward one reads; nothing is
// multiplied by the gate's matrix twice.
stem.param @g = "g" : tensor<16x8xbf16>
stem.param @u = "u" : tensor<16x8xbf16>
stem.param @d = "d" : tensor<8x16xbf16>
stem.param @b = "b" : tensor<16xf32>
stem.table @t = "t" : !stem.table<32x16xbf16>
// CHECK-LABEL: func.func private @gated_forward
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8xbf16>, %[[R:[a-z0-9]+]]: tensor<?x16xbf16>, %[[G:[a-z0-9]+]]: tensor<16x8xbf16>, %[[D:[a-z0-9]+]]: tensor<8x16xbf16>, %[[B:[a-z0-9]+]]: tensor<16xf32>
// CHECK: %[[Y:.*]] = stem.gated_ffn %[[X]] gate %[[G]]
// CHECK-NEXT: %[[GATE:.*]] = stem.linear %[[X]], %[[G]] bias %[[B]] : {{.*}} -> tensor<?x16xbf16>
// CHECK: return %[[Y]], %[[GATE]]
// CHECK-LABEL: func.func private @gated_backward
// CHECK-NOT: stem.linear %
// CHECK: %[[H:.*]] = stem.linear_input_vjp %{{.*}}, %{{.*}} : (tensor<?x8xf32>, tensor<8x16xbf16>) -> tensor<?x16xf32>
// CHECK: %[[DG:.*]], %[[DU:.*]], %[[P:.*]] = stem.gate_vjp %{{.*}}, %{{.*}}, %[[H]] : (tensor<?x16xbf16>, tensor<?x16xbf16>, tensor<?x16xf32>) -> (tensor<?x16xbf16>, tensor<?x16xf32>, tensor<?x16xbf16>)
// CHECK: %[[DX:.*]] = stem.linear_input_vjp %[[DG]]
// CHECK: stem.linear_weight_vjp %{{.*}}, %[[DG]] : {{.*}} -> tensor<16x8xf32>
// CHECK: stem.linear_weight_vjp %[[P]], %{{.*}} : {{.*}} -> tensor<8x16xf32>
// CHECK: stem.sum_tokens %[[DG]]
// CHECK: return %[[DX]], %[[DU]]
func.func private @gated(%x: tensor<?x8xbf16>, %r: tensor<?x16xbf16>, %g: tensor<16x8xbf16>, %d: tensor<8x16xbf16>, %b: tensor<16xf32>) -> tensor<?x8xf32> {
  %y = stem.gated_ffn %x gate %g rows %r down %d gate_bias %b : (tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<?x16xbf16>, tensor<8x16xbf16>, tensor<16xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func.func private @dense_forward
// CHECK: stem.dense_ffn %[[X:.*]] gate %[[G:.*]] up %[[U:.*]] down
// CHECK-NEXT: %[[GATE:.*]] = stem.linear %[[X]], %[[G]] :
// CHECK-NEXT: %[[UP:.*]] = stem.linear %[[X]], %[[U]] : {{.*}} -> tensor<?x16xbf16>
// CHECK-LABEL: func.func private @dense_backward
// CHECK-NOT: stem.linear %
// CHECK: %[[DG:.*]], %[[DU:.*]], %[[P:.*]] = stem.gate_vjp
// CHECK: %[[LEFT:.*]] = stem.linear_input_vjp %[[DG]]
// CHECK: %[[RIGHT:.*]] = stem.linear_input_vjp %[[DU]]
// CHECK: arith.addf %[[LEFT]], %[[RIGHT]]
// CHECK: stem.linear_weight_vjp %{{.*}}, %[[DG]]
// CHECK: stem.linear_weight_vjp %{{.*}}, %[[DU]]
// CHECK: stem.linear_weight_vjp %[[P]]
func.func private @dense(%x: tensor<?x8xbf16>, %g: tensor<16x8xbf16>, %u: tensor<16x8xbf16>, %d: tensor<8x16xbf16>) -> tensor<?x8xf32> {
  %y = stem.dense_ffn %x gate %g up %u down %d : (tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<16x8xbf16>, tensor<8x16xbf16>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func @f(%x: tensor<?x8xbf16>, %i: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %g = stem.param_load @g : tensor<16x8xbf16>
  %u = stem.param_load @u : tensor<16x8xbf16>
  %d = stem.param_load @d : tensor<8x16xbf16>
  %b = stem.param_load @b : tensor<16xf32>
  %t = stem.table_load @t : !stem.table<32x16xbf16>
  %rows, %index = stem.table_rows %t, %i : !stem.table<32x16xbf16>, tensor<?xi32> -> tensor<?x16xbf16>, tensor<?xi32>
  %r = stem.lookup %rows, %index : tensor<?x16xbf16>, tensor<?xi32> -> tensor<?x16xbf16>
  %0 = func.call @gated(%x, %r, %g, %d, %b) : (tensor<?x8xbf16>, tensor<?x16xbf16>, tensor<16x8xbf16>, tensor<8x16xbf16>, tensor<16xf32>) -> tensor<?x8xf32>
  %1 = func.call @dense(%x, %g, %u, %d) : (tensor<?x8xbf16>, tensor<16x8xbf16>, tensor<16x8xbf16>, tensor<8x16xbf16>) -> tensor<?x8xf32>
  return %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
}
