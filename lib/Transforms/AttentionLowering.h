//===- AttentionLowering.h - Attention of one head over pages -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_ATTENTIONLOWERING_H
#define STEM_LIB_TRANSFORMS_ATTENTIONLOWERING_H

#include "stem/Dialect/Stem/StemDialect.h"

namespace stem {

/// What the queries of one call to attendPages share.
struct AttentionTile {
  AttendOp op;
  mlir::Value sequence;      // i32
  mlir::Value head;          // key-value head, index
  mlir::Value firstPosition; // of query row 0, index
  mlir::Value lastPosition;  // the largest of any row, index
  bool rowsAdvance;          // row r is at firstPosition + r, else all at it
};

struct AttentionRows {
  mlir::Value result, logSumExp;
};

/// Attention of `queries` (`[M, E]`, static, the cache's type) over the pages
/// of one key-value head, in the online form that rescales a running sum
/// (Milakov and Gimelshein 2018; Dao et al. 2022). Pages are visited in order
/// from the first that any row sees, and a page that a row does not see leaves
/// that row's bits alone, so a row's result does not depend on its
/// neighbours. Gives `[M, E]` written into `dest`, and the logarithms of the
/// sums of exponentials, `[M]`, in `logSumExpDest` unless that is null.
AttentionRows attendPages(mlir::OpBuilder &builder, mlir::Location loc,
                          const AttentionTile &tile, mlir::Value queries,
                          mlir::Value dest, mlir::Value logSumExpDest = {});

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_ATTENTIONLOWERING_H
