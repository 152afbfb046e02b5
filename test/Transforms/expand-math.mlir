// RUN: stem-opt %s -stem-expand-math | FileCheck %s
// RUN: stem-opt %s -stem-expand-math=stem-native-bf16 | FileCheck %s --check-prefix=NATIVE
// RUN: stem-opt %s -stem-expand-math -verify-diagnostics \
// RUN:   --remarks-filter=stem-expand-math -o %t

// The values are checked by expand-math-values.mlir.

// CHECK-LABEL: func @rsqrt
// CHECK: %[[ONE:.*]] = arith.constant dense<1.000000e+00> : vector<16xf32>
// CHECK: %[[S:.*]] = math.sqrt %{{.*}} : vector<16xf32>
// CHECK: %[[Y:.*]] = arith.divf %[[ONE]], %[[S]] : vector<16xf32>
// CHECK: return %[[Y]]
func.func @rsqrt(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.rsqrt %x : vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func @all
// CHECK-NOT: math.{{(exp|exp2|log|tanh|sin|cos) }}
// CHECK: return
func.func @all(%x: f32, %v: vector<4x16xf32>, %d: vector<8xf64>)
    -> (f32, vector<4x16xf32>, vector<8xf64>) {
  %0 = math.exp %x : f32
  %1 = math.exp2 %0 : f32
  %2 = math.log %1 : f32
  %3 = math.tanh %2 : f32
  %4 = math.exp %v : vector<4x16xf32>
  %5 = math.sin %4 : vector<4x16xf32>
  %6 = math.cos %5 : vector<4x16xf32>
  %7 = math.sin %d : vector<8xf64>
  %8 = math.cos %7 : vector<8xf64>
  return %3, %6, %8 : f32, vector<4x16xf32>, vector<8xf64>
}

// The argument of sin is reduced in f64.

// CHECK-LABEL: func @sin
// CHECK: arith.extf %{{.*}} : f32 to f64
// CHECK: arith.truncf %{{.*}} : f64 to f32
func.func @sin(%x: f32) -> f32 {
  %y = math.sin %x : f32
  return %y : f32
}

// CHECK-LABEL: func @to_bf16
// CHECK: arith.bitcast %{{.*}} : vector<16xf32> to vector<16xi32>
// CHECK-NOT: arith.truncf
// CHECK: return
// NATIVE-LABEL: func @to_bf16
// NATIVE-NEXT: %[[Y:.*]] = arith.truncf
// NATIVE-NEXT: return %[[Y]]
func.func @to_bf16(%x: vector<16xf32>) -> vector<16xbf16> {
  %y = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %y : vector<16xbf16>
}

// NaN wherever one operand is: the first by a choice, the second as the
// comparison is false.

// CHECK-LABEL: func @extremum
// CHECK-SAME: %[[X:.*]]: vector<16xf32>, %[[Y:.*]]: vector<16xf32>
// CHECK: %[[MORE:.*]] = arith.cmpf ogt, %[[X]], %[[Y]]
// CHECK: %[[BEST:.*]] = arith.select %[[MORE]], %[[X]], %[[Y]]
// CHECK: %[[NAN:.*]] = arith.cmpf uno, %[[X]], %[[X]]
// CHECK: %[[MAX:.*]] = arith.select %[[NAN]], %[[X]], %[[BEST]]
// CHECK: arith.cmpf olt, %[[MAX]], %[[Y]]
func.func @extremum(%x: vector<16xf32>, %y: vector<16xf32>) -> vector<16xf32> {
  %0 = arith.maximumf %x, %y : vector<16xf32>
  %1 = arith.minimumf %0, %y : vector<16xf32>
  return %1 : vector<16xf32>
}

// CHECK-LABEL: func @extremum_nnan
// CHECK: %[[MORE:.*]] = arith.cmpf ogt
// CHECK-NEXT: %[[MAX:.*]] = arith.select %[[MORE]]
// CHECK-NEXT: return %[[MAX]]
func.func @extremum_nnan(%x: vector<16xf32>, %y: vector<16xf32>) -> vector<16xf32> {
  %0 = arith.maximumf %x, %y fastmath<nnan> : vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func @kept
// CHECK: math.exp %{{.*}} : f64
// CHECK: math.tanh %{{.*}} : tensor<4xf32>
// CHECK: math.powf
// CHECK: arith.truncf %{{.*}} toward_zero
func.func @kept(%d: f64, %t: tensor<4xf32>, %x: f32)
    -> (f64, tensor<4xf32>, f32, bf16) {
  // expected-remark @below {{no polynomial for f64}}
  %0 = math.exp %d : f64
  // expected-remark @below {{no polynomial for tensor<4xf32>}}
  %1 = math.tanh %t : tensor<4xf32>
  %2 = math.powf %x, %x : f32
  %3 = arith.truncf %x toward_zero : f32 to bf16
  return %0, %1, %2, %3 : f64, tensor<4xf32>, f32, bf16
}
