// RUN: stem-opt %s --stem-interpret='stem-function=sums stem-print=full' -o /dev/null | FileCheck %s --check-prefix=SUMS
// RUN: stem-opt %s --stem-interpret='stem-function=update stem-print=full' -o /dev/null | FileCheck %s --check-prefix=UPDATE
// RUN: stem-opt %s --stem-interpret='stem-function=unchanged stem-print=full' -o /dev/null | FileCheck %s --check-prefix=UNCHANGED

// A sum takes the place of what was there.
// SUMS: @sums
// SUMS-NEXT: result 0 [2]:
// SUMS-NEXT: 25 75
// SUMS-NEXT: result 1 [1]:
// SUMS-NEXT: 1
func.func @sums() -> (tensor<2xf64>, tensor<1xf32>) {
  %x = arith.constant dense<[3.0, 4.0]> : tensor<2xf32>
  %s = arith.constant dense<[7.0, 75.0]> : tensor<2xf64>
  %0 = stem.sum_squares %x into %s[0] : tensor<2xf32>, tensor<2xf64>
  %1 = stem.gradient_scale %0 : tensor<2xf64>
  return %0, %1 : tensor<2xf64>, tensor<1xf32>
}

// g = 2: m = 4 + (2 - 4) / 2 = 3, v = 4 + (4 - 4) / 2 = 4,
// w = 8 - (8 / 4 + 1/2 * 3 / (2 * 2 + 1)) = 5.7; without the decay 7.7.
// UPDATE: @update
// UPDATE-NEXT: result 0 [1]:
// UPDATE-NEXT: 5.7
// UPDATE-NEXT: result 1 [1]:
// UPDATE-NEXT: 3
// UPDATE-NEXT: result 2 [1]:
// UPDATE-NEXT: 4
// UPDATE-NEXT: result 3 [1]:
// UPDATE-NEXT: 7.7
func.func @update() -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) {
  %g = arith.constant dense<4.0> : tensor<1xf32>
  %w = arith.constant dense<8.0> : tensor<1xf32>
  %m = arith.constant dense<4.0> : tensor<1xf32>
  %s = arith.constant dense<[0.5, 2.0, 0.25]> : tensor<3xf32>
  %c = arith.constant dense<0.5> : tensor<1xf32>
  %0:3 = stem.adamw %g into %w, %m, %m step %s scale %c {beta1 = 0.5 : f64, beta2 = 0.5 : f64, decays, epsilon = 1.0 : f64} : tensor<1xf32>
  %1:3 = stem.adamw %g into %w, %m, %m step %s scale %c {beta1 = 0.5 : f64, beta2 = 0.5 : f64, epsilon = 1.0 : f64} : tensor<1xf32>
  return %0#0, %0#1, %0#2, %1#0 : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
}

// UNCHANGED: @unchanged
// UNCHANGED-NEXT: result 0 [1]:
// UNCHANGED-NEXT: nan
// UNCHANGED-NEXT: result 1 [1]:
// UNCHANGED-NEXT: 8
// UNCHANGED-NEXT: result 2 [1]:
// UNCHANGED-NEXT: 4
// UNCHANGED-NEXT: result 3 [1]:
// UNCHANGED-NEXT: 4
func.func @unchanged() -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) {
  %g = arith.constant dense<0x7F800000> : tensor<1xf32>
  %w = arith.constant dense<8.0> : tensor<1xf32>
  %m = arith.constant dense<4.0> : tensor<1xf32>
  %s = arith.constant dense<[0.5, 2.0, 0.25]> : tensor<3xf32>
  %z = arith.constant dense<0.0> : tensor<1xf64>
  %sum = stem.sum_squares %g into %z[0] : tensor<1xf32>, tensor<1xf64>
  %c = stem.gradient_scale %sum : tensor<1xf64>
  %0:3 = stem.adamw %g into %w, %m, %m step %s scale %c {beta1 = 0.5 : f64, beta2 = 0.5 : f64, epsilon = 1.0 : f64} : tensor<1xf32>
  return %c, %0#0, %0#1, %0#2 : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
}
