// RUN: stem-opt %s --stem-interpret='stem-function=norm stem-print=full' -o /dev/null | FileCheck %s --check-prefix=NORM
// RUN: stem-opt %s --stem-interpret='stem-function=gate stem-print=full' -o /dev/null | FileCheck %s --check-prefix=GATE
// RUN: stem-opt %s --stem-interpret='stem-function=rows stem-print=full' -o /dev/null | FileCheck %s --check-prefix=ROWS
// RUN: stem-opt %s --stem-interpret='stem-function=groups stem-print=full' -o /dev/null | FileCheck %s --check-prefix=GROUPS
// RUN: stem-opt %s --stem-interpret='stem-function=loss stem-print=full' -o /dev/null | FileCheck %s --check-prefix=LOSS
// RUN: stem-opt %s --stem-interpret='stem-function=back stem-print=full' -o /dev/null | FileCheck %s --check-prefix=BACK

// The same as the whole VJP: dx is r w c - x r^3 sum(w c x) / N, where r = 1/5
// in both groups of columns.
// NORM: @norm
// NORM-NEXT: result 0 [1x4]:
// NORM-NEXT: 0.164 -0.048 0.2 0.4
// NORM-NEXT: result 1 [1x4]:
// NORM-NEXT: 0.164 -0.048 0.2 0.4
func.func @norm() -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  %x = arith.constant dense<[[3.0, 4.0, 0.0, 5.0]]> : tensor<1x4xf32>
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %c = arith.constant dense<[[1.0, 0.0, 1.0, 2.0]]> : tensor<1x4xf32>
  %0 = stem.rms_norm_input_vjp %x, %w, %c {eps = 12.5 : f64} : (tensor<1x4xf32>, tensor<2xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  %1:2 = stem.rms_norm_vjp %x, %w, %c {eps = 12.5 : f64} : (tensor<1x4xf32>, tensor<2xf32>, tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<2xf32>)
  return %0, %1#0 : tensor<1x4xf32>, tensor<1x4xf32>
}

// silu(0) = 0 and silu'(0) = 1/2; far from 0 they are x and 1, or 0 and 0.
// GATE: @gate
// GATE-NEXT: result 0 [1x3]:
// GATE-NEXT: 3 6 {{-?0$}}
// GATE-NEXT: result 1 [1x3]:
// GATE-NEXT: 0 300 {{-?0$}}
// GATE-NEXT: result 2 [1x3]:
// GATE-NEXT: 0 200 {{-?0$}}
func.func @gate() -> (tensor<1x3xf32>, tensor<1x3xf32>, tensor<1x3xf32>) {
  %g = arith.constant dense<[[0.0, 100.0, -1000.0]]> : tensor<1x3xf32>
  %u = arith.constant dense<[[2.0, 2.0, 2.0]]> : tensor<1x3xf32>
  %c = arith.constant dense<[[3.0, 3.0, 3.0]]> : tensor<1x3xf32>
  %0:3 = stem.gate_vjp %g, %u, %c : (tensor<1x3xf32>, tensor<1x3xf32>, tensor<1x3xf32>) -> (tensor<1x3xf32>, tensor<1x3xf32>, tensor<1x3xf32>)
  return %0#0, %0#1, %0#2 : tensor<1x3xf32>, tensor<1x3xf32>, tensor<1x3xf32>
}

// By number; onto what is there, without padding; as many as there are numbers.
// ROWS: @rows
// ROWS-NEXT: result 0 [3x2]:
// ROWS-NEXT: 0 0
// ROWS-NEXT: 3 4
// ROWS-NEXT: 6 8
// ROWS-NEXT: result 1 [3x2]:
// ROWS-NEXT: 10 20
// ROWS-NEXT: 33 44
// ROWS-NEXT: 50 60
// ROWS-NEXT: result 2 [3x2]:
// ROWS-NEXT: 0 0
// ROWS-NEXT: 3 4
// ROWS-NEXT: 6 8
func.func @rows() -> (tensor<3x2xf32>, tensor<3x2xf32>, tensor<?x2xf32>) {
  %i = arith.constant dense<[2, 1, 2]> : tensor<3xi32>
  %x = arith.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %y = arith.constant dense<[[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]> : tensor<3x2xf32>
  %0 = stem.sum_rows %x by %i : (tensor<3xi32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  %1 = stem.sum_rows %x by %i onto %y {padding_id = 2 : i64} : (tensor<3xi32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  %2 = stem.sum_rows %x by %i : (tensor<3xi32>, tensor<3x2xf32>) -> tensor<?x2xf32>
  return %0, %1, %2 : tensor<3x2xf32>, tensor<3x2xf32>, tensor<?x2xf32>
}

// Over tokens, and over groups of columns.
// GROUPS: @groups
// GROUPS-NEXT: result 0 [4]:
// GROUPS-NEXT: 6 8 10 12
// GROUPS-NEXT: result 1 [2]:
// GROUPS-NEXT: 16 20
func.func @groups() -> (tensor<4xf32>, tensor<2xf32>) {
  %x = arith.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf32>
  %0 = stem.sum_tokens %x : tensor<2x4xf32> -> tensor<4xf32>
  %1 = stem.sum_tokens %x : tensor<2x4xf32> -> tensor<2xf32>
  return %0, %1 : tensor<4xf32>, tensor<2xf32>
}

// Logits (log 3, 0): probabilities 3/4 and 1/4. The second token has no label.
// The transposed form is the same weight.
// LOSS: @loss
// LOSS-NEXT: result 0 [2]:
// LOSS-NEXT: 1.38629{{[0-9]*}} 0
// LOSS-NEXT: result 1 [2x1]:
// LOSS-NEXT: 1.64791{{[0-9]*$}}
// LOSS-NEXT: 0
// LOSS-NEXT: result 2 [2x1]:
// LOSS-NEXT: 1.50000001
// LOSS-NEXT: -1.50000001
// LOSS-NEXT: result 3 [2]:
// LOSS-NEXT: 1.38629{{[0-9]*}} 0
// LOSS-NEXT: result 4 [2x1]:
// LOSS-NEXT: 1.64791{{[0-9]*$}}
// LOSS-NEXT: 0
func.func @loss() -> (tensor<2xf32>, tensor<2x1xf32>, tensor<2x1xf32>, tensor<2xf32>, tensor<2x1xf32>) {
  %x = arith.constant dense<[[1.0], [4.0]]> : tensor<2x1xf32>
  %h = arith.constant dense<[[1.0986122886681098], [0.0]]> : tensor<2x1xf32>
  %t = arith.constant dense<[[1.0986122886681098, 0.0]]> : tensor<1x2xf32>
  %l = arith.constant dense<[1, -100]> : tensor<2xi32>
  %c = arith.constant dense<[2.0, 2.0]> : tensor<2xf32>
  %0:3 = stem.cross_entropy_step %x, %h, %l, %c : (tensor<2x1xf32>, tensor<2x1xf32>, tensor<2xi32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2x1xf32>, tensor<2x1xf32>)
  %1:3 = stem.cross_entropy_step %x, %h, %l, %c transposed %t : (tensor<2x1xf32>, tensor<2x1xf32>, tensor<2xi32>, tensor<2xf32>, tensor<1x2xf32>) -> (tensor<2xf32>, tensor<2x1xf32>, tensor<2x1xf32>)
  return %0#0, %0#1, %0#2, %1#0, %1#1 : tensor<2xf32>, tensor<2x1xf32>, tensor<2x1xf32>, tensor<2xf32>, tensor<2x1xf32>
}

// A weight, and the same transposed, plain and packed.
stem.param @w = "w" : tensor<3x2xf32>
// BACK: @back
// BACK-NEXT: result 0 [2x2]:
// BACK-NEXT: {{^ +}}[[A:-?[0-9].*]]
// BACK-NEXT: {{^ +}}[[B:-?[0-9].*]]
// BACK-NEXT: result 1 [2x2]:
// BACK-NEXT: [[A]]
// BACK-NEXT: [[B]]
// BACK-NEXT: result 2 [2x2]:
// BACK-NEXT: [[A]]
// BACK-NEXT: [[B]]
func.func @back() -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %c = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %w = stem.param_load @w : tensor<3x2xf32>
  %t = stem.param_load transposed @w : tensor<2x3xf32>
  %p = stem.param_load transposed @w : !stem.packed<3x2xf32>
  %0 = stem.linear_input_vjp %c, %w : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
  %1 = stem.linear %c, %t : tensor<2x3xf32>, tensor<2x3xf32> -> tensor<2x2xf32>
  %2 = stem.linear %c, %p : tensor<2x3xf32>, !stem.packed<3x2xf32> -> tensor<2x2xf32>
  return %0, %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}
