// RUN: stem-opt %s --split-input-file --verify-diagnostics --stem-outline-parallel | FileCheck %s

// Constants are cloned, the rest is captured; the thread is an argument.

// CHECK-LABEL: func.func private @one
// CHECK-SAME:    (%[[X:.*]]: memref<?xf32>, %[[N:.*]]: index)
// CHECK:         stem.parallel_call @one_par0 tasks %[[N]](%[[X]]) : memref<?xf32>
// CHECK-LABEL: func.func private @one_par0
// CHECK-SAME:    (%[[TASK:.*]]: index, %[[THREAD:.*]]: index, %[[X:.*]]: memref<?xf32>)
// CHECK-DAG:     %[[F:.*]] = arith.constant 1.0
// CHECK:         memref.store %[[F]], %[[X]][%[[TASK]]]
// CHECK:         memref.store %[[F]], %[[X]][%[[THREAD]]]
// CHECK:         return
func.func private @one(%x: memref<?xf32>, %n: index) {
  %f = arith.constant 1.0 : f32
  scf.forall (%i) in (%n) {
    %t = stem.thread_index
    memref.store %f, %x[%i] : memref<?xf32>
    memref.store %f, %x[%t] : memref<?xf32>
  }
  return
}

// -----

// Two dimensions with bounds and steps are counted as one; a loop inside is
// sequential. Two loops get two functions.

// CHECK-LABEL: func.func private @two
// CHECK-SAME:    (%[[X:.*]]: memref<?x?xf32>, %[[N:.*]]: index)
// CHECK:         %[[SPAN:.*]] = arith.subi %[[N]], %[[C8:.*]]
// CHECK:         %[[CEIL:.*]] = arith.ceildivsi %[[SPAN]], %
// CHECK:         %[[COUNT:.*]] = arith.maxsi %[[CEIL]], %
// CHECK:         %[[TASKS:.*]] = arith.muli %[[COUNT]], %
// CHECK:         stem.parallel_call @two_par0 tasks %[[TASKS]](%[[X]]) : memref<?x?xf32>
// CHECK:         stem.parallel_call @two_par1
// CHECK:         arith.constant 0 : index
// CHECK-NOT:     stem.thread_index
// CHECK-LABEL: func.func private @two_par{{.}}
// CHECK-LABEL: func.func private @two_par0
// CHECK-SAME:    (%[[TASK:.*]]: index, %{{.*}}: index, %[[X:.*]]: memref<?x?xf32>)
// CHECK-DAG:     %[[C3:.*]] = arith.constant 3
// CHECK:         %[[J:.*]] = arith.remui %[[TASK]], %[[C3]]
// CHECK:         %[[REST:.*]] = arith.divui %[[TASK]], %[[C3]]
// CHECK:         %[[SCALED:.*]] = arith.muli %[[REST]], %
// CHECK:         %[[I:.*]] = arith.addi %[[SCALED]], %
// CHECK:         scf.for
// CHECK:           memref.store %{{.*}}, %[[X]][%[[I]], %[[J]]]
func.func private @two(%x: memref<?x?xf32>, %n: index) {
  %f = arith.constant 1.0 : f32
  scf.forall (%i, %j) = (8, 0) to (%n, 3) step (4, 1) {
    scf.forall (%k) in (2) {
      memref.store %f, %x[%i, %j] : memref<?x?xf32>
    }
  }
  scf.forall (%i) in (7) {
    memref.store %f, %x[%i, %i] : memref<?x?xf32>
  }
  %t = stem.thread_index
  memref.store %f, %x[%t, %t] : memref<?x?xf32>
  return
}

// -----

// Equal bodies are one function, of whatever loop and function; what is
// captured in another order, or another constant, is not equal.

// CHECK-LABEL: func.func private @same
// CHECK-SAME:    (%[[X:.*]]: memref<?xf32>, %[[Y:.*]]: memref<?xf32>, %[[N:.*]]: index)
// CHECK:         stem.parallel_call @same_par0 tasks %[[N]](%[[X]], %[[Y]])
// CHECK:         stem.parallel_call @same_par0 tasks %{{.*}}(%[[Y]], %[[X]])
// CHECK:         stem.parallel_call @same_par1 tasks %[[N]](%[[X]])
// CHECK:         stem.parallel_call @same_par2 tasks %[[N]](%[[X]])
// CHECK:         stem.parallel_call @same_par1 tasks %[[N]](%[[Y]])
// CHECK-NOT:   func.func private @same_par3
// CHECK-LABEL: func.func private @other
// CHECK-SAME:    (%[[Z:.*]]: memref<?xf32>, %[[M:.*]]: index)
// CHECK:         stem.parallel_call @same_par2 tasks %[[M]](%[[Z]])
// CHECK-NOT:   func.func private @other_par
func.func private @same(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
  %f = arith.constant 1.0 : f32
  %g = arith.constant 2.0 : f32
  scf.forall (%i) in (%n) {
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %y[%i] : memref<?xf32>
  }
  scf.forall (%i) in (7) {
    %v = memref.load %y[%i] : memref<?xf32>
    memref.store %v, %x[%i] : memref<?xf32>
  }
  scf.forall (%i) in (%n) {
    memref.store %f, %x[%i] : memref<?xf32>
  }
  scf.forall (%i) in (%n) {
    memref.store %g, %x[%i] : memref<?xf32>
  }
  scf.forall (%i) in (%n) {
    memref.store %f, %y[%i] : memref<?xf32>
  }
  return
}
func.func private @other(%z: memref<?xf32>, %n: index) {
  %f = arith.constant 2.0 : f32
  scf.forall (%i) in (%n) {
    memref.store %f, %z[%i] : memref<?xf32>
  }
  return
}

// -----

func.func private @tensors(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{has results: parallel loops are outlined on buffers, after bufferization}}
  %r = scf.forall (%i) in (4) shared_outs(%o = %x) -> tensor<4xf32> {
    scf.forall.in_parallel {
    }
  }
  return %r : tensor<4xf32>
}

// -----

func.func private @thread(%x: memref<?xf32>) {
  %f = arith.constant 1.0 : f32
  %t = stem.thread_index
  memref.store %f, %x[%t] : memref<?xf32>
  return
}
func.func private @between(%x: memref<?xf32>) {
  call @thread(%x) : (memref<?xf32>) -> ()
  return
}
func.func private @calls(%x: memref<?xf32>) {
  scf.forall (%i) in (4) {
    // expected-error@+1 {{calls 'between' from inside a parallel loop, but that function has parallel loops or asks for its thread}}
    func.call @between(%x) : (memref<?xf32>) -> ()
  }
  return
}

// -----

func.func private @body(%task: index, %thread: index, %n: index) {
  return
}
func.func private @nested_call(%n: index) {
  scf.forall (%i) in (4) {
    // expected-error@+1 {{stands in a parallel loop: the threads are busy already}}
    stem.parallel_call @body tasks %n(%n) : index
  }
  return
}
