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

// -----

stem.param @w = "w" : tensor<1000000x1000000xf32>
// expected-error @+1 {{argument 0 is too large for the interpreter}}
func.func @large_param(%x: tensor<1000000x1000000xf32> {stem.param = @w}) {
  return
}

// -----

func.func @sine(%x: tensor<4x8xf32>, %c: tensor<4x2xf32>, %s: tensor<4x3xf32>) -> tensor<4x8xf32> {
  %t = tensor.cast %s : tensor<4x3xf32> to tensor<4x?xf32>
  // expected-error @+1 {{columns of sin is 3, expected 2}}
  %0 = stem.rope %x, %c, %t : tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x?xf32> -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @page(%c: !stem.kv_cache, %l: index, %s: i32) -> !stem.packed<4x64xf32> {
  %minus = arith.constant -1 : index
  // expected-error @+1 {{there is no page -1 of head 0}}
  %0 = stem.kv_page %c[%l, %s, %minus, %l] : !stem.packed<4x64xf32>
  return %0 : !stem.packed<4x64xf32>
}

// -----

func.func @far(%x: tensor<4xf32>) -> tensor<1xf32> {
  %i = arith.constant 9223372036854775807 : index
  // expected-error @+1 {{the slice leaves its tensor at [9223372036854775807]}}
  %0 = tensor.extract_slice %x[%i] [1] [1] : tensor<4xf32> to tensor<1xf32>
  return %0 : tensor<1xf32>
}

// -----

func.func @place() -> tensor<2x2xf32> {
  %source = tensor.empty() : tensor<2x2xf32>
  %dynamic = tensor.cast %source : tensor<2x2xf32> to tensor<?x2xf32>
  %target = tensor.empty() : tensor<2x2xf32>
  %minus = arith.constant -1 : index
  // expected-error @+1 {{a slice cannot have the size -1}}
  %0 = tensor.insert_slice %dynamic into %target[0, 0] [%minus, 2] [1, 1] : tensor<?x2xf32> into tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// -----

func.func @map(%x: tensor<?xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %i = arith.constant 1 : index
  %s = tensor.extract_slice %x[0] [%i] [1] : tensor<?xf32> to tensor<?xf32>
  // expected-error @+1 {{an indexing map leaves its operand}}
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i * 3)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%s : tensor<?xf32>) outs(%y : tensor<2xf32>) {
  ^bb0(%a: f32, %b: f32):
    linalg.yield %a : f32
  } -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @selected(%u: tensor<?x4xf32>, %x: tensor<?x2xf32>, %w: tensor<4x2xf32>, %i: tensor<?xi32>) -> tensor<?x4xf32> {
  %s = arith.constant dense<[2, 5, 5]> : tensor<3xi32>
  // expected-error @+1 {{the selected ids must rise, but 5 follows 5}}
  %0 = stem.select_up %u, %x weight %w ids %i in %s : (tensor<?x4xf32>, tensor<?x2xf32>, tensor<4x2xf32>, tensor<?xi32>, tensor<3xi32>) -> tensor<?x4xf32>
  return %0 : tensor<?x4xf32>
}

// -----

func.func @broadcast(%x: tensor<?xf32>, %y: tensor<3xf32>) -> tensor<?xf32> {
  %z = tensor.cast %y : tensor<3xf32> to tensor<?xf32>
  // expected-error @+1 {{operand 1 has size 3 in dimension 0, one before it 4; sizes that differ must be 1}}
  %0 = tosa.add %x, %z : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @shift(%x: tensor<4xi32>) -> tensor<4xi32> {
  %s = "tosa.const"() <{values = dense<3> : tensor<1xi8>}> : () -> tensor<1xi8>
  // expected-error @+1 {{has a shift of 3; the interpreter knows 0 only}}
  %0 = tosa.mul %x, %x, %s : (tensor<4xi32>, tensor<4xi32>, tensor<1xi8>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// -----

func.func @negative_shape(%x: tensor<4xf32>) -> tensor<?x?xf32> {
  %s = arith.constant dense<[2, -2]> : tensor<2xi32>
  // expected-error @+1 {{the new shape [2, -2] is not valid; wanted sizes of at least 0 whose product fits in 64 bits}}
  %0 = tensor.reshape %x(%s) : (tensor<4xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

func.func @padding(%x: tensor<4xf32>) -> tensor<?xf32> {
  %minus = arith.constant -1 : index
  %zero = arith.constant 0.0 : f32
  // expected-error @+1 {{pads dimension 0 of size 4 by -1 and 0; wanted at least 0, and a sum that fits in 64 bits}}
  %0 = tensor.pad %x low[%minus] high[0] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

func.func @far_bounds() {
  %low = arith.constant -9223372036854775808 : index
  %high = arith.constant 9223372036854775807 : index
  // expected-error @+1 {{the bounds -9223372036854775808 and 9223372036854775807 are too far apart; wanted a difference that fits in 64 bits}}
  scf.forall (%i) = (%low) to (%high) step (1) {
  }
  return
}

// -----

func.func @sparse_constant() -> tensor<4xf32> {
  // expected-error @+1 {{the interpreter cannot read this constant of type 'tensor<4xf32>': wanted dense elements, or a resource of the file with as many bytes as the type has}}
  %0 = arith.constant sparse<[[1]], 2.0> : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @missing_resource() -> tensor<4xf32> {
  // expected-error @+1 {{the interpreter cannot read this constant of type 'tensor<4xf32>': wanted dense elements}}
  %0 = arith.constant dense_resource<missing> : tensor<4xf32>
  return %0 : tensor<4xf32>
}
