// RUN: stem-opt %s --stem-raise-ffn --allow-unregistered-dialect | FileCheck %s

// IR that is valid and strange: nothing to raise but what is marked, no crash.

#id = affine_map<(i, j) -> (i, j)>
#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#sparse = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>

// CHECK-LABEL: func @buffers(
// CHECK-NOT: stem.dense_ffn
func.func @buffers(%x: memref<4x8xf32>, %w: memref<8x12xf32>, %y: memref<4x12xf32>) {
  linalg.matmul ins(%x, %w : memref<4x8xf32>, memref<8x12xf32>) outs(%y : memref<4x12xf32>)
  linalg.exp ins(%y : memref<4x12xf32>) outs(%y : memref<4x12xf32>)
  return
}

// Blocks that are not reached may use values before they are defined.
// CHECK-LABEL: func @cycles(
// CHECK-NOT: stem.dense_ffn
func.func @cycles(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
^unreached:
  %a = tensor.cast %b : tensor<4x8xf32> to tensor<4x8xf32>
  %b = tensor.cast %a : tensor<4x8xf32> to tensor<4x8xf32>
  %c = arith.mulf %d, %a : tensor<4x8xf32>
  %d = math.exp %c : tensor<4x8xf32>
  %wt = tensor.cast %wt2 : tensor<8x8xf32> to tensor<8x8xf32>
  %wt2 = tensor.cast %wt : tensor<8x8xf32> to tensor<8x8xf32>
  %y = linalg.matmul ins(%c, %wt : tensor<4x8xf32>, tensor<8x8xf32>) outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// CHECK-LABEL: func @integers(
// CHECK-NOT: stem.dense_ffn
func.func @integers(%x: tensor<4x8xi32>, %w: tensor<8x12xi32>, %v: tensor<12x8xi32>, %z: tensor<4x12xi32>, %y: tensor<4x8xi32>) -> tensor<4x8xi32> {
  %0 = linalg.matmul ins(%x, %w : tensor<4x8xi32>, tensor<8x12xi32>) outs(%z : tensor<4x12xi32>) -> tensor<4x12xi32>
  %1 = arith.muli %0, %0 : tensor<4x12xi32>
  %2 = linalg.matmul ins(%1, %v : tensor<4x12xi32>, tensor<12x8xi32>) outs(%y : tensor<4x8xi32>) -> tensor<4x8xi32>
  return %2 : tensor<4x8xi32>
}

// CHECK-LABEL: func @unknown_ops(
// CHECK-NOT: stem.dense_ffn
func.func @unknown_ops(%x: tensor<*xf32>, %w: tensor<12x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = tensor.cast %x : tensor<*xf32> to tensor<4x12xf32>
  %1 = "other.op"(%0) : (tensor<4x12xf32>) -> tensor<4x12xf32>
  %2 = tosa.sigmoid %1 : (tensor<4x12xf32>) -> tensor<4x12xf32>
  %3 = arith.mulf %2, %0 : tensor<4x12xf32>
  %4 = linalg.matmul ins(%3, %w : tensor<4x12xf32>, tensor<12x8xf32>) outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %4 : tensor<4x8xf32>
}

// Sparse weights stay.
// CHECK-LABEL: func @sparse(
// CHECK-NOT: stem.dense_ffn
// CHECK: return
func.func @sparse(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32, #sparse>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %z = arith.constant dense<0.0> : tensor<4x12xf32>
  %zd = arith.constant dense<0.0> : tensor<4x8xf32>
  %one = arith.constant dense<1.0> : tensor<4x12xf32>
  %g = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32, #sparse>) outs(%z : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %n = arith.negf %g : tensor<4x12xf32>
  %e = math.exp %n : tensor<4x12xf32>
  %d = arith.addf %e, %one : tensor<4x12xf32>
  %q = arith.divf %g, %d : tensor<4x12xf32>
  %h = arith.mulf %q, %u : tensor<4x12xf32>
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Products and gate in the branches and bodies of other ops: raised where the
// down-projection stands. One generic with two results, one of them used.
// CHECK-LABEL: func @regions(
// CHECK: scf.if
// CHECK: stem.dense_ffn
// CHECK: scf.yield
// CHECK-NOT: linalg.matmul
func.func @regions(%c: i1, %x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %z = arith.constant dense<0.0> : tensor<4x12xf32>
  %zd = arith.constant dense<0.0> : tensor<4x8xf32>
  %one = arith.constant 1.0 : f32
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %r = scf.if %c -> tensor<4x8xf32> {
    %h:2 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%z, %z : tensor<4x12xf32>, tensor<4x12xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32, %o2: f32):
      %n = arith.negf %a : f32
      %e = math.exp %n : f32
      %d = arith.addf %e, %one : f32
      %q = arith.divf %a, %d : f32
      %p = arith.mulf %q, %b : f32
      linalg.yield %q, %p : f32, f32
    } -> (tensor<4x12xf32>, tensor<4x12xf32>)
    %y = linalg.matmul ins(%h#1, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
    scf.yield %y : tensor<4x8xf32>
  } else {
    scf.yield %x : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}
