//===- FuseFFN.cpp - Put the lookup inside the STEM FFN -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace stem {
#define GEN_PASS_DEF_STEMFUSEFFNPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// Whether a value of type `from` may change when it is converted to `to`.
bool roundsElements(Type from, Type to) {
  const llvm::fltSemantics &a = cast<FloatType>(from).getFloatSemantics();
  const llvm::fltSemantics &b = cast<FloatType>(to).getFloatSemantics();
  return !llvm::APFloat::isRepresentableBy(a, b);
}

// Pattern: gated_ffn(x, gate, lookup(rows, index), down)
//          -> fused_ffn(x, gate, rows[index], down)
struct FuseLookup : OpRewritePattern<GatedFFNOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatedFFNOp op,
                                PatternRewriter &rewriter) const override {
    auto lookup = op.getUp().getDefiningOp<LookupOp>();
    if (!lookup)
      return rewriter.notifyMatchFailure(op, "rows do not come from a lookup");
    if (!lookup->hasOneUse())
      return rewriter.notifyMatchFailure(op, "the lookup has other uses");
    // A lookup that rounds does so before the product; the fused op would not.
    if (roundsElements(lookup.getRows().getType().getElementType(),
                       lookup.getType().getElementType()))
      return rewriter.notifyMatchFailure(op, "the lookup rounds the rows");
    rewriter.replaceOpWithNewOp<FusedFFNOp>(
        op, op.getType(), op.getX(), op.getGate(), lookup.getRows(),
        lookup.getIndex(), op.getDown(), op.getGateBias(), op.getDownBias());
    rewriter.eraseOp(lookup);
    return success();
  }
};

struct FuseFFNPass : public stem::impl::StemFuseFFNPassBase<FuseFFNPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FuseLookup>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    getOperation()->walk([](GatedFFNOp op) {
      remark::missed(op.getLoc(),
                     remark::RemarkOpts::name("StemFuseFFN").category("stem"))
          << remark::reason("its rows are not a single-use lookup that keeps "
                            "their precision, so they are written to memory");
    });
  }
};

} // namespace
