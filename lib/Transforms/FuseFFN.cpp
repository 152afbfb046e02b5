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

/// Why the rows of `op` are written to memory first; empty: they need not be.
StringRef whyNotFused(GatedFFNOp op) {
  auto lookup = op.getUp().getDefiningOp<LookupOp>();
  if (!lookup)
    return "its rows do not come from a lookup";
  if (!lookup->hasOneUse())
    return "the lookup of its rows has other uses";
  // A lookup that rounds does so before the product; the fused op would not.
  if (roundsElements(lookup.getRows().getType().getElementType(),
                     lookup.getType().getElementType()))
    return "the lookup rounds its rows";
  return "";
}

// Pattern: gated_ffn(x, gate, lookup(rows, index), down)
//          -> fused_ffn(x, gate, rows[index], down)
struct FuseLookup : OpRewritePattern<GatedFFNOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatedFFNOp op,
                                PatternRewriter &rewriter) const override {
    if (StringRef reason = whyNotFused(op); !reason.empty())
      return rewriter.notifyMatchFailure(op, reason);
    auto lookup = op.getUp().getDefiningOp<LookupOp>();
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
      remark::missed(
          op.getLoc(),
          remark::RemarkOpts::name("StemFuseFFN").category("stem-fuse-ffn"))
          << remark::reason("{0}, so they are written to memory",
                            whyNotFused(op));
    });
  }
};

} // namespace
