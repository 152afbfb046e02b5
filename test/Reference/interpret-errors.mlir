// RUN: stem-opt %s --stem-interpret='stem-tokens=4 stem-past=0' -split-input-file -verify-diagnostics -o /dev/null

func.func @unknown_op(%x: tensor<4xf32>) -> f32 {
  %i = arith.constant 0 : i64
  // expected-error @+1 {{the interpreter does not know the op 'llvm.inttoptr'}}
  %p = llvm.inttoptr %i : i64 to !llvm.ptr
  %0 = llvm.load %p : !llvm.ptr -> f32
  return %0 : f32
}

// -----

// expected-error @+1 {{the interpreter cannot make an argument of type 'memref<4xf32>'}}
func.func @unknown_type(%x: memref<4xf32>) {
  return
}

// -----

func.func private @outside(f32) -> f32
func.func @external(%x: f32) -> f32 {
  // expected-error @+1 {{the interpreter cannot call 'outside': it has no body}}
  %0 = call @outside(%x) : (f32) -> f32
  return %0 : f32
}

// -----

// expected-error @+1 {{the interpreter runs functions of one block only}}
func.func @blocks(%x: f32) -> f32 {
  cf.br ^next
^next:
  return %x : f32
}

// -----

func.func @recursion(%x: f32) -> f32 {
  // expected-error @+1 {{calls are nested deeper than 64}}
  %0 = call @recursion(%x) : (f32) -> f32
  return %0 : f32
}

// -----

func.func @shapes(%x: tensor<?xf32>, %y: tensor<3xf32>) -> tensor<?xf32> {
  %z = tensor.cast %y : tensor<3xf32> to tensor<?xf32>
  // expected-error @+1 {{tensors of different shapes}}
  %0 = arith.addf %x, %z : tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @cast(%x: tensor<?xf32>) -> tensor<3xf32> {
  // expected-error @+1 {{the interpreter got a tensor of shape [4] for 'tensor<3xf32>'}}
  %0 = tensor.cast %x : tensor<?xf32> to tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

func.func @id(%w: tensor<3x2xf32>) -> tensor<1x2xf32> {
  %ids = arith.constant dense<3> : tensor<1xi32>
  // expected-error @+1 {{id 3 at token 0 is outside of a matrix of 3 rows}}
  %0 = stem.embedding %ids, %w : tensor<1xi32>, tensor<3x2xf32> -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @index(%rows: tensor<3x2xf32>) -> tensor<1x2xf32> {
  %i = arith.constant dense<-1> : tensor<1xi32>
  // expected-error @+1 {{index -1 at token 0 is outside of 3 rows}}
  %0 = stem.lookup %rows, %i : tensor<3x2xf32>, tensor<1xi32> -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @slice(%x: tensor<?xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{the slice leaves its tensor at [4]}}
  %0 = tensor.extract_slice %x[3] [2] [1] : tensor<?xf32> to tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @block(%a: tensor<1x2xf32>, %b: !stem.packed<2x64xf32>, %c: tensor<1x64xf32>) -> tensor<1x64xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  // expected-error @+1 {{block of 2 x 64 at [0, 64] does not fit into '!stem.packed<2x64xf32>'}}
  %0 = stem.packed_matmul %a, %b[%c0, %c64] into %c : (tensor<1x2xf32>, !stem.packed<2x64xf32>, tensor<1x64xf32>, index, index) -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}

// -----

// expected-error @+1 {{stem.role of argument 0 must be "ids", "positions" or "sequences", got "names"}}
func.func @role(%x: tensor<?xi32> {stem.role = "names"}) {
  return
}

// -----

// expected-error @+1 {{argument 0 names @w, which is not a stem.param or stem.table}}
func.func @param(%x: tensor<2xf32> {stem.param = @w}) {
  return
}

// -----

// expected-error @+1 {{argument 0 is too large for the interpreter}}
func.func @large(%x: tensor<1000000x1000000xf32>) {
  return
}

// -----

func.func @step(%x: index) {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{the step must be positive, got 0}}
  scf.for %i = %c0 to %c0 step %x {
  }
  return
}
