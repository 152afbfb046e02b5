// RUN: stem-opt %s --stem-print-cost='stem-tokens=4 stem-gflops=1 stem-bandwidth-gbs=1' -o /dev/null | FileCheck %s
// RUN: stem-opt %s --stem-print-cost='stem-tokens=4 stem-gflops=1 stem-bandwidth-gbs=1 stem-json=true' -o /dev/null | %python -m json.tool --compact | FileCheck %s --check-prefix=JSON
// RUN: not stem-opt %s --stem-print-cost='stem-tokens=0' 2>&1 | FileCheck %s --check-prefix=ERROR

// ERROR: error: stem-tokens, stem-gflops and stem-bandwidth-gbs must be positive

// 2 * 4 * 128 multiply-adds and 4 * 5 * 8 for the gate; 4 tokens of 8 and 8
// 16 floats, 128 weights.
// CHECK: @layer
// CHECK-NEXT: op {{ *}}FLOPs {{ *}}bytes {{ *}}parameters {{ *}}FLOP/B {{ *}}share  bound
// CHECK-NEXT: stem.linear {{ *}}1024 {{ *}}896 {{ *}}128 {{ *}}1.14 {{ *}}78.0%  compute
// CHECK-NEXT: stem.rope {{ *}}96 {{ *}}288 {{ *}}0 {{ *}}0.33 {{ *}}22.0%  memory
// CHECK-NEXT: sum {{ *}}1120 {{ *}}1184 {{ *}}128 {{ *}}0.95 {{ *}}100.0%
// CHECK-NEXT: roofline time 0.001312 ms
func.func private @layer(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %c: tensor<?x1xf32>) -> tensor<?x16xf32> {
  %y = stem.linear %x, %w : tensor<?x8xf32>, tensor<16x8xf32> -> tensor<?x16xf32>
  %z = stem.rope %x, %c, %c : tensor<?x8xf32>, tensor<?x1xf32>, tensor<?x1xf32> -> tensor<?x8xf32>
  return %y : tensor<?x16xf32>
}

// A call costs what it calls.
// CHECK: @twice
// CHECK: call @layer {{ *}}1120 {{ *}}1184 {{ *}}128
// CHECK-NEXT: call @layer {{ *}}1120 {{ *}}1184 {{ *}}128
// CHECK-NEXT: sum {{ *}}2240 {{ *}}2368 {{ *}}256
func.func @twice(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %c: tensor<?x1xf32>) -> tensor<?x16xf32> {
  %0 = call @layer(%x, %w, %c) : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x1xf32>) -> tensor<?x16xf32>
  %1 = call @layer(%x, %w, %c) : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?x1xf32>) -> tensor<?x16xf32>
  return %1 : tensor<?x16xf32>
}

// JSON: {"schema":"stem.cost/1","tokens":4,"gflops":1,"bandwidth_gbs":1,"functions":[{"name":"layer","ops":[{"op":"stem.linear","flops":1024,"bytes":896,"parameters":128,
// JSON-SAME: {"name":"twice"
