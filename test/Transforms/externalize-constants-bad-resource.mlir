// RUN: not stem-opt %s --split-input-file --stem-externalize-constants=stem-file=%t.safetensors 2>&1 | FileCheck %s
// RUN: not ls %t.safetensors

// What an exporter that elides resources leaves, and a torn resource.

// CHECK: error: the resource "gone" holds 0 bytes, wanted 64 for {{.*}}; export the module again without leaving resources out
func.func @elided() -> tensor<16xf32> {
  %0 = arith.constant dense_resource<gone> : tensor<16xf32>
  return %0 : tensor<16xf32>
}

// -----

// CHECK: error: the resource "short" holds 16 bytes, wanted 64
func.func @short() -> tensor<16xf32> {
  %0 = arith.constant dense_resource<short> : tensor<16xf32>
  return %0 : tensor<16xf32>
}

{-#
  dialect_resources: {
    builtin: {
      short: "0x040000000000803F000000400000404000008040"
    }
  }
#-}
