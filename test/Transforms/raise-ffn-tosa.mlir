// RUN: stem-opt %s --stem-raise-ffn | FileCheck %s
// RUN: stem-opt %s --stem-differential=stem-pipeline=stem-raise-ffn 2>&1 | FileCheck %s --check-prefix=NUMBERS

// The same FFN in TOSA; the second line compares numbers before and after.
// NUMBERS: 5 comparisons agree

// As torch-mlir writes it, with a batch that becomes rows.
// CHECK-LABEL: func @sigmoid(
// CHECK: %[[X:.*]] = tensor.collapse_shape %{{.*}} {{\[\[}}0, 1], [2]] : tensor<2x2x8xf32> into tensor<4x8xf32>
// CHECK: %[[Y:.*]] = stem.dense_ffn %[[X]] gate
// CHECK: %[[E:.*]] = tensor.expand_shape %[[Y]] {{\[\[}}0, 1], [2]] output_shape [2, 2, 8]
// CHECK-NEXT: return %[[E]]
func.func @sigmoid(%x3: tensor<2x2x8xf32>, %wg: tensor<1x8x12xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>) -> tensor<2x2x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %rows = tosa.const_shape {values = dense<[1, 4, 8]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %batch = tosa.const_shape {values = dense<[2, 2, 8]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %x = tosa.reshape %x3, %rows : (tensor<2x2x8xf32>, !tosa.shape<3>) -> tensor<1x4x8xf32>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %s = tosa.sigmoid %g : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %q = tosa.mul %g, %s, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %h = tosa.mul %u, %q, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %y0 = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  %y = tosa.reshape %y0, %batch : (tensor<1x4x8xf32>, !tosa.shape<3>) -> tensor<2x2x8xf32>
  return %y : tensor<2x2x8xf32>
}

// g * reciprocal(1 + exp(-g)), the one and the zero broadcast; weights [out, in].
// CHECK-LABEL: func @reciprocal(
// CHECK-NOT: transpose
// CHECK: %[[G:.*]] = tensor.collapse_shape %arg1 {{\[\[}}0, 1], [2]] : tensor<1x12x8xf32> into tensor<12x8xf32>
// CHECK: %[[U:.*]] = tensor.collapse_shape %arg2
// CHECK: %[[D:.*]] = tensor.collapse_shape %arg3
// CHECK: stem.dense_ffn %{{.*}} gate %[[G]] up %[[U]] down %[[D]]
func.func @reciprocal(%x: tensor<1x4x8xf32>, %wgt: tensor<1x12x8xf32>, %wut: tensor<1x12x8xf32>, %wdt: tensor<1x8x12xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %one = "tosa.const"() <{values = dense<1.0> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %zero = "tosa.const"() <{values = dense<0.0> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %wg = tosa.transpose %wgt {perms = array<i32: 0, 2, 1>} : (tensor<1x12x8xf32>) -> tensor<1x8x12xf32>
  %wu = tosa.transpose %wut {perms = array<i32: 0, 2, 1>} : (tensor<1x12x8xf32>) -> tensor<1x8x12xf32>
  %wd = tosa.transpose %wdt {perms = array<i32: 0, 2, 1>} : (tensor<1x8x12xf32>) -> tensor<1x12x8xf32>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %n = tosa.negate %g, %z, %z : (tensor<1x4x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %ex = tosa.exp %n : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %d = tosa.add %one, %ex : (tensor<1x1x1xf32>, tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %r = tosa.reciprocal %d : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %ru = tosa.mul %r, %u, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %h = tosa.mul %ru, %g, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

// Biases as rows, 0 - g.
// CHECK-LABEL: func @biases(
// CHECK: stem.dense_ffn {{.*}} gate_bias {{.*}} up_bias {{.*}} down_bias
// CHECK-NEXT: tensor.expand_shape
// CHECK-NEXT: return
func.func @biases(%x: tensor<1x4x8xf32>, %wg: tensor<1x8x12xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>, %bg: tensor<1x1x12xf32>, %bu: tensor<1x1x12xf32>, %bd: tensor<1x1x8xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %one = "tosa.const"() <{values = dense<1.0> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %zero = "tosa.const"() <{values = dense<0.0> : tensor<1x1x1xf32>}> : () -> tensor<1x1x1xf32>
  %g0 = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %g = tosa.add %g0, %bg : (tensor<1x4x12xf32>, tensor<1x1x12xf32>) -> tensor<1x4x12xf32>
  %u0 = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %u = tosa.add %bu, %u0 : (tensor<1x1x12xf32>, tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %n = tosa.sub %zero, %g : (tensor<1x1x1xf32>, tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %ex = tosa.exp %n : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %d = tosa.add %ex, %one : (tensor<1x4x12xf32>, tensor<1x1x1xf32>) -> tensor<1x4x12xf32>
  %r = tosa.reciprocal %d : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %q = tosa.mul %g, %r, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %h = tosa.mul %q, %u, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %y0 = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  %y = tosa.add %y0, %bd : (tensor<1x4x8xf32>, tensor<1x1x8xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

// bf16 with sums in f32.
// CHECK-LABEL: func @bf16(
// CHECK: stem.dense_ffn {{.*}} : (tensor<4x8xbf16>, tensor<12x8xbf16>, tensor<12x8xbf16>, tensor<8x12xbf16>) -> tensor<4x8xf32>
func.func @bf16(%x: tensor<1x4x8xbf16>, %wg: tensor<1x8x12xbf16>, %wu: tensor<1x8x12xbf16>, %wd: tensor<1x12x8xbf16>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xbf16>}> : () -> tensor<1xbf16>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xbf16>, tensor<1x8x12xbf16>, tensor<1xbf16>, tensor<1xbf16>) -> tensor<1x4x12xf32>
  %s = tosa.sigmoid %g : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %q = tosa.mul %g, %s, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %u32 = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xbf16>, tensor<1x8x12xbf16>, tensor<1xbf16>, tensor<1xbf16>) -> tensor<1x4x12xf32>
  %u = tosa.cast %u32 : (tensor<1x4x12xf32>) -> tensor<1x4x12xbf16>
  %qb = tosa.cast %q : (tensor<1x4x12xf32>) -> tensor<1x4x12xbf16>
  %h = tosa.mul %qb, %u, %sh : (tensor<1x4x12xbf16>, tensor<1x4x12xbf16>, tensor<1xi8>) -> tensor<1x4x12xbf16>
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xbf16>, tensor<1x12x8xbf16>, tensor<1xbf16>, tensor<1xbf16>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

// A dynamic number of tokens.
// CHECK-LABEL: func @dynamic(
// CHECK: %[[Y:.*]] = stem.dense_ffn {{.*}} -> tensor<?x8xf32>
// CHECK: tensor.expand_shape %[[Y]]
// CHECK-NOT: tosa.matmul
func.func @dynamic(%x: tensor<1x?x8xf32>, %wg: tensor<1x8x12xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>) -> tensor<1x?x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x?x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x?x12xf32>
  %s = tosa.sigmoid %g : (tensor<1x?x12xf32>) -> tensor<1x?x12xf32>
  %q = tosa.mul %g, %s, %sh : (tensor<1x?x12xf32>, tensor<1x?x12xf32>, tensor<1xi8>) -> tensor<1x?x12xf32>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x?x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x?x12xf32>
  %h = tosa.mul %u, %q, %sh : (tensor<1x?x12xf32>, tensor<1x?x12xf32>, tensor<1xi8>) -> tensor<1x?x12xf32>
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x?x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x?x8xf32>
  return %y : tensor<1x?x8xf32>
}
