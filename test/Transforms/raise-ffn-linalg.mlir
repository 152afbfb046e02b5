// RUN: stem-opt %s --stem-raise-ffn | FileCheck %s
// RUN: stem-opt %s --stem-differential=stem-pipeline=stem-raise-ffn 2>&1 | FileCheck %s --check-prefix=NUMBERS

// The ways in which linalg says the same FFN; the second line runs each before
// and after and compares the numbers.
// NUMBERS: 15 comparisons agree

#id = affine_map<(i, j) -> (i, j)>
#transpose = affine_map<(i, j) -> (j, i)>
#row0 = affine_map<(i, j) -> (0, j)>
#last = affine_map<(i, j) -> (j)>
#id3 = affine_map<(b, i, j) -> (b, i, j)>
#last3 = affine_map<(b, i, j) -> (j)>
#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#bmk = affine_map<(b, m, n, k) -> (b, m, k)>
#kn = affine_map<(b, m, n, k) -> (k, n)>
#bmn = affine_map<(b, m, n, k) -> (b, m, n)>

// Every commutative op turned round, up before gate, named ops, ones as a tensor.
// CHECK-LABEL: func @either_order(
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>, %[[WG:.*]]: tensor<8x12xf32>, %[[WU:.*]]: tensor<8x12xf32>, %[[WD:.*]]: tensor<12x8xf32>
// CHECK: %[[G:.*]] = linalg.transpose ins(%[[WG]] :
// CHECK: %[[U:.*]] = linalg.transpose ins(%[[WU]] :
// CHECK: %[[D:.*]] = linalg.transpose ins(%[[WD]] :
// CHECK: %[[Y:.*]] = stem.dense_ffn %[[X]] gate %[[G]] up %[[U]] down %[[D]]
// CHECK-NEXT: return %[[Y]]
func.func @either_order(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %ones = linalg.fill ins(%c1 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %n = linalg.negf ins(%g : tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ex = linalg.exp ins(%n : tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %s = linalg.add ins(%ones, %ex : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %r = linalg.div ins(%ones, %s : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ur = linalg.mul ins(%u, %r : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.mul ins(%ur, %g : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Weights [out, in] through indexing maps.
// CHECK-LABEL: func @transposed_maps(
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>, %[[WG:.*]]: tensor<12x8xf32>, %[[WU:.*]]: tensor<12x8xf32>, %[[WD:.*]]: tensor<8x12xf32>
// CHECK-NOT: linalg
// CHECK: stem.dense_ffn %[[X]] gate %[[WG]] up %[[WU]] down %[[WD]]
// CHECK-NEXT: return
func.func @transposed_maps(%x: tensor<4x8xf32>, %wg: tensor<12x8xf32>, %wu: tensor<12x8xf32>, %wd: tensor<8x12xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %wg : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %wu : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %y = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%h, %wd : tensor<4x12xf32>, tensor<8x12xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// One transpose is used as it is, two cancel, a generic one counts.
// CHECK-LABEL: func @transposes(
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>, %[[WG:.*]]: tensor<12x8xf32>, %[[WU:.*]]: tensor<12x8xf32>, %[[WD:.*]]: tensor<8x12xf32>
// CHECK-NOT: linalg
// CHECK: stem.dense_ffn %[[X]] gate %[[WG]] up %[[WU]] down %[[WD]]
// CHECK-NEXT: return
func.func @transposes(%x: tensor<4x8xf32>, %wg: tensor<12x8xf32>, %wu: tensor<12x8xf32>, %wd: tensor<8x12xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %ei = tensor.empty() : tensor<8x12xf32>
  %eo = tensor.empty() : tensor<12x8xf32>
  %gt = linalg.transpose ins(%wg : tensor<12x8xf32>) outs(%ei : tensor<8x12xf32>) permutation = [1, 0]
  %ut = linalg.transpose ins(%wu : tensor<12x8xf32>) outs(%ei : tensor<8x12xf32>) permutation = [1, 0]
  %utt = linalg.transpose ins(%ut : tensor<8x12xf32>) outs(%eo : tensor<12x8xf32>) permutation = [1, 0]
  %uttt = linalg.generic {indexing_maps = [#transpose, #id], iterator_types = ["parallel", "parallel"]}
      ins(%utt : tensor<12x8xf32>) outs(%ei : tensor<8x12xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x12xf32>
  %dt = linalg.transpose ins(%wd : tensor<8x12xf32>) outs(%eo : tensor<12x8xf32>) permutation = [1, 0]
  %g = linalg.matmul ins(%x, %gt : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %uttt : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %y = linalg.matmul ins(%h, %dt : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// A product as a generic, the weight first; 0 - x; 1.0 inside.
// CHECK-LABEL: func @generic_product(
// CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>, %[[WG:.*]]: tensor<12x8xf32>, %[[WU:.*]]: tensor<12x8xf32>, %[[WD:.*]]: tensor<8x12xf32>
// CHECK-NOT: linalg
// CHECK: stem.dense_ffn %[[X]] gate %[[WG]] up %[[WU]] down %[[WD]]
// CHECK-NEXT: return
func.func @generic_product(%x: tensor<4x8xf32>, %wg: tensor<12x8xf32>, %wu: tensor<12x8xf32>, %wd: tensor<8x12xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.generic {indexing_maps = [#nk, #mk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%wg, %x : tensor<12x8xf32>, tensor<4x8xf32>) outs(%z : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<4x12xf32>
  %u = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %wu : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %n = arith.subf %zero, %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %one, %ex : f32
    %q = arith.divf %one, %s : f32
    %p = arith.mulf %b, %q : f32
    %p2 = arith.mulf %a, %p : f32
    linalg.yield %p2 : f32
  } -> tensor<4x12xf32>
  %y = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%h, %wd : tensor<4x12xf32>, tensor<8x12xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Biases: what the product starts from, an added row, an add after a reshape.
// CHECK-LABEL: func @biases(
// CHECK-SAME: %[[BG:[a-z0-9]*]]: tensor<12xf32>, %[[BU:.*]]: tensor<1x12xf32>, %[[BD:.*]]: tensor<8xf32>)
// CHECK: %[[B:.*]] = tensor.collapse_shape %[[BU]] {{\[\[}}0, 1]] : tensor<1x12xf32> into tensor<12xf32>
// CHECK: %[[Y:.*]] = stem.dense_ffn {{.*}} gate_bias %[[BG]] up_bias %[[B]] down_bias %[[BD]]
// CHECK: %[[E:.*]] = tensor.expand_shape %[[Y]]
// CHECK-NEXT: return %[[E]]
func.func @biases(%x: tensor<4x8xf32>, %wg: tensor<12x8xf32>, %wu: tensor<12x8xf32>, %wd: tensor<8x12xf32>, %bg: tensor<12xf32>, %bu: tensor<1x12xf32>, %bd: tensor<8xf32>) -> tensor<2x2x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %gi = linalg.broadcast ins(%bg : tensor<12xf32>) outs(%e : tensor<4x12xf32>) dimensions = [0]
  %g = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %wg : tensor<4x8xf32>, tensor<12x8xf32>) outs(%gi : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u0 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %wu : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.generic {indexing_maps = [#row0, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%bu, %u0 : tensor<1x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %y0 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%h, %wd : tensor<4x12xf32>, tensor<8x12xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  %y1 = tensor.expand_shape %y0 [[0, 1], [2]] output_shape [2, 2, 8] : tensor<4x8xf32> into tensor<2x2x8xf32>
  %e3 = tensor.empty() : tensor<2x2x8xf32>
  %y = linalg.generic {indexing_maps = [#id3, #last3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y1, %bd : tensor<2x2x8xf32>, tensor<8xf32>) outs(%e3 : tensor<2x2x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<2x2x8xf32>
  return %y : tensor<2x2x8xf32>
}

// Batched with weights that are repeated for each batch.
// CHECK-LABEL: func @batched(
// CHECK: %[[X:.*]] = tensor.collapse_shape %{{.*}} {{\[\[}}0, 1], [2]] : tensor<2x4x8xf32> into tensor<8x8xf32>
// CHECK: %[[Y:.*]] = stem.dense_ffn %[[X]]
// CHECK-NEXT: tensor.expand_shape %[[Y]] {{\[\[}}0, 1], [2]] output_shape [2, 4, 8]
func.func @batched(%x: tensor<2x4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<2x4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<2x4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<2x4x12xf32>) -> tensor<2x4x12xf32>
  %ed = tensor.empty() : tensor<2x4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %e1 = tensor.empty() : tensor<2x8x12xf32>
  %bg = linalg.broadcast ins(%wg : tensor<8x12xf32>) outs(%e1 : tensor<2x8x12xf32>) dimensions = [0]
  %e2 = tensor.empty() : tensor<2x8x12xf32>
  %bu = linalg.broadcast ins(%wu : tensor<8x12xf32>) outs(%e2 : tensor<2x8x12xf32>) dimensions = [0]
  %e3 = tensor.empty() : tensor<2x12x8xf32>
  %bd = linalg.broadcast ins(%wd : tensor<12x8xf32>) outs(%e3 : tensor<2x12x8xf32>) dimensions = [0]
  %g = linalg.batch_matmul ins(%x, %bg : tensor<2x4x8xf32>, tensor<2x8x12xf32>) outs(%z : tensor<2x4x12xf32>) -> tensor<2x4x12xf32>
  %u = linalg.batch_matmul ins(%x, %bu : tensor<2x4x8xf32>, tensor<2x8x12xf32>) outs(%z : tensor<2x4x12xf32>) -> tensor<2x4x12xf32>
  %h = linalg.generic {indexing_maps = [#id3, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%g, %u : tensor<2x4x12xf32>, tensor<2x4x12xf32>) outs(%e : tensor<2x4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<2x4x12xf32>
  %y = linalg.batch_matmul ins(%h, %bd : tensor<2x4x12xf32>, tensor<2x12x8xf32>) outs(%zd : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %y : tensor<2x4x8xf32>
}

// Batched with weights that have no batch dimension.
// CHECK-LABEL: func @batched_maps(
// CHECK: %[[X:.*]] = tensor.collapse_shape %{{.*}} {{\[\[}}0, 1], [2]] : tensor<2x4x8xf32> into tensor<8x8xf32>
// CHECK: %[[Y:.*]] = stem.dense_ffn %[[X]]
// CHECK-NEXT: tensor.expand_shape %[[Y]] {{\[\[}}0, 1], [2]] output_shape [2, 4, 8]
func.func @batched_maps(%x: tensor<2x4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<2x4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<2x4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<2x4x12xf32>) -> tensor<2x4x12xf32>
  %ed = tensor.empty() : tensor<2x4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %g = linalg.batch_matmul indexing_maps = [#bmk, #kn, #bmn]
      ins(%x, %wg : tensor<2x4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<2x4x12xf32>) -> tensor<2x4x12xf32>
  %u = linalg.batch_matmul indexing_maps = [#bmk, #kn, #bmn]
      ins(%x, %wu : tensor<2x4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<2x4x12xf32>) -> tensor<2x4x12xf32>
  %h = linalg.generic {indexing_maps = [#id3, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%g, %u : tensor<2x4x12xf32>, tensor<2x4x12xf32>) outs(%e : tensor<2x4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<2x4x12xf32>
  %y = linalg.batch_matmul indexing_maps = [#bmk, #kn, #bmn]
      ins(%h, %wd : tensor<2x4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %y : tensor<2x4x8xf32>
}

// A dynamic number of tokens; the size is asked of a value between the products.
// CHECK-LABEL: func @dynamic(
// CHECK: stem.dense_ffn
// CHECK-NOT: linalg.matmul
func.func @dynamic(%x: tensor<?x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %i0 = arith.constant 0 : index
  %t = tensor.dim %x, %i0 : tensor<?x8xf32>
  %e0 = tensor.empty(%t) : tensor<?x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e0 : tensor<?x12xf32>) -> tensor<?x12xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<?x8xf32>, tensor<8x12xf32>) outs(%z : tensor<?x12xf32>) -> tensor<?x12xf32>
  %tg = tensor.dim %g, %i0 : tensor<?x12xf32>
  %e = tensor.empty(%tg) : tensor<?x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<?x8xf32>, tensor<8x12xf32>) outs(%z : tensor<?x12xf32>) -> tensor<?x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<?x12xf32>, tensor<?x12xf32>) outs(%e : tensor<?x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<?x12xf32>
  %ed = tensor.empty(%t) : tensor<?x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<?x8xf32>) -> tensor<?x8xf32>
  %y = linalg.matmul ins(%h, %wd : tensor<?x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// Two dynamic dimensions.
// CHECK-LABEL: func @dynamic_batch(
// CHECK: stem.dense_ffn
// CHECK: tensor.expand_shape
// CHECK-NOT: linalg.batch_matmul
func.func @dynamic_batch(%x: tensor<?x?x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %i0 = arith.constant 0 : index
  %i1 = arith.constant 1 : index
  %t = tensor.dim %x, %i0 : tensor<?x?x8xf32>
  %s1 = tensor.dim %x, %i1 : tensor<?x?x8xf32>
  %e = tensor.empty(%t, %s1) : tensor<?x?x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<?x?x12xf32>) -> tensor<?x?x12xf32>
  %ed = tensor.empty(%t, %s1) : tensor<?x?x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %g = linalg.batch_matmul indexing_maps = [#bmk, #kn, #bmn]
      ins(%x, %wg : tensor<?x?x8xf32>, tensor<8x12xf32>) outs(%z : tensor<?x?x12xf32>) -> tensor<?x?x12xf32>
  %u = linalg.batch_matmul indexing_maps = [#bmk, #kn, #bmn]
      ins(%x, %wu : tensor<?x?x8xf32>, tensor<8x12xf32>) outs(%z : tensor<?x?x12xf32>) -> tensor<?x?x12xf32>
  %h = linalg.generic {indexing_maps = [#id3, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%g, %u : tensor<?x?x12xf32>, tensor<?x?x12xf32>) outs(%e : tensor<?x?x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<?x?x12xf32>
  %y = linalg.batch_matmul indexing_maps = [#bmk, #kn, #bmn]
      ins(%h, %wd : tensor<?x?x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  return %y : tensor<?x?x8xf32>
}

// bf16 with sums in f32, rounded to bf16 after every step, as PyTorch has it.
// CHECK-LABEL: func @bf16(
// CHECK: %[[Y:.*]] = stem.dense_ffn {{.*}} up_bias {{.*}} -> tensor<4x8xf32>
// CHECK: arith.truncf
// CHECK-NOT: linalg.matmul
func.func @bf16(%x: tensor<4x8xbf16>, %wg: tensor<8x12xbf16>, %wu: tensor<8x12xbf16>, %wd: tensor<12x8xbf16>, %bu: tensor<12xbf16>) -> tensor<4x8xbf16> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %eb = tensor.empty() : tensor<4x12xbf16>
  %eyb = tensor.empty() : tensor<4x8xbf16>
  %g32 = linalg.matmul ins(%x, %wg : tensor<4x8xbf16>, tensor<8x12xbf16>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g32 : tensor<4x12xf32>) outs(%eb : tensor<4x12xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x12xbf16>
  %u32 = linalg.matmul ins(%x, %wu : tensor<4x8xbf16>, tensor<8x12xbf16>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u32 : tensor<4x12xf32>) outs(%eb : tensor<4x12xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x12xbf16>
  %u = linalg.generic {indexing_maps = [#id, #last, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u0, %bu : tensor<4x12xbf16>, tensor<12xbf16>) outs(%eb : tensor<4x12xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %s = arith.addf %a, %b : bf16
    linalg.yield %s : bf16
  } -> tensor<4x12xbf16>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g : tensor<4x12xbf16>) outs(%eb : tensor<4x12xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %w = arith.extf %a : bf16 to f32
    %n = arith.negf %w : f32
    %ex = math.exp %n : f32
    %d = arith.addf %ex, %c1 : f32
    %q = arith.divf %c1, %d : f32
    %p = arith.mulf %q, %w : f32
    %t = arith.truncf %p : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x12xbf16>
  %h = linalg.mul ins(%s, %u : tensor<4x12xbf16>, tensor<4x12xbf16>) outs(%eb : tensor<4x12xbf16>) -> tensor<4x12xbf16>
  %y32 = linalg.matmul ins(%h, %wd : tensor<4x12xbf16>, tensor<12x8xbf16>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y32 : tensor<4x8xf32>) outs(%eyb : tensor<4x8xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x8xbf16>
  return %y : tensor<4x8xbf16>
}

// bf16 that is widened before each product is a product of bf16.
// CHECK-LABEL: func @bf16_widened(
// CHECK-NOT: arith.extf
// CHECK: stem.dense_ffn {{.*}} : (tensor<4x8xbf16>, tensor<12x8xbf16>, tensor<12x8xbf16>, tensor<8x12xbf16>) -> tensor<4x8xf32>
func.func @bf16_widened(%x: tensor<4x8xbf16>, %wg: tensor<8x12xbf16>, %wu: tensor<8x12xbf16>, %wd: tensor<12x8xbf16>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %eb = tensor.empty() : tensor<4x12xbf16>
  %x32 = arith.extf %x : tensor<4x8xbf16> to tensor<4x8xf32>
  %wg32 = arith.extf %wg : tensor<8x12xbf16> to tensor<8x12xf32>
  %wu32 = arith.extf %wu : tensor<8x12xbf16> to tensor<8x12xf32>
  %wd32 = arith.extf %wd : tensor<12x8xbf16> to tensor<12x8xf32>
  %g = linalg.matmul ins(%x32, %wg32 : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x32, %wu32 : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h32 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %hb = arith.truncf %h32 : tensor<4x12xf32> to tensor<4x12xbf16>
  %h = arith.extf %hb : tensor<4x12xbf16> to tensor<4x12xf32>
  %y = linalg.matmul ins(%h, %wd32 : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Without the rounding the weights stay widened: f32 is not narrowed.
// CHECK-LABEL: func @bf16_weights_only(
// CHECK-COUNT-3: arith.extf
// CHECK: stem.dense_ffn {{.*}} : (tensor<4x8xf32>, tensor<12x8xf32>, tensor<12x8xf32>, tensor<8x12xf32>)
func.func @bf16_weights_only(%x: tensor<4x8xf32>, %wg: tensor<8x12xbf16>, %wu: tensor<8x12xbf16>, %wd: tensor<12x8xbf16>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %wg32 = arith.extf %wg : tensor<8x12xbf16> to tensor<8x12xf32>
  %wu32 = arith.extf %wu : tensor<8x12xbf16> to tensor<8x12xf32>
  %wd32 = arith.extf %wd : tensor<12x8xbf16> to tensor<12x8xf32>
  %g = linalg.matmul ins(%x, %wg32 : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu32 : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %y = linalg.matmul ins(%h, %wd32 : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// linalg.elementwise, linalg.map, and arith and math on tensors.
// CHECK-LABEL: func @elementwise(
// CHECK: stem.dense_ffn
// CHECK-NOT: linalg.matmul
func.func @elementwise(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %n = linalg.elementwise kind=#linalg.elementwise_kind<negf> ins(%g : tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ex = math.exp %n : tensor<4x12xf32>
  %ones = arith.constant dense<1.0> : tensor<4x12xf32>
  %s = arith.addf %ex, %ones : tensor<4x12xf32>
  %q = linalg.map { arith.divf } ins(%g, %s : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>)
  %h = linalg.elementwise kind=#linalg.elementwise_kind<mul> ins(%q, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Two layers with residuals in one function, weights as parameters.
stem.param @l0.g = "l0.g" : tensor<12x8xf32>
stem.param @l0.u = "l0.u" : tensor<12x8xf32>
stem.param @l0.d = "l0.d" : tensor<8x12xf32>
stem.param @l1.g = "l1.g" : tensor<12x8xf32>
stem.param @l1.u = "l1.u" : tensor<12x8xf32>
stem.param @l1.d = "l1.d" : tensor<8x12xf32>

// CHECK-LABEL: func @layers(
// CHECK: %[[F0:.*]] = stem.dense_ffn %[[X:.*]] gate
// CHECK: %[[R0:.*]] = linalg.add ins(%[[X]], %[[F0]]
// CHECK: %[[F1:.*]] = stem.dense_ffn %[[R0]] gate
// CHECK: linalg.add ins(%[[R0]], %[[F1]]
// CHECK-NOT: linalg.matmul
func.func @layers(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g0 = stem.param_load @l0.g : tensor<12x8xf32>
  %u0 = stem.param_load @l0.u : tensor<12x8xf32>
  %d0 = stem.param_load @l0.d : tensor<8x12xf32>
  %gg0 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %g0 : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %uu0 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%x, %u0 : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%gg0, %uu0 : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %f0 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%h0, %d0 : tensor<4x12xf32>, tensor<8x12xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  %r0 = linalg.add ins(%x, %f0 : tensor<4x8xf32>, tensor<4x8xf32>) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g1 = stem.param_load @l1.g : tensor<12x8xf32>
  %u1 = stem.param_load @l1.u : tensor<12x8xf32>
  %d1 = stem.param_load @l1.d : tensor<8x12xf32>
  %gg1 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%r0, %g1 : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %uu1 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%r0, %u1 : tensor<4x8xf32>, tensor<12x8xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%gg1, %uu1 : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %f1 = linalg.matmul indexing_maps = [#mk, #nk, #mn]
      ins(%h1, %d1 : tensor<4x12xf32>, tensor<8x12xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = linalg.add ins(%r0, %f1 : tensor<4x8xf32>, tensor<4x8xf32>) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// With one token a residual has the shape of a bias and is none; a parameter is.
stem.param @b = "b" : tensor<12xf32>

// CHECK-LABEL: func @one_token(
// CHECK: stem.dense_ffn {{.*}} gate_bias
// CHECK-NOT: down_bias
// CHECK: linalg.add
func.func @one_token(%x: tensor<1x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<1x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<1x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<1x12xf32>) -> tensor<1x12xf32>
  %ed = tensor.empty() : tensor<1x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<1x8xf32>) -> tensor<1x8xf32>
  %bias = stem.param_load @b : tensor<12xf32>
  %b1 = tensor.expand_shape %bias [[0, 1]] output_shape [1, 12] : tensor<12xf32> into tensor<1x12xf32>
  %g0 = linalg.matmul ins(%x, %wg : tensor<1x8xf32>, tensor<8x12xf32>) outs(%z : tensor<1x12xf32>) -> tensor<1x12xf32>
  %g = linalg.add ins(%g0, %b1 : tensor<1x12xf32>, tensor<1x12xf32>) outs(%e : tensor<1x12xf32>) -> tensor<1x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<1x8xf32>, tensor<8x12xf32>) outs(%z : tensor<1x12xf32>) -> tensor<1x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<1x12xf32>, tensor<1x12xf32>) outs(%e : tensor<1x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<1x12xf32>
  %f = linalg.matmul ins(%h, %wd : tensor<1x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<1x8xf32>) -> tensor<1x8xf32>
  %y = linalg.add ins(%x, %f : tensor<1x8xf32>, tensor<1x8xf32>) outs(%ed : tensor<1x8xf32>) -> tensor<1x8xf32>
  return %y : tensor<1x8xf32>
}
