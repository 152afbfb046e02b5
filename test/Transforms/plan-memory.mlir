// RUN: stem-opt %s --split-input-file --stem-plan-memory --canonicalize | FileCheck %s
// RUN: stem-opt %s --split-input-file --stem-plan-memory --remarks-filter=stem-plan-memory -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// The first and the last buffer share a place; the one that lives with both
// does not. What a callee needs begins behind the caller's frame.

// CHECK-LABEL: func.func private @layer
// CHECK-SAME:    (%[[X:.*]]: memref<?x64xf32>, %[[SCRATCH:.*]]: memref<?xi8> {stem.scratch}, %[[ARENA:.*]]: memref<?xi8> {stem.arena})
// CHECK-DAG:     %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[ROW:.*]] = arith.constant 256 : index
// CHECK:         %[[T:.*]] = memref.dim %[[X]], %[[C0]]
// CHECK:         %[[A:.*]] = memref.view %[[ARENA]][%[[C0]]][%[[T]]]
// CHECK:         memref.copy %[[X]], %[[A]]
// CHECK:         %[[T1:.*]] = memref.dim %[[X]], %[[C0]]
// CHECK:         %[[OFFSET:.*]] = arith.muli %[[T1]], %[[ROW]]
// CHECK:         %[[B:.*]] = memref.view %[[ARENA]][%[[OFFSET]]][%[[T]]]
// CHECK:         memref.copy %[[A]], %[[B]]
// CHECK-NOT:     dealloc
// CHECK:         %[[C:.*]] = memref.view %[[ARENA]][%[[C0]]][%[[T]]]
// CHECK:         memref.copy %[[B]], %[[C]]
func.func private @layer(%x: memref<?x64xf32>) attributes {stem.tile = 64 : i64} {
  %c0 = arith.constant 0 : index
  %t = memref.dim %x, %c0 : memref<?x64xf32>
  %a = memref.alloc(%t) : memref<?x64xf32>
  memref.copy %x, %a : memref<?x64xf32> to memref<?x64xf32>
  %b = memref.alloc(%t) : memref<?x64xf32>
  memref.copy %a, %b : memref<?x64xf32> to memref<?x64xf32>
  memref.dealloc %a : memref<?x64xf32>
  %c = memref.alloc(%t) : memref<?x64xf32>
  memref.copy %b, %c : memref<?x64xf32> to memref<?x64xf32>
  memref.copy %c, %x : memref<?x64xf32> to memref<?x64xf32>
  return
}

// A function without buffers stays as it is.
// CHECK-LABEL: func.func private @nothing(%{{.*}}: memref<?x64xf32>) {
func.func private @nothing(%x: memref<?x64xf32>) {
  return
}

// 5 floats take 64 bytes; 3 floats for each output take 64 each.
// CHECK-LABEL: func.func @prefill
// CHECK-SAME:    stem.bytes_per_output = 64
// CHECK-SAME:    stem.bytes_per_thread = 0
// CHECK-SAME:    stem.bytes_per_token = 768
// CHECK-SAME:    stem.fixed_bytes = 64
// CHECK:         %[[REST:.*]] = memref.view %{{.*}}[%{{.*}}][%{{.*}}] : memref<?xi8> to memref<?xi8>
// CHECK:         call @layer(%{{.*}}, %{{.*}}, %[[REST]])
// CHECK:         call @layer(%{{.*}}, %{{.*}}, %{{.*}})
// CHECK:         call @nothing(%{{[^,]*}}) :
// REMARK: remark: {{.*}}PeakMemory{{.*}}prefill{{.*}}64 + tokens * 768 + outputs * 64 + threads * 0 bytes
func.func @prefill(%x: memref<?x64xf32> {stem.rows = "tokens"}, %o: memref<?x3xf32> {stem.rows = "outputs"})
    attributes {stem.entry, stem.tile = 64 : i64} {
  %c0 = arith.constant 0 : index
  %t = memref.dim %x, %c0 : memref<?x64xf32>
  %r = memref.dim %o, %c0 : memref<?x3xf32>
  %y = memref.alloc(%t) : memref<?x64xf32>
  memref.copy %x, %y : memref<?x64xf32> to memref<?x64xf32>
  %z = memref.alloc(%r) : memref<?x3xf32>
  memref.copy %o, %z : memref<?x3xf32> to memref<?x3xf32>
  %f = memref.alloca() : memref<5xf32>
  %v = memref.load %f[%c0] : memref<5xf32>
  call @layer(%x) : (memref<?x64xf32>) -> ()
  call @layer(%y) : (memref<?x64xf32>) -> ()
  call @nothing(%y) : (memref<?x64xf32>) -> ()
  return
}

// -----

// In a parallel loop: static sizes lie in the scratch of the thread, token rows
// have a copy for each of the four tasks, and a width that is at most 64 counts
// as 64.

// CHECK-LABEL: func.func @decode
// CHECK-SAME:    %[[SCRATCH:[a-z0-9]*]]: memref<?xi8> {stem.scratch}, %[[ARENA:[a-z0-9]*]]: memref<?xi8> {stem.arena}
// CHECK-SAME:    stem.bytes_per_thread = 128
// CHECK-SAME:    stem.bytes_per_token = 1024
// CHECK-SAME:    stem.fixed_bytes = 0
// CHECK:         scf.forall (%[[TASK:.*]]) in (4)
// CHECK:           %[[THREAD:.*]] = stem.thread_index
// CHECK:           %[[BASE:.*]] = arith.muli %[[THREAD]], %c128
// CHECK:           memref.view %[[SCRATCH]][%[[BASE]]][] : memref<?xi8> to memref<16xf32>
// CHECK:           %[[COPY:.*]] = arith.muli %{{.*}}, %c256
// CHECK:           %[[OFFSET:.*]] = arith.muli %[[COPY]], %[[TASK]]
// CHECK:           memref.view %[[ARENA]][%[[OFFSET]]][%{{.*}}, %{{.*}}] : memref<?xi8> to memref<?x?xf32>
// CHECK:           scf.for
// CHECK:             %[[SECOND:.*]] = arith.addi %{{.*}}, %c64
// CHECK:             memref.view %[[SCRATCH]][%[[SECOND]]][] : memref<?xi8> to memref<4xi64>
func.func @decode(%x: memref<?x200xf32> {stem.rows = "tokens"}) attributes {stem.entry, stem.tile = 1 : i64} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c200 = arith.constant 200 : index
  %zero = arith.constant 0 : i64
  %t = memref.dim %x, %c0 : memref<?x200xf32>
  scf.forall (%i) in (4) {
    %first = arith.muli %i, %c64 : index
    %left = arith.subi %c200, %first : index
    %width = arith.minui %left, %c64 : index
    %a = memref.alloc() : memref<16xf32>
    %b = memref.alloc(%t, %width) : memref<?x?xf32>
    %v = memref.load %b[%c0, %c0] : memref<?x?xf32>
    scf.for %j = %c0 to %c64 step %c1 {
      %c = memref.alloc() : memref<4xi64>
      memref.store %zero, %c[%c0] : memref<4xi64>
      memref.store %v, %a[%c0] : memref<16xf32>
    }
  }
  return
}

// -----

// A callee's rows are what its callers pass, and reshaped views keep theirs.

// CHECK-LABEL: func.func private @head
// CHECK:         memref.view
func.func private @head(%x: memref<?x64xf32>, %rows: memref<?xi32>) {
  %c0 = arith.constant 0 : index
  %r = memref.dim %rows, %c0 : memref<?xi32>
  %a = memref.alloc(%r) : memref<?x64xf32>
  %e = memref.expand_shape %a [[0], [1, 2]] output_shape [%r, 4, 16] : memref<?x64xf32> into memref<?x4x16xf32>
  %d = memref.dim %e, %c0 : memref<?x4x16xf32>
  %b = memref.alloc(%d) : memref<?x4x16xf32>
  memref.copy %e, %b : memref<?x4x16xf32> to memref<?x4x16xf32>
  return
}

// CHECK-LABEL: func.func @entry
// CHECK-SAME:    stem.bytes_per_output = 512
// CHECK-SAME:    stem.bytes_per_token = 0
func.func @entry(%x: memref<?x64xf32> {stem.rows = "tokens"}, %rows: memref<?xi32> {stem.rows = "outputs"}) attributes {stem.entry} {
  call @head(%x, %rows) : (memref<?x64xf32>, memref<?xi32>) -> ()
  return
}
