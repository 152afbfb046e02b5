//===- DecomposeGradients.cpp - VJPs as tiles and sums over tokens --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Dialect/Stem/StemVjp.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace stem {
#define GEN_PASS_DEF_STEMDECOMPOSEGRADIENTSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

Type elementOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getElementType();
}

/// A matrix with the rows of `rows`.
RankedTensorType matrixOf(Value rows, int64_t columns, Type element) {
  return RankedTensorType::get(
      {cast<RankedTensorType>(rows.getType()).getDimSize(0), columns}, element);
}

// Pattern: rms_norm_vjp(x, w, c)
//          -> rms_norm_input_vjp(x, w, c), sum_tokens(rms_norm(x, 1) * c)
struct DecomposeRMSNorm : OpRewritePattern<RMSNormVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RMSNormVjpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Value dx = RMSNormInputVjpOp::create(b, loc, op.getDx().getType(),
                                         op.getX(), op.getWeight(),
                                         op.getCotangent(), op.getEpsAttr());
    Value dweight = op.getDweight();
    if (!dweight.use_empty()) {
      RankedTensorType type = op.getDweight().getType();
      Value ones = arith::ConstantOp::create(
          b, loc,
          DenseElementsAttr::get(
              type, b.getFloatAttr(type.getElementType(), 1.0).getValue()));
      Value normed = RMSNormOp::create(b, loc, op.getCotangent().getType(),
                                       op.getX(), ones, op.getEpsAttr());
      Value terms = arith::MulFOp::create(b, loc, normed, op.getCotangent());
      dweight = SumTokensOp::create(b, loc, type, terms);
    }
    b.replaceOp(op, {dx, dweight});
    return success();
  }
};

/// The pieces that the VJPs of gated FFNs are made of. Products are in the
/// type of x, sums and cotangents of what adds up further in f32.
template <typename VjpOp> struct FFNPieces {
  FFNPieces(VjpOp op, OpBuilder &b)
      : b(b), loc(op.getLoc()), op(op),
        columns(getWeightShape(op.getGate().getType()).outputs),
        element(elementOf(op.getX())), cotangent(elementOf(op.getCotangent())) {
    gate = LinearOp::create(b, loc, matrixOf(op.getX(), columns, cotangent),
                            op.getX(), op.getGate(), op.getGateBias());
    through = LinearInputVjpOp::create(b, loc,
                                       matrixOf(op.getX(), columns, cotangent),
                                       op.getCotangent(), op.getDown());
  }

  /// `upElement` is the type of the up-projection's cotangent.
  void build(Value up, Type upElement) {
    auto narrow = matrixOf(op.getX(), columns, element);
    auto pieces = GateVjpOp::create(b, loc, narrow,
                                    matrixOf(op.getX(), columns, upElement),
                                    narrow, gate, up, through);
    dgate = pieces.getDgate();
    dup = pieces.getDup();
    product = pieces.getProduct();
  }

  Value inputVjp(Value of, Value weight) {
    return LinearInputVjpOp::create(b, loc, op.getDx().getType(), of, weight);
  }
  Value weightVjp(Value x, Value of, Value like) {
    return LinearWeightVjpOp::create(b, loc, like.getType(), x, of);
  }
  Value biasVjp(Value of, Value like) {
    return like ? Value(SumTokensOp::create(b, loc, like.getType(), of))
                : Value();
  }

  OpBuilder &b;
  Location loc;
  VjpOp op;
  int64_t columns;
  Type element, cotangent;
  Value gate, through, dgate, dup, product;
};

SmallVector<Value> presentOnes(ArrayRef<Value> values) {
  return llvm::filter_to_vector(values, [](Value v) { return bool(v); });
}

// Pattern: dense_ffn_vjp(x, G, U, D, c) -> gate_vjp(x G^T, x U^T, c D) and the
//          products that take its results back
struct DecomposeDenseFFN : OpRewritePattern<DenseFFNVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DenseFFNVjpOp op,
                                PatternRewriter &b) const override {
    FFNPieces pieces(op, b);
    Value up = LinearOp::create(
        b, op.getLoc(), matrixOf(op.getX(), pieces.columns, pieces.cotangent),
        op.getX(), op.getUp(), op.getUpBias());
    pieces.build(up, pieces.element);
    Value dx = arith::AddFOp::create(
        b, op.getLoc(), pieces.inputVjp(pieces.dgate, op.getGate()),
        pieces.inputVjp(pieces.dup, op.getUp()));
    b.replaceOp(
        op,
        presentOnes(
            {dx, pieces.weightVjp(op.getX(), pieces.dgate, op.getDgate()),
             pieces.weightVjp(op.getX(), pieces.dup, op.getDup()),
             pieces.weightVjp(pieces.product, op.getCotangent(), op.getDdown()),
             pieces.biasVjp(pieces.dgate, op.getDgateBias()),
             pieces.biasVjp(pieces.dup, op.getDupBias())}));
    return success();
  }
};

// Pattern: gated_ffn_vjp(x, G, u, D, c) -> gate_vjp(x G^T, u, c D) and the
//          products that take its results back
struct DecomposeGatedFFN : OpRewritePattern<GatedFFNVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatedFFNVjpOp op,
                                PatternRewriter &b) const override {
    FFNPieces pieces(op, b);
    pieces.build(op.getUp(), elementOf(op.getDup()));
    b.replaceOp(
        op,
        presentOnes(
            {pieces.inputVjp(pieces.dgate, op.getGate()),
             pieces.weightVjp(op.getX(), pieces.dgate, op.getDgate()),
             pieces.dup,
             pieces.weightVjp(pieces.product, op.getCotangent(), op.getDdown()),
             pieces.biasVjp(pieces.dgate, op.getDgateBias())}));
    return success();
  }
};

// Pattern: linear_weight_vjp(x : T, c : S) -> linear_weight_vjp(x, c to T)
struct NarrowCotangent : OpRewritePattern<LinearWeightVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LinearWeightVjpOp op,
                                PatternRewriter &b) const override {
    Type element = elementOf(op.getX());
    if (elementOf(op.getCotangent()) == element)
      return b.notifyMatchFailure(op, "the cotangent has the type of x");
    if (elementOf(op.getCotangent()).getIntOrFloatBitWidth() <
        element.getIntOrFloatBitWidth())
      return b.notifyMatchFailure(op, "the cotangent is narrower than x");
    auto type = cast<RankedTensorType>(op.getCotangent().getType());
    Value narrow = arith::TruncFOp::create(b, op.getLoc(), type.clone(element),
                                           op.getCotangent());
    b.modifyOpInPlace(op, [&] { op.getCotangentMutable().assign(narrow); });
    return success();
  }
};

// Pattern: embedding_vjp(ids, c) -> sum_rows(c by ids)
struct DecomposeEmbedding : OpRewritePattern<EmbeddingVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(EmbeddingVjpOp op,
                                PatternRewriter &b) const override {
    if (!elementOf(op.getCotangent()).isF32() ||
        !elementOf(op.getResult()).isF32())
      return b.notifyMatchFailure(op, "rows are added up in f32");
    b.replaceOpWithNewOp<SumRowsOp>(op, op.getType(), op.getIds(),
                                    op.getCotangent(), /*initial=*/Value(),
                                    op.getPaddingIdAttr());
    return success();
  }
};

// Pattern: sum_rows(c by ids) + y -> sum_rows(c by ids onto y)
// A tied embedding: its gradient goes into that of the head, in place.
struct SumOntoOther : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::AddFOp op,
                                PatternRewriter &b) const override {
    for (auto [sum, other] : {std::pair(op.getLhs(), op.getRhs()),
                              std::pair(op.getRhs(), op.getLhs())}) {
      auto rows = sum.getDefiningOp<SumRowsOp>();
      if (!rows || rows.getInitial() || !rows->hasOneUse() || sum == other)
        continue;
      b.replaceOpWithNewOp<SumRowsOp>(op, rows.getType(), rows.getIndex(),
                                      rows.getX(), other,
                                      rows.getPaddingIdAttr());
      b.eraseOp(rows);
      return success();
    }
    return b.notifyMatchFailure(op, "adds no rows that have one use");
  }
};

/// Whether `value` is known where `op` stands.
bool isBefore(Value value, Operation *op) {
  Operation *source = value.getDefiningOp();
  return !source ||
         (source->getBlock() == op->getBlock() && source->isBeforeInBlock(op));
}

/// Reads the operands of `vjp` and gives losses in f32.
bool isLossOf(CrossEntropyOp loss, CrossEntropyVjpOp vjp) {
  return loss.getX() == vjp.getX() && loss.getHead() == vjp.getHead() &&
         loss.getLabels() == vjp.getLabels() &&
         elementOf(loss.getResult()).isF32() &&
         isBefore(vjp.getCotangent(), loss);
}

bool isLossOf(DistillationOp loss, DistillationVjpOp vjp) {
  return loss.getX() == vjp.getX() && loss.getHead() == vjp.getHead() &&
         loss.getLabels() == vjp.getLabels() &&
         loss.getTeacher() == vjp.getTeacher() &&
         loss.getTeacherHead() == vjp.getTeacherHead() &&
         elementOf(loss.getNll()).isF32() && elementOf(loss.getKl()).isF32() &&
         isBefore(vjp.getNllCotangent(), loss) &&
         isBefore(vjp.getKlCotangent(), loss);
}

/// The loss that `op` is the derivative of, if its cotangents are known there.
template <typename Loss, typename Vjp> Loss lossOf(Vjp op) {
  for (Operation *user : op.getX().getUsers()) {
    auto loss = dyn_cast<Loss>(user);
    if (loss && loss->getBlock() == op->getBlock() && isLossOf(loss, op))
      return loss;
  }
  return {};
}

/// [T] of f32.
Type lossType(Value x) {
  return RankedTensorType::get(
      {cast<RankedTensorType>(x.getType()).getDimSize(0)},
      Float32Type::get(x.getContext()));
}

// Pattern: cross_entropy_vjp(x, W, l, c), cross_entropy(x, W, l)
//          -> cross_entropy_step(x, W, l, c)
struct JoinLoss : OpRewritePattern<CrossEntropyVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CrossEntropyVjpOp op,
                                PatternRewriter &b) const override {
    auto loss = lossOf<CrossEntropyOp>(op);
    OpBuilder::InsertionGuard guard(b);
    if (loss)
      b.setInsertionPoint(loss);
    auto step = CrossEntropyStepOp::create(
        b, op.getLoc(), lossType(op.getX()), op.getDx().getType(),
        op.getDhead().getType(), op.getX(), op.getHead(), op.getLabels(),
        op.getCotangent(),
        /*transposed=*/Value());
    if (loss)
      b.replaceOp(loss, step.getNll());
    b.replaceOp(op, {step.getDx(), step.getDhead()});
    return success();
  }
};

// Pattern: distillation_vjp(x, W, l, y, V, c), distillation(x, W, l, y, V)
//          -> distillation_step(x, W, l, y, V, c)
struct JoinDistillation : OpRewritePattern<DistillationVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DistillationVjpOp op,
                                PatternRewriter &b) const override {
    auto loss = lossOf<DistillationOp>(op);
    OpBuilder::InsertionGuard guard(b);
    if (loss)
      b.setInsertionPoint(loss);
    Type vector = lossType(op.getX());
    auto step = DistillationStepOp::create(
        b, op.getLoc(), vector, vector, op.getDx().getType(),
        op.getDhead().getType(), op.getX(), op.getHead(), op.getLabels(),
        op.getTeacher(), op.getTeacherHead(), op.getNllCotangent(),
        op.getKlCotangent(), /*transposed=*/Value());
    if (loss)
      b.replaceOp(loss, {step.getNll(), step.getKl()});
    b.replaceOp(op, {step.getDx(), step.getDhead()});
    return success();
  }
};

struct DecomposeGradientsPass
    : public stem::impl::StemDecomposeGradientsPassBase<
          DecomposeGradientsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<DecomposeRMSNorm, DecomposeDenseFFN, DecomposeGatedFFN,
                 DecomposeEmbedding, JoinLoss, JoinDistillation>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    // On what the first round has made.
    RewritePatternSet cleanups(&getContext());
    cleanups.add<NarrowCotangent, SumOntoOther>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(cleanups));
  }
};

} // namespace
