//===- SplitAttention.cpp - Append to the cache, then attend --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace stem {
#define GEN_PASS_DEF_STEMSPLITATTENTIONPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

// Pattern: attention(q, k, v, cache) -> kv_append(k, v, cache), attend(q,
// cache)
struct SplitCachedAttention : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttentionOp op,
                                PatternRewriter &rewriter) const override {
    if (!op.getCache())
      return rewriter.notifyMatchFailure(op, "there is no cache to append to");
    KVAppendOp::create(rewriter, op.getLoc(), op.getK(), op.getV(),
                       op.getPositions(), op.getSequences(), op.getCache(),
                       op.getLayer());
    rewriter.replaceOpWithNewOp<AttendOp>(
        op, op.getType(), /*logsumexp=*/Type(), op.getQ(), op.getPositions(),
        op.getSequences(), op.getCache(), op.getLayer(), op.getHeadDimAttr(),
        rewriter.getI64IntegerAttr(op.getKeyValueHeads()), op.getScaleAttr(),
        op.getWindowAttr());
    return success();
  }
};

LogicalResult verifyCached(AttentionOp op) {
  if (!op.getCache())
    return op.emitOpError("has no cache to append to; run "
                          "stem-scratch-attention first");
  RankedTensorType q = op.getQ().getType(), k = op.getK().getType();
  Type element = k.getElementType();
  if (k == op.getV().getType() && q.getElementType() == element &&
      (element.isF32() || element.isBF16()))
    return success();
  return op.emitOpError() << "has queries " << q << ", keys " << k
                          << " and values " << op.getV().getType()
                          << "; a cache holds one type, f32 or bf16";
}

struct SplitAttentionPass
    : public stem::impl::StemSplitAttentionPassBase<SplitAttentionPass> {
  void runOnOperation() override {
    bool canSplit = true;
    getOperation()->walk([&](AttentionOp op) {
      if (failed(verifyCached(op)))
        canSplit = false;
    });
    if (!canSplit)
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    patterns.add<SplitCachedAttention>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};

} // namespace
