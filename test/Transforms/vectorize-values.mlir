// RUN: %python %S/../tools/check_vectorize.py %s %t.so

// Ops of every shape that stem-vectorize knows, executed on sizes with and
// without a remainder.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
#transposed = affine_map<(i, j) -> (j, i)>
#flat = affine_map<(i) -> (i)>

// SiLU times a row gathered by id.
func.func @gated_rows(%g: memref<?x?xf32>, %rows: memref<?x?xf32>,
                      %ids: memref<?xi32>, %y: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [#id, #row, #id],
                  iterator_types = ["parallel", "parallel"]}
      ins(%g, %ids : memref<?x?xf32>, memref<?xi32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%x: f32, %id: i32, %o: f32):
    %one = arith.constant 1.0 : f32
    %n = arith.index_cast %id : i32 to index
    %j = linalg.index 1 : index
    %r = memref.load %rows[%n, %j] : memref<?x?xf32>
    %m = arith.negf %x : f32
    %e = math.exp %m : f32
    %d = arith.addf %e, %one : f32
    %s = arith.divf %x, %d : f32
    %p = arith.mulf %s, %r : f32
    linalg.yield %p : f32
  }
  return
}

// Two reductions at once, one of them by fma.
func.func @squares_and_max(%x: memref<?x?xf32>, %s: memref<?xf32>,
                           %m: memref<?xf32>) {
  linalg.generic {indexing_maps = [#id, #row, #row],
                  iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x?xf32>) outs(%s, %m : memref<?xf32>, memref<?xf32>) {
  ^bb0(%a: f32, %p: f32, %q: f32):
    %t = math.fma %a, %a, %p : f32
    %u = arith.maximumf %q, %a : f32
    linalg.yield %t, %u : f32, f32
  }
  return
}

// The last iterator is a reduction along columns: rows become lanes.
func.func @column_sums(%x: memref<?x?xf32>, %s: memref<?xf32>) {
  linalg.generic {indexing_maps = [#transposed, #row],
                  iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<?x?xf32>) outs(%s : memref<?xf32>) {
  ^bb0(%a: f32, %p: f32):
    %t = arith.addf %p, %a : f32
    linalg.yield %t : f32
  }
  return
}

// Contiguous along no common loop: scalars.
func.func @transpose(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  linalg.transpose ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>)
      permutation = [1, 0]
  return
}

// A causal mask, and an index stored as a number.
func.func @mask(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [#id, #id],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %keep = arith.cmpi ule, %j, %i : index
    %k = arith.index_cast %j : index to i32
    %f = arith.sitofp %k : i32 to f32
    %r = arith.select %keep, %a, %f : f32
    linalg.yield %r : f32
  }
  return
}

// A load shifted along the vector, as in a rotation of halves.
func.func @shifted(%x: memref<?xf32>, %y: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %half = memref.dim %y, %c0 : memref<?xf32>
  linalg.generic {indexing_maps = [#flat], iterator_types = ["parallel"]}
      outs(%y : memref<?xf32>) {
  ^bb0(%o: f32):
    %j = linalg.index 0 : index
    %k = arith.addi %half, %j : index
    %b = memref.load %x[%k] : memref<?xf32>
    %a = memref.load %x[%j] : memref<?xf32>
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  }
  return
}

func.func @copy_strided(%x: memref<?x?xf32, strided<[?, 1], offset: ?>>,
                        %y: memref<?x?xf32, strided<[?, ?], offset: ?>>) {
  memref.copy %x, %y : memref<?x?xf32, strided<[?, 1], offset: ?>>
                    to memref<?x?xf32, strided<[?, ?], offset: ?>>
  return
}

func.func @copy_bf16(%x: memref<?x?xbf16>, %y: memref<?x?xbf16>) {
  memref.copy %x, %y : memref<?x?xbf16> to memref<?x?xbf16>
  return
}

func.func @fill(%x: memref<?x?xi32>) {
  %c = arith.constant 7 : i32
  linalg.fill ins(%c : i32) outs(%x : memref<?x?xi32>)
  return
}

// A nested region keeps the body scalar.
func.func @branch(%x: memref<?xf32>, %y: memref<?xf32>) {
  linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["parallel"]}
      ins(%x : memref<?xf32>) outs(%y : memref<?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %isNegative = arith.cmpf olt, %a, %zero : f32
    %i = linalg.index 0 : index
    %r = scf.if %isNegative -> f32 {
      %k = arith.index_cast %i : index to i32
      %f = arith.sitofp %k : i32 to f32
      scf.yield %f : f32
    } else {
      scf.yield %a : f32
    }
    linalg.yield %r : f32
  }
  return
}

func.func @matmul(%a: memref<?x?xf32>, %b: memref<?x?xf32>,
                  %c: memref<?x?xf32>) {
  linalg.matmul ins(%a, %b : memref<?x?xf32>, memref<?x?xf32>)
      outs(%c : memref<?x?xf32>)
  return
}

// Nothing is loaded where there is nothing to do.
func.func @empty_rows(%ids: memref<?xi32>, %rows: memref<?xf32>,
                      %y: memref<?x?xf32>) {
  linalg.generic {indexing_maps = [#row, #id],
                  iterator_types = ["parallel", "parallel"]}
      ins(%ids : memref<?xi32>) outs(%y : memref<?x?xf32>) {
  ^bb0(%id: i32, %o: f32):
    %n = arith.index_cast %id : i32 to index
    %r = memref.load %rows[%n] : memref<?xf32>
    linalg.yield %r : f32
  }
  return
}
