// What version 2 of the dialect added, and the same as bytecode in the frozen
// file beside it, which every later version has to read.
//
// RUN: stem-opt %s -o %t.text
// RUN: stem-opt %S/stem-v2.mlirbc -o %t.frozen
// RUN: diff %t.text %t.frozen

module {
  stem.param @gate = "mlp.gate" : tensor<16x8xbf16>
  func.func @load() -> (tensor<8x16xbf16>, !stem.packed<16x8xbf16>) {
    %0 = stem.param_load transposed @gate : tensor<8x16xbf16>
    %1 = stem.param_load transposed @gate : !stem.packed<16x8xbf16>
    return %0, %1 : tensor<8x16xbf16>, !stem.packed<16x8xbf16>
  }
  func.func @pieces(%x: tensor<?x8xf32>, %w: tensor<8xf32>, %i: tensor<?xi32>) {
    %0 = stem.rms_norm_input_vjp %x, %w, %x {eps = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %1:3 = stem.gate_vjp %x, %x, %x : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
    %2 = stem.sum_rows %x by %i {padding_id = 1 : i64} : (tensor<?xi32>, tensor<?x8xf32>) -> tensor<4x8xf32>
    %3 = stem.sum_rows %x by %i onto %2 : (tensor<?xi32>, tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = stem.sum_tokens %x : tensor<?x8xf32> -> tensor<4xf32>
    return
  }
  func.func @loss(%x: tensor<?x8xf32>, %head: tensor<16x8xf32>, %back: tensor<8x16xf32>, %labels: tensor<?xi32>, %c: tensor<?xf32>) {
    %0:3 = stem.cross_entropy_step %x, %head, %labels, %c : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<16x8xf32>)
    %1:3 = stem.cross_entropy_step %x, %head, %labels, %c transposed %back : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<?xi32>, tensor<?xf32>, tensor<8x16xf32>) -> (tensor<?xf32>, tensor<?x8xf32>, tensor<16x8xf32>)
    return
  }
  func.func @sums(%x: tensor<64x8xf32>, %panel: tensor<1x4096xf32>, %out: tensor<8x64xf32>, %acc: tensor<8x8xf32>, %adds: i1) {
    %0 = stem.pack_tokens %x into %panel : (tensor<64x8xf32>, tensor<1x4096xf32>) -> tensor<1x4096xf32>
    %1 = stem.transpose_tokens %x into %out : (tensor<64x8xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    %2 = stem.panel_matmul %1, %0 into %acc accumulate %adds {depth = 64 : i64} : (tensor<8x64xf32>, tensor<1x4096xf32>, tensor<8x8xf32>, i1) -> tensor<8x8xf32>
    return
  }
}
