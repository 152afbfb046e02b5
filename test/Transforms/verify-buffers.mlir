// RUN: stem-opt %s -split-input-file -allow-unregistered-dialect --stem-verify-buffers -verify-diagnostics

// B1 to B4: what belongs there.
func.func @task(%task: index, %thread: index, %m: memref<?xf32>) {
  return
}
func.func @buffers(%a: memref<64x32xf32>, %w: !stem.packed<32x64xf32>, %acc: memref<64x64xf32>, %m: memref<?xf32>, %l: index) {
  %zero = arith.constant 0.0 : f32
  %e = math.exp %zero : f32
  %v = vector.load %m[%l] : memref<?xf32>, vector<16xf32>
  memref.store %e, %m[%l] : memref<?xf32>
  scf.for %i = %l to %l step %l {
    stem.packed_matmul %a, %w[%l, %l] into %acc : (memref<64x32xf32>, !stem.packed<32x64xf32>, memref<64x64xf32>, index, index) -> ()
  }
  stem.parallel_call @task tasks %l(%m) : memref<?xf32>
  return
}

// -----

// B1: every offending op is reported.
func.func @others(%m: memref<4xf32>) {
  // expected-error @+1 {{'linalg.copy' op does not belong at the end of the buffer phase; a pass should have replaced it}}
  linalg.copy ins(%m : memref<4xf32>) outs(%m : memref<4xf32>)
  // expected-error @+1 {{'stem.thread_index' op does not belong at the end of the buffer phase}}
  %0 = stem.thread_index
  // expected-error @+1 {{'unknown.op' op does not belong at the end of the buffer phase}}
  "unknown.op"() : () -> ()
  return
}

// -----

// B2: memory is the arena's.
func.func @memory() {
  // expected-error @+1 {{'memref.alloc' op does not belong at the end of the buffer phase}}
  %0 = memref.alloc() : memref<4xf32>
  // expected-error @+1 {{'memref.alloca' op does not belong at the end of the buffer phase}}
  %1 = memref.alloca() : memref<4xf32>
  // expected-error @+1 {{'memref.dealloc' op does not belong at the end of the buffer phase}}
  memref.dealloc %0 : memref<4xf32>
  return
}

// -----

// B3: parallel loops are outlined.
func.func @loops(%n: index) {
  // expected-error @+1 {{'scf.forall' op does not belong at the end of the buffer phase}}
  scf.forall (%i) in (4) {
  }
  // expected-error @+1 {{'scf.parallel' op does not belong at the end of the buffer phase}}
  scf.parallel (%i) = (%n) to (%n) step (%n) {
  }
  return
}

// -----

// B4: nothing gives a tensor.
func.func @tensors() {
  // expected-error @+1 {{'tensor.empty' op does not belong at the end of the buffer phase}}
  %0 = tensor.empty() : tensor<4xf32>
  // expected-error @+1 {{'arith.constant' op does not belong at the end of the buffer phase}}
  %1 = arith.constant dense<1.0> : tensor<4xf32>
  return
}
