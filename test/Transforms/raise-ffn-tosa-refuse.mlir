// RUN: stem-opt %s --stem-raise-ffn --verify-diagnostics --remarks-filter=stem-raise-ffn --remark-format=emitRemark | FileCheck %s

// CHECK-NOT: stem.dense_ffn

func.func @tanh(%x: tensor<1x4x8xf32>, %wg: tensor<1x8x12xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %t = tosa.tanh %g : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %q = tosa.mul %t, %g, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %h = tosa.mul %q, %u, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  // expected-remark @below {{the gate goes through tosa.tanh (a GELU or the like)}}
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

func.func @erf(%x: tensor<1x4x8xf32>, %wg: tensor<1x8x12xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %t = tosa.erf %g : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %q = tosa.mul %t, %g, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %h = tosa.mul %q, %u, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  // expected-remark @below {{the gate goes through tosa.erf (a GELU or the like)}}
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

func.func @clamp(%x: tensor<1x4x8xf32>, %wg: tensor<1x8x12xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %q = tosa.clamp %g {min_val = 0.0 : f32, max_val = 3.4e38 : f32} : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %h = tosa.mul %q, %u, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  // expected-remark @below {{the gate goes through tosa.clamp (a ReLU or the like)}}
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

func.func @zero_point(%x: tensor<1x4x8xf32>, %wg: tensor<1x8x12xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>, %zp: tensor<1xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %s = tosa.sigmoid %g : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %q = tosa.mul %g, %s, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %h = tosa.mul %q, %u, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  // expected-remark @below {{a zero point of tosa.matmul is not zero}}
  %y = tosa.matmul %h, %wd, %zp, %zp : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

func.func @repeated(%x: tensor<1x4x8xf32>, %wg: tensor<1x8x12xf32>, %u: tensor<1x4x1xf32>, %wd: tensor<1x12x8xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %s = tosa.sigmoid %g : (tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %q = tosa.mul %g, %s, %sh : (tensor<1x4x12xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  %h = tosa.mul %q, %u, %sh : (tensor<1x4x12xf32>, tensor<1x4x1xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  // expected-remark @below {{the up side is not a matrix product}}
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}

func.func @repeated_gate(%x: tensor<1x4x8xf32>, %wg: tensor<1x8x1xf32>, %wu: tensor<1x8x12xf32>, %wd: tensor<1x12x8xf32>) -> tensor<1x4x8xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %sh = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
  %u = tosa.matmul %x, %wu, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x12xf32>
  %g = tosa.matmul %x, %wg, %z, %z : (tensor<1x4x8xf32>, tensor<1x8x1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x1xf32>
  %s = tosa.sigmoid %g : (tensor<1x4x1xf32>) -> tensor<1x4x1xf32>
  %q = tosa.mul %g, %s, %sh : (tensor<1x4x1xf32>, tensor<1x4x1xf32>, tensor<1xi8>) -> tensor<1x4x1xf32>
  %h = tosa.mul %q, %u, %sh : (tensor<1x4x1xf32>, tensor<1x4x12xf32>, tensor<1xi8>) -> tensor<1x4x12xf32>
  // expected-remark @below {{tosa.mul, which repeats elements}}
  %y = tosa.matmul %h, %wd, %z, %z : (tensor<1x4x12xf32>, tensor<1x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x4x8xf32>
  return %y : tensor<1x4x8xf32>
}
