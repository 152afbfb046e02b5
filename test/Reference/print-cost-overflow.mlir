// RUN: stem-opt %s --stem-print-cost=stem-tokens=9223372036854775807 -split-input-file -verify-diagnostics -o /dev/null

func.func @tokens(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>) -> tensor<?x4xf32> {
  // expected-error @+1 {{'stem.linear' costs more FLOPs, bytes or parameters than 64 bits can count, alone or with the ops before it; lower stem-tokens or the sizes}}
  %0 = stem.linear %x, %w : tensor<?x8xf32>, tensor<4x8xf32> -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

func.func @sizes(%x: tensor<2x4611686018427387904xf32>, %w: tensor<4x4611686018427387904xf32>) -> tensor<2x4xf32> {
  // expected-error @+1 {{'stem.linear' costs more FLOPs}}
  %0 = stem.linear %x, %w : tensor<2x4611686018427387904xf32>, tensor<4x4611686018427387904xf32> -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

func.func @norm(%x: tensor<?x8xf32>, %w: tensor<8xf32>) -> tensor<?x8xf32> {
  // expected-error @+1 {{'stem.rms_norm' costs more FLOPs}}
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<?x8xf32>, tensor<8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @generic(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @+1 {{'linalg.add' costs more FLOPs}}
  %0 = linalg.add ins(%x, %x : tensor<?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @loop(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %many: tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %many, %c0 : tensor<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    // expected-error @+1 {{'stem.rms_norm' costs more FLOPs}}
    %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<4x8xf32>, tensor<8xf32> -> tensor<4x8xf32>
  }
  return
}

// -----

// What is called counts, and so does the sum.
func.func private @inner(%x: tensor<2x1152921504606846976xf32>, %w: tensor<1152921504606846976xf32>) {
  // expected-error @+1 {{'stem.rms_norm' costs more FLOPs}}
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<2x1152921504606846976xf32>, tensor<1152921504606846976xf32> -> tensor<2x1152921504606846976xf32>
  return
}
func.func @outer(%x: tensor<2x1152921504606846976xf32>, %w: tensor<1152921504606846976xf32>) {
  call @inner(%x, %w) : (tensor<2x1152921504606846976xf32>, tensor<1152921504606846976xf32>) -> ()
  return
}
