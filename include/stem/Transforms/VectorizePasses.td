//===- VectorizePasses.td - Loops and math on lanes ---------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def StemVectorizePass : Pass<"stem-vectorize", "::mlir::func::FuncOp"> {
  let summary = "Turn linalg ops on buffers into loops of 16-lane vector ops";
  let description = [{
    Rewrites every linalg op on memrefs, and every `memref.copy`, into `scf.for`
    loops. The innermost one takes 16 elements at a time; a loop of scalars
    follows for what is left of a size that is not a multiple of 16 or not
    known. What does not depend on the innermost loop is computed in front of
    it and broadcast. All targets get 16 lanes, so all compute the same values.

    Before:

    ```mlir
    linalg.generic {indexing_maps = [#row, #column, #row],
                    iterator_types = ["parallel", "parallel"]}
        ins(%x, %s : memref<64x1536xf32>, memref<64xf32>)
        outs(%y : memref<64x1536xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      linalg.yield %p : f32
    }
    ```

    After:

    ```mlir
    scf.for %i = %c0 to %c64 step %c1 {
      %b = memref.load %s[%i] : memref<64xf32>
      scf.for %j = %c0 to %c1536 step %c16 {
        %a = vector.load %x[%i, %j] : memref<64x1536xf32>, vector<16xf32>
        %v = vector.broadcast %b : f32 to vector<16xf32>
        %p = arith.mulf %a, %v : vector<16xf32>
        vector.store %p, %y[%i, %j] : memref<64x1536xf32>, vector<16xf32>
      }
    }
    ```

    A reduction over the last iterator keeps 16 partial results, adds them up
    as a fixed tree (lane l + 8, then + 4, + 2, + 1), combines the old value of
    the output with that, then the rest one by one: the same order on every
    target.

    The loop that is cut is the last iterator. If an operand is not contiguous
    along it, a parallel one takes its place and becomes the innermost loop.
    Bodies may hold any elementwise op without side effects, `linalg.index`,
    and `memref.load` whose last index, and no other, moves with the loop.

    Must run after bufferization, and before `stem-expand-math` and the
    lowering of scf and vector.

    NOTE: An op that fits none of this becomes loops of scalars, with a missed
    remark of category `stem-vectorize` that says why. linalg ops on tensors
    and copies of unranked memrefs stay, with a remark.
    NOTE: Iterations of one op are taken to be independent, as linalg defines
    them: an output may be an input as well only if both are indexed alike.
    NOTE: Partial floating-point sums start at +0, so a sum of nothing
    but -0 is +0.
  }];
  let dependentDialects = [
    "::mlir::LLVM::LLVMDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"
  ];
}

def StemExpandMathPass : Pass<"stem-expand-math"> {
  let summary = "Turn transcendental functions into polynomials";
  let description = [{
    Rewrites `math.exp`, `exp2`, `log`, `tanh`, `sin` and `cos` on f32 scalars
    and vectors, `sin` and `cos` on f64, and `rsqrt` on any float into `arith`
    ops, `math.fma`, `absf`, `copysign` and `sqrt`, which targets have as
    instructions. Also rounds f32 to bf16 by integer ops, as most targets call
    a function for it, and makes a comparison and choices of `maximumf` and
    `minimumf` (one of each with `nnan`). A scalar and a lane of a vector get the same bits.

    Before:

    ```mlir
    %y = math.rsqrt %x : vector<16xf32>
    ```

    After:

    ```mlir
    %one = arith.constant dense<1.0> : vector<16xf32>
    %s = math.sqrt %x : vector<16xf32>
    %y = arith.divf %one, %s : vector<16xf32>
    ```

    Largest errors against the exact value; every 67th f32 was tried, and
    random f64:

    | op            | error            | where                           |
    |---------------|------------------|---------------------------------|
    | exp           | 1.1 ulp          | everywhere (1)                  |
    | exp2          | 0.8 ulp          | everywhere (1)                  |
    | log           | 0.9 ulp          | everywhere, subnormals included |
    | tanh          | 1.4 ulp          | everywhere                      |
    | rsqrt         | 1.5 ulp          | everywhere                      |
    | sin, cos, f32 | 9.5e-8, absolute | up to 2^48 in absolute value    |
    | sin, cos, f64 | 2e-16, absolute  | up to 2^48 in absolute value    |

    (1) A result below the smallest normal f32 becomes 0. Overflow gives
    infinity, NaN gives NaN, log of 0 is -infinity and of less NaN.

    Must run after `stem-vectorize`, which knows the math ops as elementwise,
    and before `convert-math-to-llvm`.

    NOTE: sin and cos beyond 2^48 are NaN; sin of -0 is +0; of two zeros
    `maximumf` and `minimumf` give the second.
    NOTE: Other math ops and other types stay; those of the ops above get a
    missed remark of category `stem-expand-math`.
    NOTE: A target without fused multiply-add computes the same values by calls
    of `fma`, slowly.
  }];
  let options = [
    Option<"nativeBf16", "stem-native-bf16", "bool", /*default=*/"false",
           "Leave rounding f32 to bf16 to the target. Worth it where it is one "
           "instruction (x86 AVX512-BF16, which makes subnormals 0).">
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"
  ];
}
