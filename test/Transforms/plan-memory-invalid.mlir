// RUN: stem-opt %s --split-input-file --verify-diagnostics --stem-plan-memory

func.func @unknown_size(%n: index) {
  // expected-error@+1 {{a dynamic size is neither bounded by a constant nor the tokens or outputs of an argument (see the argument attribute 'stem.rows')}}
  %a = memref.alloc(%n) : memref<?xf32>
  return
}

// -----

// An entry must say what its arguments count.
func.func @unmarked(%x: memref<?xf32>) attributes {stem.entry} {
  %c0 = arith.constant 0 : index
  %t = memref.dim %x, %c0 : memref<?xf32>
  // expected-error@+1 {{a dynamic size is neither bounded}}
  %a = memref.alloc(%t) : memref<?xf32>
  return
}

// -----

func.func @square(%x: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %t = memref.dim %x, %c0 : memref<?xf32>
  // expected-error@+1 {{two sizes of 'memref<?x?xf32>' depend on it}}
  %a = memref.alloc(%t, %t) : memref<?x?xf32>
  return
}

// -----

// expected-error@+1 {{argument 0 has stem.rows = "rows", expected "tokens" or "outputs"}}
func.func @bad_rows(%x: memref<?xf32> {stem.rows = "rows"}) {
  return
}

// -----

func.func @too_large() {
  // expected-error@+1 {{is too large}}
  %a = memref.alloc() : memref<4611686018427387904x16xf32>
  return
}

// -----

func.func @layout() {
  // expected-error@+1 {{buffers have the identity layout and the default memory space}}
  %a = memref.alloc() : memref<4x4xf32, strided<[8, 1]>>
  return
}

// -----

func.func @elements() {
  // expected-error@+1 {{elements must be integers, indices or floats, got 'vector<4xf32>'}}
  %a = memref.alloc() : memref<4xvector<4xf32>>
  return
}

// -----

func.func @alignment() {
  // expected-error@+1 {{wants alignment 128, but the arena is aligned to 64 bytes}}
  %a = memref.alloc() {alignment = 128 : i64} : memref<4xf32>
  return
}

// -----

func.func private @callee() {
  %a = memref.alloc() : memref<4xf32>
  return
}
func.func @call_in_loop(%n: index) {
  scf.forall (%i) in (%n) {
    // expected-error@+1 {{calls 'callee' in a parallel loop, but that function has buffers of its own}}
    func.call @callee() : () -> ()
  }
  return
}

// -----

// The number of copies of a buffer with token rows must be known.
func.func private @tasks(%x: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %t = memref.dim %x, %c0 : memref<?xf32>
  scf.forall (%i) in (%t) {
    // expected-error@+1 {{in a parallel loop a buffer has a static size, unless the loop has a static number of tasks}}
    %a = memref.alloc(%t) : memref<?xf32>
  }
  return
}

// -----

func.func @carried(%n: index, %x: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%previous = %x) -> memref<4xf32> {
    // expected-error@+1 {{it is carried into the next iteration of a loop that allocates it anew}}
    %a = memref.alloc() : memref<4xf32>
    memref.copy %previous, %a : memref<4xf32> to memref<4xf32>
    scf.yield %a : memref<4xf32>
  }
  return
}

// -----

// expected-error@+1 {{'func.func' op returns a buffer: by now results are built in arguments, the residual stream that a layer adds to or one marked 'stem.output'}}
func.func @returned() -> memref<4xf32> {
  %a = memref.alloc() : memref<4xf32>
  return %a : memref<4xf32>
}

// -----

// expected-error@+1 {{has more than one block: memory is planned on structured control flow}}
func.func @blocks() {
  %a = memref.alloc() : memref<4xf32>
  cf.br ^next
^next:
  return
}

// -----

// expected-error@+1 {{calls itself: frames of memory are laid out for a call tree}}
func.func @recursive() {
  call @recursive() : () -> ()
  return
}
