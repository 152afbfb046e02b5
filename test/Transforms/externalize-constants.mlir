// RUN: rm -rf %t && mkdir %t
// RUN: stem-opt %s --stem-externalize-constants='stem-file=%t/w.safetensors stem-min-elements=4' | FileCheck %s
// RUN: %python %S/Inputs/print_safetensors.py %t/w.safetensors | FileCheck %s --check-prefix=FILE

// Without a constant to write there is no file.
// RUN: stem-opt %s --stem-externalize-constants='stem-file=%t/none.safetensors stem-min-elements=1000' --remarks-filter=stem-externalize-constants --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: ls %t | FileCheck %s --check-prefix=LIST
// LIST-NOT: none

// The errors; none leaves a file.
// RUN: not stem-opt %s --stem-externalize-constants 2>&1 | FileCheck %s --check-prefix=NOFILE
// RUN: not stem-opt %s --stem-externalize-constants='stem-file=%t/missing/w.safetensors stem-min-elements=4' 2>&1 | FileCheck %s --check-prefix=NODIR
// RUN: cp %s %t/module.mlir
// RUN: not stem-opt %t/module.mlir --stem-externalize-constants='stem-file=%t/module.mlir stem-min-elements=4' 2>&1 | FileCheck %s --check-prefix=ITSELF
// RUN: cmp %s %t/module.mlir
// ITSELF: error: {{.*}}module.mlir: exists and is not a safetensors file; stem-file names the file to write
// RUN: not stem-opt %s --stem-externalize-constants='stem-file=/dev/zero stem-min-elements=4' 2>&1 | FileCheck %s --check-prefix=DEVICE
// DEVICE: error: /dev/zero: exists and is not a safetensors file
// What was written before may be written again, and an empty file too.
// RUN: stem-opt %s --stem-externalize-constants='stem-file=%t/w.safetensors stem-min-elements=4' -o /dev/null
// RUN: touch %t/empty && stem-opt %s --stem-externalize-constants='stem-file=%t/empty stem-min-elements=4' -o /dev/null
// RUN: cmp %t/w.safetensors %t/empty
// NONE: no float constant has 1000 elements or more; no file is written
// NOFILE: stem-externalize-constants needs a file to write: give it stem-file=PATH
// NODIR: error: {{.*}}missing

// CHECK:      stem.param @other = "g.0" : tensor<2xf32>
// CHECK-NEXT: stem.param @f.0 = "f.0" : tensor<2x2xf32>
// CHECK-NEXT: stem.param @f.1 = "f.1" : tensor<1x2x3xbf16>
// CHECK-NEXT: stem.param @layer.weight = "layer.weight" : tensor<4xf32>
// CHECK-NEXT: stem.param @f.2 = "f.2" : tensor<5xf16>
// CHECK-NEXT: stem.param @f.3 = "f.3" : tensor<4xf64>
// CHECK-NEXT: stem.param @g.0_1 = "g.0_1" : tensor<4xf32>

// FILE: f.0 F32 [2, 2] 0000803f000000400000404000008040
// FILE: f.1 BF16 [1, 2, 3] 003f003f003f003f003f003f
// FILE: layer.weight F32 [4] 0000803f000000400000404000008040
// FILE: f.2 F16 [5] 003c003c003c003c003c
// FILE: f.3 F64 [4] 000000000000f03f000000000000004000000000000008400000000000001040
// FILE: g.0_1 F32 [4] 0000803f000000bf000080bf00000000
stem.param @other = "g.0" : tensor<2xf32>

// CHECK-LABEL: func.func @f(
func.func @f(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<1x2x3xbf16>, tensor<4xf32>, tensor<5xf16>, tensor<4xf64>, tensor<2xf32>) {
  // CHECK-NEXT: %[[W:.*]] = stem.param_load @f.0 : tensor<2x2xf32>
  // CHECK-NEXT: %[[B:.*]] = stem.param_load @f.1 : tensor<1x2x3xbf16>
  // CHECK-NEXT: %[[R:.*]] = stem.param_load @layer.weight : tensor<4xf32>
  // CHECK-NEXT: %[[H:.*]] = stem.param_load @f.2 : tensor<5xf16>
  // CHECK-NEXT: %[[D:.*]] = stem.param_load @f.3 : tensor<4xf64>
  %0 = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %1 = "tosa.const"() <{values = dense<0.5> : tensor<1x2x3xbf16>}> : () -> tensor<1x2x3xbf16>
  %2 = arith.constant dense_resource<layer.weight> : tensor<4xf32>
  %3 = arith.constant dense<1.0> : tensor<5xf16>
  %4 = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf64>
  // Small, a start of a sum, a scale of a tensor of the same shape, integers.
  // CHECK-NEXT: arith.constant dense<1.000000e+00> : tensor<2xf32>
  // CHECK-NEXT: arith.constant dense<0.000000e+00> : tensor<2x2xf32>
  // CHECK-NEXT: arith.constant dense<2.000000e+00> : tensor<2x2xf32>
  // CHECK-NEXT: arith.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  // CHECK-NEXT: linalg.matmul ins(%{{.*}}, %[[W]]
  %5 = arith.constant dense<1.0> : tensor<2xf32>
  %6 = arith.constant dense<0.0> : tensor<2x2xf32>
  %7 = arith.constant dense<2.0> : tensor<2x2xf32>
  %ids = arith.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %8 = linalg.matmul ins(%x, %0 : tensor<2x2xf32>, tensor<2x2xf32>) outs(%6 : tensor<2x2xf32>) -> tensor<2x2xf32>
  %9 = linalg.mul ins(%8, %7 : tensor<2x2xf32>, tensor<2x2xf32>) outs(%6 : tensor<2x2xf32>) -> tensor<2x2xf32>
  // CHECK: return %{{.*}}, %[[B]], %[[R]], %[[H]], %[[D]]
  return %9, %1, %2, %3, %4, %5 : tensor<2x2xf32>, tensor<1x2x3xbf16>, tensor<4xf32>, tensor<5xf16>, tensor<4xf64>, tensor<2xf32>
}

// The same resource is the same parameter; a key that is taken gets a number.
// CHECK-LABEL: func.func @g(
func.func @g() -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>) {
  // CHECK-NEXT: stem.param_load @layer.weight : tensor<4xf32>
  // CHECK-NEXT: stem.param_load @g.0_1 : tensor<4xf32>
  %0 = arith.constant dense_resource<layer.weight> : tensor<4xf32>
  %1 = arith.constant dense<[1.0, -0.5, -1.0, 0.0]> : tensor<4xf32>
  %2 = stem.param_load @other : tensor<2xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<2xf32>
}

{-#
  dialect_resources: {
    builtin: {
      layer.weight: "0x040000000000803F000000400000404000008040"
    }
  }
#-}
