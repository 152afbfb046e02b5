// RUN: stem-opt %s --stem-raise-ffn --verify-diagnostics --remarks-filter=stem-raise-ffn --remark-format=emitRemark | FileCheck %s

// What is not exactly SwiGLU stays, and a remark says why.
// CHECK-NOT: stem.dense_ffn

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
#kn2 = affine_map<(m, n, k) -> (k, n)>

func.func @gelu_tanh(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %half = arith.constant 0.5 : f32
    %t = math.tanh %a : f32
    %s = arith.addf %t, %c1 : f32
    %m = arith.mulf %s, %half : f32
    %q = arith.mulf %m, %a : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the gate goes through math.tanh (a GELU or the like)}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @gelu_erf(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = math.erf %a : f32
    %s = arith.addf %t, %c1 : f32
    %q = arith.mulf %s, %a : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the gate goes through math.erf (a GELU or the like)}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @relu(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.maximumf %a, %c0 : f32
    %p = arith.mulf %t, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the gate goes through arith.maximumf (a ReLU or the like)}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @beta(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %beta = arith.constant 1.702 : f32
    %sc = arith.mulf %a, %beta : f32
    %n = arith.negf %sc : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the sigmoid reads 1.7}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @not_one(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %c = arith.constant 1.001 : f32
    %s = arith.addf %ex, %c : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{a division is not of the form g / (1 + exp(-g))}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @no_negation(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %ex = math.exp %a : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the sigmoid reads -1.0}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @scaled(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %c = arith.constant 2.0 : f32
    %p0 = arith.mulf %q, %b : f32
    %p = arith.mulf %p0, %c : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the product of gate and up is scaled by 2.0}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @bilinear(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the product of gate and up has no SiLU}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @glu(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %c1, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the sigmoid reads another value than the one it multiplies}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @squared_up(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    %p2 = arith.mulf %p, %b : f32
    linalg.yield %p2 : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{has 3 factors, not SiLU(gate) and one more}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @gate_used(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> (tensor<4x8xf32>, tensor<4x12xf32>) {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the result of linalg.matmul, a value between the products, has another user (func.return)}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y, %g : tensor<4x8xf32>, tensor<4x12xf32>
}

func.func @product_used(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> (tensor<4x8xf32>, tensor<4x12xf32>) {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the result of linalg.generic, a value between the products, has another user (func.return)}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y, %h : tensor<4x8xf32>, tensor<4x12xf32>
}

func.func @weight_used(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> (tensor<4x8xf32>, tensor<8x12xf32>) {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the up weight has another user}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y, %wu : tensor<4x8xf32>, tensor<8x12xf32>
}

stem.param @shared = "shared" : tensor<12x8xf32>
func.func @param_used(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %wd = stem.param_load @shared : tensor<12x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the down weight, parameter @shared, has another user}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @param_user() -> tensor<12x8xf32> {
  %0 = stem.param_load @shared : tensor<12x8xf32>
  return %0 : tensor<12x8xf32>
}

func.func @two_inputs(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>, %x2: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x2, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{gate and up read different inputs}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @other_width(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x5xf32>, %z5: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the shapes of the weights do not agree: gate 8 x 12, up 8 x 12, down 12 x 5}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x5xf32>) outs(%z5 : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}

func.func @reshaped(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<6x8xf32>, %z8: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %h1 = tensor.expand_shape %h0 [[0], [1, 2]] output_shape [4, 2, 6] : tensor<4x12xf32> into tensor<4x2x6xf32>
  %h = tensor.collapse_shape %h1 [[0, 1], [2]] : tensor<4x2x6xf32> into tensor<8x6xf32>
  // expected-remark @below {{the values between the products go through tensor.expand_shape, which changes the last dimension}}
  %y = linalg.matmul ins(%h, %wd : tensor<8x6xf32>, tensor<6x8xf32>) outs(%z8 : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}

func.func @accumulates(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>, %acc: tensor<4x12xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%acc : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the up side is not one matrix product plus at most one bias}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @not_zero(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %z1 = linalg.fill ins(%c1 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z1 : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the gate side is not one matrix product plus at most one bias}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @uninitialised(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the down side is not one matrix product plus at most one bias}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @up_is_input(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %u: tensor<4x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the up side is not a matrix product}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @sums_in_bf16(%x: tensor<4x8xbf16>, %wg: tensor<8x12xbf16>, %wu: tensor<8x12xbf16>, %wd: tensor<12x8xbf16>) -> tensor<4x8xbf16> {
  %cb0 = arith.constant 0.0 : bf16
  %cb1 = arith.constant 1.0 : bf16
  %eb = tensor.empty() : tensor<4x12xbf16>
  %zb = linalg.fill ins(%cb0 : bf16) outs(%eb : tensor<4x12xbf16>) -> tensor<4x12xbf16>
  %edb = tensor.empty() : tensor<4x8xbf16>
  %zd = linalg.fill ins(%cb0 : bf16) outs(%edb : tensor<4x8xbf16>) -> tensor<4x8xbf16>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xbf16>, tensor<8x12xbf16>) outs(%zb : tensor<4x12xbf16>) -> tensor<4x12xbf16>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xbf16>, tensor<8x12xbf16>) outs(%zb : tensor<4x12xbf16>) -> tensor<4x12xbf16>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xbf16>, tensor<4x12xbf16>) outs(%zb : tensor<4x12xbf16>) {
  ^bb0(%a: bf16, %b: bf16, %o: bf16):
    %n = arith.negf %a : bf16
    %ex = math.exp %n : bf16
    %s = arith.addf %ex, %cb1 : bf16
    %q = arith.divf %a, %s : bf16
    %p = arith.mulf %q, %b : bf16
    linalg.yield %p : bf16
  } -> tensor<4x12xbf16>
  // expected-remark @below {{a product of bf16 sums in bf16, stem.dense_ffn in f32}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xbf16>, tensor<12x8xbf16>) outs(%zd : tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return %y : tensor<4x8xbf16>
}

func.func @rounded(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  %hb = arith.truncf %h0 : tensor<4x12xf32> to tensor<4x12xbf16>
  %h = arith.extf %hb : tensor<4x12xbf16> to tensor<4x12xf32>
  // expected-remark @below {{a value between products of f32 is rounded to bf16}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @mixed(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xbf16>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the activations and weights of the products do not have one type}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xbf16>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @tokens_last(%x: tensor<8x4xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul indexing_maps = [#km, #kn2, #mn]
      ins(%x, %wg : tensor<8x4xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul indexing_maps = [#km, #kn2, #mn]
      ins(%x, %wu : tensor<8x4xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the left operand of a product is not laid out with its tokens first}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @dynamic_weight(%x: tensor<4x?xf32>, %wg: tensor<?x12xf32>, %wu: tensor<?x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x?xf32>, tensor<?x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x?xf32>, tensor<?x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
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
  // expected-remark @below {{the shape of a weight is not static}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @permuted(%x: tensor<4x8xf32>, %wg: tensor<8x4xf32>, %wu: tensor<8x4xf32>, %wd: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %h = linalg.generic {indexing_maps = [#id, #transpose, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %p = arith.mulf %q, %b : f32
    linalg.yield %p : f32
  } -> tensor<4x4xf32>
  // expected-remark @below {{which permutes or repeats elements}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x4xf32>, tensor<4x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @activated_up(%x: tensor<4x8xf32>, %wg: tensor<8x12xf32>, %wu: tensor<8x12xf32>, %wd: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %wg : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %u = linalg.matmul ins(%x, %wu : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<4x12xf32>, tensor<4x12xf32>) outs(%e : tensor<4x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %n = arith.negf %a : f32
    %ex = math.exp %n : f32
    %s = arith.addf %ex, %c1 : f32
    %q = arith.divf %a, %s : f32
    %m = arith.maximumf %b, %c0 : f32
    %p = arith.mulf %q, %m : f32
    linalg.yield %p : f32
  } -> tensor<4x12xf32>
  // expected-remark @below {{the up side goes through arith.maximumf}}
  %y = linalg.matmul ins(%h, %wd : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// No remark for what does not look like an FFN.
func.func @two_linear_layers(%x: tensor<4x8xf32>, %w1: tensor<8x12xf32>, %w2: tensor<12x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x12xf32>
  %z = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x12xf32>) -> tensor<4x12xf32>
  %ed = tensor.empty() : tensor<4x8xf32>
  %zd = linalg.fill ins(%c0 : f32) outs(%ed : tensor<4x8xf32>) -> tensor<4x8xf32>
  %h = linalg.matmul ins(%x, %w1 : tensor<4x8xf32>, tensor<8x12xf32>) outs(%z : tensor<4x12xf32>) -> tensor<4x12xf32>
  %y = linalg.matmul ins(%h, %w2 : tensor<4x12xf32>, tensor<12x8xf32>) outs(%zd : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
