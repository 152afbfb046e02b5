// RUN: stem-opt %s -split-input-file -verify-diagnostics

// Each numbered constraint of the optimizer's ops: the function's name says
// which.

func.func @sum_squares_c1(%x: tensor<4xf32>, %s: tensor<3xf64>) {
  // expected-error @+1 {{'stem.sum_squares' op place is 3, but there are 3 sums}}
  %0 = stem.sum_squares %x into %s[3] : tensor<4xf32>, tensor<3xf64>
  return
}

// -----

func.func @sum_squares_c1_negative(%x: tensor<4xf32>, %s: tensor<3xf64>) {
  // expected-error @+1 {{'stem.sum_squares' op place is -1, but there are 3 sums}}
  %0 = stem.sum_squares %x into %s[-1] : tensor<4xf32>, tensor<3xf64>
  return
}

// -----

func.func @sum_squares_c1_dynamic(%x: tensor<4xf32>, %s: tensor<?xf64>) {
  // expected-error @+1 {{'stem.sum_squares' op the number of sums must be static, got 'tensor<?xf64>'}}
  %0 = stem.sum_squares %x into %s[0] : tensor<4xf32>, tensor<?xf64>
  return
}

// -----

func.func @gradient_scale_c1(%s: tensor<?xf64>) {
  // expected-error @+1 {{'stem.gradient_scale' op the number of sums must be static, got 'tensor<?xf64>'}}
  %0 = stem.gradient_scale %s : tensor<?xf64>
  return
}

// -----

func.func @adamw_c1(%w: tensor<?x4xf32>, %s: tensor<3xf32>, %c: tensor<1xf32>) {
  // expected-error @+1 {{'stem.adamw' op all shapes must be static, got 'tensor<?x4xf32>'}}
  %0:3 = stem.adamw %w into %w, %w, %w step %s scale %c {beta1 = 0.9 : f64, beta2 = 0.95 : f64, epsilon = 1.0e-8 : f64} : tensor<?x4xf32>
  return
}

// -----

func.func @adamw_c2(%w: tensor<4xf32>, %s: tensor<3xf32>, %c: tensor<1xf32>) {
  // expected-error @+1 {{'stem.adamw' op beta1 must be 0 or more and less than 1, got 1.000000e+00}}
  %0:3 = stem.adamw %w into %w, %w, %w step %s scale %c {beta1 = 1.0 : f64, beta2 = 0.95 : f64, epsilon = 1.0e-8 : f64} : tensor<4xf32>
  return
}

// -----

func.func @adamw_c2_second(%w: tensor<4xf32>, %s: tensor<3xf32>, %c: tensor<1xf32>) {
  // expected-error @+1 {{'stem.adamw' op beta2 must be 0 or more and less than 1, got -1.000000e+00}}
  %0:3 = stem.adamw %w into %w, %w, %w step %s scale %c {beta1 = 0.9 : f64, beta2 = -1.0 : f64, epsilon = 1.0e-8 : f64} : tensor<4xf32>
  return
}

// -----

func.func @adamw_c3(%w: tensor<4xf32>, %s: tensor<3xf32>, %c: tensor<1xf32>) {
  // expected-error @+1 {{'stem.adamw' op epsilon must be 1e-12 to 1, got 0.000000e+00}}
  %0:3 = stem.adamw %w into %w, %w, %w step %s scale %c {beta1 = 0.9 : f64, beta2 = 0.95 : f64, epsilon = 0.0 : f64} : tensor<4xf32>
  return
}
