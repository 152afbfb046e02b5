// RUN: stem-opt %s -split-input-file --stem-tile-tokens -verify-diagnostics --remarks-filter=stem-tile-tokens --remark-format=emitRemark | FileCheck %s

// One loop up to the attention, which needs every tile's keys, and one from
// it on; the residual stream is overwritten in place.
// CHECK-LABEL: func.func @layer
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x32xf32>, %[[W:[a-z0-9]+]]: tensor<32x32xf32>, %[[P:[a-z0-9]+]]: tensor<?xi32>, %[[S:[a-z0-9]+]]: tensor<?xi32>, %[[C:[a-z0-9]+]]: !stem.kv_cache, %[[L:[a-z0-9]+]]: index
// CHECK: %[[Q0:.*]] = tensor.empty(%{{.*}}) : tensor<?x32xf32>
// CHECK: %[[Q:.*]] = scf.forall (%[[I:.*]]) in (%{{.*}}) shared_outs(%[[OUT:.*]] = %[[Q0]])
// CHECK:   %[[AT:.*]] = arith.muli %[[I]], %{{.*}}
// CHECK:   %[[TILE:.*]] = tensor.extract_slice %[[X]][%[[AT]], 0] [64, 32] [1, 1]
// CHECK:   %[[LINEAR:.*]] = stem.linear %[[TILE]], %[[W]] : tensor<64x32xf32>, tensor<32x32xf32> -> tensor<64x32xf32>
// CHECK:   stem.kv_append %[[LINEAR]], %[[LINEAR]]
// CHECK-NOT: stem.attend
// CHECK:   tensor.parallel_insert_slice %[[LINEAR]] into %[[OUT]][%[[AT]], 0] [64, 32]
// CHECK: %[[R:.*]] = scf.forall {{.*}} shared_outs(%[[ROUT:.*]] = %[[X]])
// CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[Q]][
// CHECK-DAG: %[[XT:.*]] = tensor.extract_slice %[[ROUT]][
// CHECK:   %[[A:.*]] = stem.attend %[[QT]]
// CHECK:   arith.addf %[[A]], %[[XT]] : tensor<64x32xf32>
// CHECK: return %[[R]]
func.func @layer(%x: tensor<?x32xf32>, %w: tensor<32x32xf32>, %p: tensor<?xi32>, %s: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x32xf32> attributes {stem.tile = 64 : i64} {
  %q = stem.linear %x, %w : tensor<?x32xf32>, tensor<32x32xf32> -> tensor<?x32xf32>
  stem.kv_append %q, %q at %p of %s in %c[%l] : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32>
  %a = stem.attend %q at %p of %s cache %c[%l] {head_dim = 8 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  %y = arith.addf %a, %x : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// The argument marked stem.output takes the result.
// CHECK-LABEL: func.func @output
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: tensor<?x32xf32> {stem.output}
// CHECK: scf.forall {{.*}} shared_outs(%{{.*}} = %[[OUT]])
func.func @output(%x: tensor<?x32xf32>, %w: tensor<32x32xf32>, %out: tensor<?x32xf32> {stem.output}) -> tensor<?x32xf32> attributes {stem.tile = 64 : i64} {
  %q = stem.linear %x, %w : tensor<?x32xf32>, tensor<32x32xf32> -> tensor<?x32xf32>
  return %q : tensor<?x32xf32>
}

// An output of another type does not.
// CHECK-LABEL: func.func @other_output
// CHECK: %[[EMPTY:.*]] = tensor.empty(%{{.*}}) : tensor<?x16xf32>
// CHECK: scf.forall {{.*}} shared_outs(%{{.*}} = %[[EMPTY]])
func.func @other_output(%x: tensor<?x32xf32>, %w: tensor<16x32xf32>, %out: tensor<?x32xf32> {stem.output}) -> tensor<?x16xf32> attributes {stem.tile = 64 : i64} {
  %q = stem.linear %x, %w : tensor<?x32xf32>, tensor<16x32xf32> -> tensor<?x16xf32>
  return %q : tensor<?x16xf32>
}

// A value that an op reads whole ends the run; so does one inside a region.
// CHECK-LABEL: func.func @whole
// CHECK: %[[A:.*]] = scf.forall
// CHECK: %[[B:.*]] = scf.forall
// CHECK: tensor.dim %[[B]]
// CHECK: %[[C:.*]] = scf.forall
// CHECK: %[[D:.*]] = scf.if
// CHECK: arith.negf %[[C]]
// CHECK: return %[[D]]
func.func @whole(%x: tensor<?x32xf32>, %i: tensor<?xi32>, %b: i1) -> tensor<?x32xf32> attributes {stem.tile = 64 : i64} {
  %c0 = arith.constant 0 : index
  %0 = arith.negf %x : tensor<?x32xf32>
  %1 = stem.lookup %0, %i : tensor<?x32xf32>, tensor<?xi32> -> tensor<?x32xf32>
  %n = tensor.dim %1, %c0 : tensor<?x32xf32>
  %2 = math.exp %1 : tensor<?x32xf32>
  %3 = scf.if %b -> tensor<?x32xf32> {
    %4 = arith.negf %2 : tensor<?x32xf32>
    scf.yield %4 : tensor<?x32xf32>
  } else {
    scf.yield %x : tensor<?x32xf32>
  }
  return %3 : tensor<?x32xf32>
}

// One matrix is the tokens and the weight of one product, and a scalar
// condition has no rows.
// CHECK-LABEL: func.func @square
// CHECK-SAME: %[[W:[a-z0-9]+]]: tensor<64x64xf32>
// CHECK: %[[T:.*]] = tensor.extract_slice
// CHECK: stem.linear %[[T]], %[[W]] : tensor<64x64xf32>, tensor<64x64xf32>
func.func @square(%w: tensor<64x64xf32>) -> tensor<64x64xf32> attributes {stem.tile = 64 : i64} {
  %0 = stem.linear %w, %w : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
// CHECK-LABEL: func.func @scalar
// CHECK-SAME: %[[B:[a-z0-9]+]]: i1
// CHECK: arith.select %[[B]], %{{.*}}, %{{.*}} : tensor<64x8xf32>
func.func @scalar(%b: i1, %x: tensor<?x8xf32>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {stem.tile = 64 : i64} {
  %0 = arith.select %b, %x, %y : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// Keys of one layer are not overwritten while earlier tokens still attend.
// CHECK-LABEL: func.func @append_after
// CHECK: scf.forall
// CHECK: stem.attend
// CHECK: scf.forall
// CHECK: stem.kv_append
func.func @append_after(%q: tensor<?x32xf32>, %p: tensor<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<?x32xf32> attributes {stem.tile = 64 : i64} {
  %a = stem.attend %q at %p of %p cache %c[%l] {head_dim = 8 : i64, kv_heads = 4 : i64, scale = 1.0 : f64} : tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32> -> tensor<?x32xf32>
  stem.kv_append %q, %q at %p of %p in %c[%l] : tensor<?x32xf32>, tensor<?x32xf32>, tensor<?xi32>, tensor<?xi32>
  return %a : tensor<?x32xf32>
}

// Left alone: one token a tile, no tile, no body, elementwise ops on other
// tensors, and buffers.
// CHECK-LABEL: func.func @decode
// CHECK-NOT: scf.forall
func.func @decode(%x: tensor<?x32xf32>) -> tensor<?x32xf32> attributes {stem.tile = 1 : i64} {
  %0 = arith.negf %x : tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
func.func @untiled(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %0 = arith.negf %x : tensor<?x32xf32>
  return %0 : tensor<?x32xf32>
}
func.func private @external(tensor<?x32xf32>) attributes {stem.tile = 64 : i64}
func.func @weights(%w: tensor<32x32xf32>, %k: memref<?x32xf32>, %p: memref<?xi32>, %c: !stem.kv_cache, %l: index) -> tensor<32x32xf32> attributes {stem.tile = 64 : i64} {
  stem.kv_append %k, %k at %p of %p in %c[%l] : memref<?x32xf32>, memref<?x32xf32>, memref<?xi32>, memref<?xi32>
  %0 = arith.negf %w : tensor<32x32xf32>
  return %0 : tensor<32x32xf32>
}

// -----

// Gradients of weights that add up what the tiles make: chunks of 2048 tokens,
// of each its tiles, then the sums. What only a sum reads is there for a chunk:
// %p as panels, %d as it is; what is read elsewhere is whole, in its argument.
// CHECK-LABEL: func.func @sums
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x128xf32>, %[[C:[a-z0-9]+]]: tensor<?x32xf32>, %[[OUT:[a-z0-9]+]]: tensor<32x128xf32>
// CHECK: %[[OTHER:.*]] = tensor.empty() : tensor<32x128xf32>
// CHECK: %[[STEP:.*]] = arith.constant 2048 : index
// CHECK: %[[ALL:.*]]:3 = scf.for %[[FIRST:[a-z0-9]+]] = %[[ZERO:[^ ]*]] to %{{.*}} step %[[STEP]] iter_args(%[[YS:.*]] = %[[C]], %[[A:.*]] = %[[OUT]], %[[B:.*]] = %[[OTHER]])
// CHECK:   %[[COUNT:.*]] = arith.minui
// CHECK:   %[[LATER:.*]] = arith.cmpi ne, %[[FIRST]], %[[ZERO]]
// CHECK:   %[[PANELS:.*]] = tensor.empty() : tensor<2x131072xf32>
// CHECK:   %[[CHUNK:.*]] = tensor.empty() : tensor<2048x32xf32>
// CHECK:   %[[TILES:.*]]:3 = scf.forall (%[[I:.*]]) in (%{{.*}}) shared_outs(%[[YT:.*]] = %[[YS]], %[[PT:.*]] = %[[PANELS]], %[[CT:.*]] = %[[CHUNK]])
// CHECK:     %[[LOCAL:.*]] = arith.muli %[[I]]
// CHECK:     %[[AT:.*]] = arith.addi %[[FIRST]], %[[LOCAL]]
// CHECK:     tensor.extract_slice %[[X]][%[[AT]], 0] [64, 128]
// CHECK:     %[[P:.*]] = arith.negf %{{.*}} : tensor<64x128xf32>
// CHECK:     %[[D:.*]] = arith.negf %{{.*}} : tensor<64x32xf32>
// CHECK:     %[[E:.*]] = arith.addf %[[D]]
// CHECK:     %[[START:.*]] = arith.muli %[[LOCAL]]
// CHECK:     tensor.extract_slice %[[PT]][0, %[[START]]] [2, 4096]
// CHECK:     %[[ROWS:.*]] = scf.for
// CHECK:       stem.pack_tokens %{{.*}} into %{{.*}} : (tensor<64x64xf32>, tensor<1x4096xf32>)
// CHECK:     tensor.parallel_insert_slice %[[E]] into %[[YT]][%[[AT]], 0] [64, 32]
// CHECK:     tensor.parallel_insert_slice %[[ROWS]] into %[[PT]][0, %[[START]]] [2, 4096]
// CHECK:     tensor.parallel_insert_slice %[[D]] into %[[CT]][%[[LOCAL]], 0] [64, 32]
// CHECK:   %[[DS:.*]] = tensor.extract_slice %[[TILES]]#2[0, 0] [2048, 32]
// CHECK:   scf.forall {{.*}} shared_outs(%{{.*}} = %[[A]])
// CHECK:     tensor.extract_slice %[[DS]][0, %{{.*}}] [%[[COUNT]], %{{.*}}]
// CHECK:     stem.transpose_tokens
// CHECK:     stem.panel_matmul %{{.*}}, %[[TILES]]#1 into %{{.*}} accumulate %[[LATER]] {depth = 2048 : i64}
// CHECK:   scf.forall {{.*}} shared_outs(%{{.*}} = %[[B]])
// CHECK:     tensor.extract_slice %[[TILES]]#0[%[[FIRST]], %{{.*}}] [%[[COUNT]], %{{.*}}]
// CHECK:     stem.panel_matmul %{{.*}}, %[[TILES]]#1
// CHECK: return %[[ALL]]#1, %[[ALL]]#2, %[[ALL]]#0
func.func @sums(%x: tensor<?x128xf32>, %c: tensor<?x32xf32>, %out: tensor<32x128xf32> {stem.output}) -> (tensor<32x128xf32>, tensor<32x128xf32>, tensor<?x32xf32>) attributes {stem.tile = 64 : i64} {
  %p = arith.negf %x : tensor<?x128xf32>
  %d = arith.negf %c : tensor<?x32xf32>
  %0 = stem.linear_weight_vjp %p, %d : (tensor<?x128xf32>, tensor<?x32xf32>) -> tensor<32x128xf32>
  %e = arith.addf %d, %d : tensor<?x32xf32>
  %1 = stem.linear_weight_vjp %p, %e : (tensor<?x128xf32>, tensor<?x32xf32>) -> tensor<32x128xf32>
  return %0, %1, %e : tensor<32x128xf32>, tensor<32x128xf32>, tensor<?x32xf32>
}

// What is the x of one sum and the cotangent of another is a matrix, and packed
// from there; a matrix that the tiles do not make is read where it is.
// CHECK-LABEL: func.func @both_sides
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x32xbf16>
// CHECK: scf.for
// CHECK:   %[[CHUNK:.*]] = tensor.empty() : tensor<2048x32xbf16>
// CHECK:   %[[TILES:.*]] = scf.forall {{.*}} shared_outs(%{{.*}} = %[[CHUNK]])
// CHECK:   %[[P:.*]] = tensor.extract_slice %[[TILES]][0, 0] [2048, 32]
// CHECK:   %[[OWN:.*]] = scf.forall
// CHECK:     tensor.extract_slice %[[X]][
// CHECK:     stem.pack_tokens
// CHECK:     stem.panel_matmul %{{.*}}, %[[OWN]]
// CHECK:   %[[PANELS:.*]] = scf.forall
// CHECK:     tensor.extract_slice %[[P]][
// CHECK:     stem.pack_tokens
// CHECK:     tensor.extract_slice %[[X]][
// CHECK:     stem.panel_matmul %{{.*}}, %[[PANELS]]
func.func @both_sides(%x: tensor<?x32xbf16>) -> (tensor<32x32xf32>, tensor<32x32xf32>) attributes {stem.tile = 128 : i64} {
  %p = arith.negf %x : tensor<?x32xbf16>
  %0 = stem.linear_weight_vjp %x, %p : (tensor<?x32xbf16>, tensor<?x32xbf16>) -> tensor<32x32xf32>
  %1 = stem.linear_weight_vjp %p, %x : (tensor<?x32xbf16>, tensor<?x32xbf16>) -> tensor<32x32xf32>
  return %0, %1 : tensor<32x32xf32>, tensor<32x32xf32>
}

// Rows of a chunk's matrix that would be a multiple of half a page apart have a
// line more, which no tile writes and no sum reads.
// CHECK-LABEL: func.func @spread
// CHECK: scf.for
// CHECK:   tensor.empty() : tensor<2048x1056xbf16>
// CHECK:   scf.forall
// CHECK:     tensor.parallel_insert_slice {{.*}} [128, 1024] [1, 1] : tensor<128x1024xbf16> into tensor<2048x1056xbf16>
// CHECK:   %[[D:.*]] = tensor.extract_slice %{{.*}}#1[0, 0] [2048, 1024] [1, 1]
// CHECK:   scf.forall {{.*}} in (8) shared_outs({{.*}} -> (tensor<1024x32xf32>)
// CHECK:     tensor.extract_slice %[[D]][0, %{{.*}}] [%{{.*}}, 128]
func.func @spread(%x: tensor<?x32xbf16>, %c: tensor<?x1024xbf16>) -> tensor<1024x32xf32> attributes {stem.tile = 128 : i64} {
  %p = arith.negf %x : tensor<?x32xbf16>
  %d = arith.negf %c : tensor<?x1024xbf16>
  %0 = stem.linear_weight_vjp %p, %d : (tensor<?x32xbf16>, tensor<?x1024xbf16>) -> tensor<1024x32xf32>
  return %0 : tensor<1024x32xf32>
}

// A sum ends the run for what reads it. One whose sides differ in type, or of
// tiles that do not fill a chunk, is left to stem-to-linalg.
// CHECK-LABEL: func.func @not_in_chunks
// CHECK: %[[P:.*]] = scf.forall
// CHECK: stem.linear_weight_vjp %[[P]]
func.func @not_in_chunks(%x: tensor<?x32xbf16>, %c: tensor<?x32xf32>) -> tensor<32x32xf32> attributes {stem.tile = 64 : i64} {
  %p = arith.negf %x : tensor<?x32xbf16>
  // expected-remark @+1 {{its sides differ in their types, so that what it adds up is written whole}}
  %0 = stem.linear_weight_vjp %p, %c : (tensor<?x32xbf16>, tensor<?x32xf32>) -> tensor<32x32xf32>
  return %0 : tensor<32x32xf32>
}
// CHECK-LABEL: func.func @odd_tiles
// CHECK: %[[P:.*]] = scf.forall
// CHECK: stem.linear_weight_vjp %[[P]]
func.func @odd_tiles(%x: tensor<?x32xf32>) -> tensor<32x32xf32> attributes {stem.tile = 96 : i64} {
  %p = arith.negf %x : tensor<?x32xf32>
  // expected-remark @+1 {{its tiles do not fill a chunk of 2048 tokens, so that what it adds up is written whole}}
  %0 = stem.linear_weight_vjp %p, %p : (tensor<?x32xf32>, tensor<?x32xf32>) -> tensor<32x32xf32>
  return %0 : tensor<32x32xf32>
}
// CHECK-LABEL: func.func @other_elements
// CHECK: %[[P:.*]] = scf.forall
// CHECK: stem.linear_weight_vjp %[[P]]
func.func @other_elements(%x: tensor<?x32xf16>) -> tensor<32x32xf32> attributes {stem.tile = 64 : i64} {
  %p = arith.negf %x : tensor<?x32xf16>
  // expected-remark @+1 {{only sides of f32 or bf16 are added up, in f32, so that what it adds up is written whole}}
  %0 = stem.linear_weight_vjp %p, %p : (tensor<?x32xf16>, tensor<?x32xf16>) -> tensor<32x32xf32>
  return %0 : tensor<32x32xf32>
}
// CHECK-LABEL: func.func @no_columns
// CHECK: stem.linear_weight_vjp
func.func @no_columns(%x: tensor<?x32xf32>, %c: tensor<?x0xf32>) -> tensor<0x32xf32> attributes {stem.tile = 64 : i64} {
  %p = arith.negf %x : tensor<?x32xf32>
  // expected-remark @+1 {{its shape is dynamic, empty, or not that of its sides, so that what it adds up is written whole}}
  %0 = stem.linear_weight_vjp %p, %c : (tensor<?x32xf32>, tensor<?x0xf32>) -> tensor<0x32xf32>
  return %0 : tensor<0x32xf32>
}
// CHECK-LABEL: func.func @reads_a_sum
// CHECK: %[[S:.*]] = scf.for
// CHECK: scf.forall
// CHECK:   stem.linear %{{.*}}, %[[S]]
func.func @reads_a_sum(%x: tensor<?x32xf32>) -> tensor<?x32xf32> attributes {stem.tile = 64 : i64} {
  %p = arith.negf %x : tensor<?x32xf32>
  %0 = stem.linear_weight_vjp %p, %p : (tensor<?x32xf32>, tensor<?x32xf32>) -> tensor<32x32xf32>
  %1 = stem.linear %x, %0 : tensor<?x32xf32>, tensor<32x32xf32> -> tensor<?x32xf32>
  return %1 : tensor<?x32xf32>
}

// -----

// expected-error @+1 {{'func.func' op has several blocks; tiling needs straight-line code}}
func.func @blocks() attributes {stem.tile = 64 : i64} {
  cf.br ^bb1
^bb1:
  return
}

// -----

func.func @odd_tokens(%x: tensor<100x32xf32>, %w: tensor<32xf32>) -> tensor<100x32xf32> attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.rms_norm' op has 100 tokens, which is not a multiple of 'stem.tile', 64}}
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<100x32xf32>, tensor<32xf32> -> tensor<100x32xf32>
  return %0 : tensor<100x32xf32>
}

// -----

func.func @dynamic_columns(%x: tensor<?x?xf32>, %w: tensor<32x?xf32>) -> tensor<?x32xf32> attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.linear' op has an operand or result 'tensor<?x?xf32>'; only the number of tokens and of rows to gather from may be dynamic}}
  %0 = stem.linear %x, %w : tensor<?x?xf32>, tensor<32x?xf32> -> tensor<?x32xf32>
  // expected-error @+1 {{'arith.negf' op has an operand 'tensor<?x?xf32>'; only the number of tokens may be dynamic}}
  %1 = arith.negf %x : tensor<?x?xf32>
  return %0 : tensor<?x32xf32>
}

// -----

func.func @static_and_dynamic(%x: tensor<?x32xf32>, %w: tensor<32xf32>) -> tensor<64x32xf32> attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.rms_norm' op has a number of tokens that is static in one operand or result and dynamic in another; cast them to one type}}
  %0 = stem.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<?x32xf32>, tensor<32xf32> -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}

// -----

func.func @nothing(%x: tensor<0x8xf32>, %y: tensor<?x0xf32>, %w: tensor<8x8xf32>, %v: tensor<8x0xf32>) attributes {stem.tile = 64 : i64} {
  // expected-error @+1 {{'stem.linear' op has an operand or result without elements, 'tensor<0x8xf32>'}}
  %0 = stem.linear %x, %w : tensor<0x8xf32>, tensor<8x8xf32> -> tensor<0x8xf32>
  // expected-error @+1 {{'stem.linear' op has an operand or result without elements, 'tensor<?x0xf32>'}}
  %1 = stem.linear %y, %v : tensor<?x0xf32>, tensor<8x0xf32> -> tensor<?x8xf32>
  return
}
