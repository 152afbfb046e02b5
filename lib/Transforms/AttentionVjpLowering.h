//===- AttentionVjpLowering.h - VJP of attention over pages -----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_ATTENTIONVJPLOWERING_H
#define STEM_LIB_TRANSFORMS_ATTENTIONVJPLOWERING_H

#include "stem/Dialect/Stem/StemDialect.h"

namespace stem {

/// Of `[H, T]` f32, what each query head of a token needs: `shift` is minus the
/// base-2 logarithm of the sum of the exponentials of its scores, so that a
/// probability is exp2(scale * log2(e) * score + shift), and kMasked for
/// padding; `mean` is the sum of its probabilities' cotangents, each times the
/// probability.
struct SoftmaxStatistics {
  mlir::Value shift, mean;
};

/// One page of one head.
struct PageTile {
  mlir::Value token;    // the first, index
  mlir::Value position; // its position, index
  mlir::Value sequence; // i32
  mlir::Value head;     // index
};

/// What QueryGradients gives for one tile of queries.
struct QueryTileResult {
  mlir::Value dq;          // [64, E]
  mlir::Value shift, mean; // [64]
};

/// Statistics and the cotangent of the queries of a tile, from the pages of
/// keys that they see: one pass for the statistics, unless the op has what
/// attention gave, and one for `dq`, which is built in `dest`. `keyHead` is the
/// head of the pages.
QueryTileResult buildQueryTile(mlir::OpBuilder &builder, mlir::Location loc,
                               AttendVjpOp op, const PageTile &tile,
                               mlir::Value keyHead, mlir::Value dest);

/// The cotangents of the keys and values of a tile, from the pages of queries
/// that see them: those of all tiles in [tile, end) of the sequence and of all
/// query heads that share the key-value head, in this order. Built in `dk`
/// and `dv`.
std::pair<mlir::Value, mlir::Value>
buildKeyTile(mlir::OpBuilder &builder, mlir::Location loc, AttendVjpOp op,
             const PageTile &tile, mlir::Value tokens,
             const SoftmaxStatistics &statistics, mlir::Value dk,
             mlir::Value dv);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_ATTENTIONVJPLOWERING_H
