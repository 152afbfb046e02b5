//===- ToLinalgAttention.cpp - Attention of a tile of one sequence --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionLowering.h"
#include "TilingUtils.h"
#include "ToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

namespace {

// Pattern: attend(q) on a static tile -> for each query head { attend pages }
struct LowerAttend : OpRewritePattern<AttendOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttendOp op,
                                PatternRewriter &b) const override {
    auto type = op.getQ().getType();
    if (type.isDynamicDim(0))
      return b.notifyMatchFailure(
          op, "the number of tokens is not static; tile first");
    Location loc = op.getLoc();
    auto index = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(b, loc, value);
    };
    // Token tiles hold consecutive positions of one sequence.
    Value zero = index(0);
    Value sequence = tensor::ExtractOp::create(b, loc, op.getSequences(), zero);
    Value position = tensor::ExtractOp::create(b, loc, op.getPositions(), zero);
    position = arith::IndexCastOp::create(b, loc, b.getIndexType(), position);
    int64_t rows = type.getDimSize(0), headDim = op.getHeadDim();
    Value last = arith::AddIOp::create(b, loc, position, index(rows - 1));
    Value group = index(op.getQueryHeads() / op.getKvHeads());

    Value out = emptyLike(b, loc, op.getQ(), op.getType().getElementType());
    Value heads = index(op.getQueryHeads()), one = index(1);
    auto loop = scf::ForOp::create(
        b, loc, zero, heads, one, ValueRange{out},
        [&](OpBuilder &body, Location l, Value head, ValueRange state) {
          Value size = arith::ConstantIndexOp::create(body, l, headDim);
          Value column = arith::MulIOp::create(body, l, head, size);
          SmallVector<SliceRange> ranges = {
              {body.getIndexAttr(0), body.getIndexAttr(rows)},
              {OpFoldResult(column), body.getIndexAttr(headDim)}};
          Value kvHead = arith::DivUIOp::create(body, l, head, group);
          AttentionTile tile = {op,       sequence, kvHead,
                                position, last,     /*rowsAdvance=*/true};
          Value queries = extractSlice(body, l, op.getQ(), ranges);
          Value dest = extractSlice(body, l, state[0], ranges);
          dest = attendPages(body, l, tile, queries, dest);
          scf::YieldOp::create(body, l,
                               insertSlice(body, l, dest, state[0], ranges));
        });
    b.replaceOp(op, loop.getResults());
    return success();
  }
};

} // namespace

void stem::populateAttentionPatterns(RewritePatternSet &patterns) {
  patterns.add<LowerAttend>(patterns.getContext());
}
