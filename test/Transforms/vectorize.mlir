// RUN: stem-opt %s -stem-vectorize -canonicalize -split-input-file | FileCheck %s
// RUN: stem-opt %s -stem-vectorize -split-input-file -verify-diagnostics \
// RUN:   --remarks-filter=stem-vectorize -o %t

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// What depends on the row only is loaded once per row.

// CHECK-LABEL: func @scale_rows
// CHECK-SAME: %[[X:.*]]: memref<64x1536xf32>, %[[S:.*]]: memref<64xf32>, %[[Y:.*]]: memref<64x1536xbf16>
// CHECK: scf.for %[[I:.*]] = %c0 to %c64 step %c1 {
// CHECK-NEXT: %[[B:.*]] = memref.load %[[S]][%[[I]]]
// CHECK-NEXT: scf.for %[[J:.*]] = %c0 to %c1536 step %c16 {
// CHECK-NEXT: %[[A:.*]] = vector.load %[[X]][%[[I]], %[[J]]] : memref<64x1536xf32>, vector<16xf32>
// CHECK-NEXT: %[[V:.*]] = vector.broadcast %[[B]] : f32 to vector<16xf32>
// CHECK-NEXT: %[[P:.*]] = arith.mulf %[[A]], %[[V]] : vector<16xf32>
// CHECK-NEXT: %[[T:.*]] = arith.truncf %[[P]] : vector<16xf32> to vector<16xbf16>
// CHECK-NEXT: vector.store %[[T]], %[[Y]][%[[I]], %[[J]]] : memref<64x1536xbf16>, vector<16xbf16>
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @scale_rows(%x: memref<64x1536xf32>, %s: memref<64xf32>,
                      %y: memref<64x1536xbf16>) {
  linalg.generic {indexing_maps = [#id, #row, #id],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<64x1536xf32>, memref<64xf32>)
      outs(%y : memref<64x1536xbf16>) {
  ^bb0(%a: f32, %b: f32, %o: bf16):
    %p = arith.mulf %a, %b : f32
    %t = arith.truncf %p : f32 to bf16
    linalg.yield %t : bf16
  }
  return
}

// -----

// A gathered row is a contiguous load; the gather's index is taken once.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func @gather
// CHECK: scf.for
// CHECK-NEXT: memref.load %{{.*}} : memref<64xi32>
// CHECK-NEXT: %[[N:.*]] = arith.index_cast
// CHECK-NEXT: scf.for %[[J:.*]] =
// CHECK-NEXT: vector.load %{{.*}}[%[[N]], %[[J]]] : memref<?x32xbf16>, vector<16xbf16>
func.func @gather(%rows: memref<?x32xbf16>, %ids: memref<64xi32>,
                  %y: memref<64x32xbf16>) {
  linalg.generic {indexing_maps = [#row, #id],
                  iterator_types = ["parallel", "parallel"]}
      ins(%ids : memref<64xi32>) outs(%y : memref<64x32xbf16>) {
  ^bb0(%id: i32, %o: bf16):
    %n = arith.index_cast %id : i32 to index
    %j = linalg.index 1 : index
    %r = memref.load %rows[%n, %j] : memref<?x32xbf16>
    linalg.yield %r : bf16
  }
  return
}

// -----

// A size that is not known: whole groups, then scalars that LLVM leaves alone.

#flat = affine_map<(i) -> (i)>

// CHECK: #[[$AS_WRITTEN:.*]] = #llvm.loop_annotation<vectorize = {{.*}}, unroll = {{.*}}>
// CHECK-LABEL: func @remainder
// CHECK: %[[SIZE:.*]] = memref.dim
// CHECK: %[[SPLIT:.*]] = arith.andi %[[SIZE]], %c-16
// CHECK: scf.for %{{.*}} = %c0 to %[[SPLIT]] step %c16
// CHECK: math.exp {{.*}} : vector<16xf32>
// CHECK: scf.for %{{.*}} = %[[SPLIT]] to %[[SIZE]] step %c1
// CHECK: math.exp {{.*}} : f32
// CHECK: } {loop_annotation = #[[$AS_WRITTEN]]}
func.func @remainder(%x: memref<?xf32>) {
  linalg.generic {indexing_maps = [#flat], iterator_types = ["parallel"]}
      outs(%x : memref<?xf32>) {
  ^bb0(%a: f32):
    %e = math.exp %a : f32
    linalg.yield %e : f32
  }
  return
}

// -----

// Lanes are combined as a tree written out, before the old value is.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func @sum
// CHECK-SAME: %[[X:.*]]: memref<64x32xf32>, %[[S:.*]]: memref<64xf32>
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<16xf32>
// CHECK: %[[OLD:.*]] = memref.load %[[S]]
// CHECK: %[[LANES:.*]] = scf.for {{.*}} iter_args(%[[ACC:.*]] = %[[ZERO]])
// CHECK:   %[[A:.*]] = vector.load %[[X]]
// CHECK:   %[[NEXT:.*]] = arith.addf %[[ACC]], %[[A]] : vector<16xf32>
// CHECK:   scf.yield %[[NEXT]]
// CHECK: vector.shuffle %[[LANES]], %[[LANES]] [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: vector.shuffle %[[LANES]], %[[LANES]] [8, 9, 10, 11, 12, 13, 14, 15]
// CHECK: arith.addf {{.*}} : vector<8xf32>
// CHECK: arith.addf {{.*}} : vector<4xf32>
// CHECK: arith.addf {{.*}} : vector<2xf32>
// CHECK-NOT: vector.reduction
// CHECK: %[[NEW:.*]] = arith.addf %[[OLD]], %{{.*}} : f32
// CHECK: memref.store %[[NEW]], %[[S]]
func.func @sum(%x: memref<64x32xf32>, %s: memref<64xf32>) {
  linalg.generic {indexing_maps = [#id, #row],
                  iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<64x32xf32>) outs(%s : memref<64xf32>) {
  ^bb0(%a: f32, %p: f32):
    %t = arith.addf %p, %a : f32
    linalg.yield %t : f32
  }
  return
}

// -----

// Copies and fills; iota for the index of the lanes.

#flat = affine_map<(i) -> (i)>

// CHECK-LABEL: func @fill_copy_iota
// CHECK-SAME: %[[X:.*]]: memref<32xindex>, %[[Y:.*]]: memref<32xindex>
// CHECK: %[[THREES:.*]] = arith.constant dense<3> : vector<16xindex>
// CHECK: vector.store %[[THREES]], %[[X]]
// CHECK: %[[V:.*]] = vector.load %[[X]]
// CHECK: vector.store %[[V]], %[[Y]]
// CHECK: scf.for %[[I:.*]] =
// CHECK: vector.broadcast %[[I]] : index to vector<16xindex>
// CHECK: vector.step : vector<16xindex>
// CHECK-NOT: linalg
// CHECK-NOT: memref.copy
func.func @fill_copy_iota(%x: memref<32xindex>, %y: memref<32xindex>) {
  %c3 = arith.constant 3 : index
  linalg.fill ins(%c3 : index) outs(%x : memref<32xindex>)
  memref.copy %x, %y : memref<32xindex> to memref<32xindex>
  linalg.generic {indexing_maps = [#flat], iterator_types = ["parallel"]}
      outs(%y : memref<32xindex>) {
  ^bb0(%o: index):
    %i = linalg.index 0 : index
    linalg.yield %i : index
  }
  return
}

// -----

// The last iterator is not contiguous: the first becomes the innermost loop.

#turned = affine_map<(i, j) -> (j, i)>

// CHECK-LABEL: func @interchange
// CHECK: scf.for %[[J:.*]] = %c0 to %c8 step %c1
// CHECK: scf.for %[[I:.*]] = %c0 to %c32 step %c16
// CHECK: vector.load %{{.*}}[%[[J]], %[[I]]]
func.func @interchange(%x: memref<8x32xf32>) {
  linalg.generic {indexing_maps = [#turned],
                  iterator_types = ["parallel", "parallel"]}
      outs(%x : memref<8x32xf32>) {
  ^bb0(%a: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  }
  return
}

// -----

// The reasons for loops of scalars.

#flat = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>
#twice = affine_map<(i) -> (2 * i)>

// CHECK-LABEL: func @scalars
// CHECK-NOT: vector
// CHECK-NOT: linalg
func.func @scalars(%small: memref<8xf32>, %bits: memref<32xi1>,
                   %x: memref<32xf32>, %sum: memref<f32>,
                   %wide: memref<64xf32>,
                   %strided: memref<32xf32, strided<[2]>>) {
  %zero = arith.constant 0.0 : f32
  %no = arith.constant false
  // expected-remark @below {{the loop has fewer than 16 iterations}}
  linalg.fill ins(%zero : f32) outs(%small : memref<8xf32>)
  // expected-remark @below {{operand 1 has elements of type i1}}
  linalg.fill ins(%no : i1) outs(%bits : memref<32xi1>)
  // expected-remark @below {{operand 1 is not contiguous along the loop}}
  linalg.fill ins(%zero : f32) outs(%strided : memref<32xf32, strided<[2]>>)
  // expected-remark @below {{the op has no loop}}
  linalg.fill ins(%zero : f32) outs(%sum : memref<f32>)
  // expected-remark @below {{operand 0 is not contiguous along the loop}}
  linalg.generic {indexing_maps = [#twice, #flat], iterator_types = ["parallel"]}
      ins(%wide : memref<64xf32>) outs(%x : memref<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  // expected-remark @below {{'arith.subf' is not a known reduction}}
  linalg.generic {indexing_maps = [#flat, #none], iterator_types = ["reduction"]}
      ins(%x : memref<32xf32>) outs(%sum : memref<f32>) {
  ^bb0(%a: f32, %o: f32):
    %d = arith.subf %o, %a : f32
    linalg.yield %d : f32
  }
  // expected-remark @below {{an output of the reduction is not one combining op}}
  linalg.generic {indexing_maps = [#flat, #none], iterator_types = ["reduction"]}
      ins(%x : memref<32xf32>) outs(%sum : memref<f32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  // expected-remark @below {{an output depends on the reduced loop}}
  linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["reduction"]}
      ins(%x : memref<32xf32>) outs(%x : memref<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %d = arith.addf %o, %a : f32
    linalg.yield %d : f32
  }
  // expected-remark @below {{an output does not depend on the loop}}
  linalg.generic {indexing_maps = [#flat, #none], iterator_types = ["parallel"]}
      ins(%x : memref<32xf32>) outs(%sum : memref<f32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  // expected-remark @below {{a load in the body is not contiguous along the loop}}
  linalg.generic {indexing_maps = [#flat], iterator_types = ["parallel"]}
      outs(%x : memref<32xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = arith.muli %i, %i : index
    %a = memref.load %wide[%j] : memref<64xf32>
    linalg.yield %a : f32
  }
  // expected-remark @below {{'memref.store' in the body has side effects}}
  linalg.generic {indexing_maps = [#flat], iterator_types = ["parallel"]}
      outs(%x : memref<32xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    memref.store %o, %wide[%i] : memref<64xf32>
    linalg.yield %o : f32
  }
  // expected-remark @below {{'affine.apply' in the body has no vector form}}
  linalg.generic {indexing_maps = [#flat], iterator_types = ["parallel"]}
      outs(%x : memref<32xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = affine.apply affine_map<(i) -> (i mod 4)>(%i)
    %k = arith.index_cast %j : index to i32
    %f = arith.sitofp %k : i32 to f32
    linalg.yield %f : f32
  }
  // expected-remark @below {{'scf.if' in the body has a region}}
  linalg.generic {indexing_maps = [#flat], iterator_types = ["parallel"]}
      outs(%x : memref<32xf32>) {
  ^bb0(%o: f32):
    %negative = arith.cmpf olt, %o, %zero : f32
    %r = scf.if %negative -> f32 {
      scf.yield %zero : f32
    } else {
      scf.yield %o : f32
    }
    linalg.yield %r : f32
  }
  return
}

// -----

// What the pass does not rewrite.

// CHECK-LABEL: func @kept
// CHECK: memref.copy
// CHECK: linalg.fill
func.func @kept(%x: memref<32xf32>, %y: memref<*xf32>, %t: tensor<32xf32>)
    -> tensor<32xf32> {
  // expected-remark @below {{the copy has no rank}}
  memref.copy %x, %y : memref<32xf32> to memref<*xf32>
  %zero = arith.constant 0.0 : f32
  // expected-remark @below {{the op is not on buffers}}
  %f = linalg.fill ins(%zero : f32) outs(%t : tensor<32xf32>) -> tensor<32xf32>
  return %f : tensor<32xf32>
}
