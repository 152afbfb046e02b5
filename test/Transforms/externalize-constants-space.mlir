// RUN: rm -rf %t && mkdir %t
// RUN: not stem-opt %s --stem-externalize-constants=stem-file=%t/w.safetensors 2>&1 | FileCheck %s
// RUN: ls -A %t | count 0

// A splat is short in the IR and long in the file: the space is checked first.
// CHECK: error: {{.*}}w.safetensors: the constants take {{.*}} PB, but only {{.*}} are free there
func.func @f(%x: tensor<1000000000000000000xf32>) -> tensor<1000000000000000000xf32> {
  %w = arith.constant dense<2.0> : tensor<1000000000000000000xf32>
  return %w : tensor<1000000000000000000xf32>
}
