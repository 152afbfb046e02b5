//===- ToLinalgFFN.cpp - The gated FFNs over blocks of d_ff ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FFNLowering.h"
#include "TilingUtils.h"
#include "ToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace stem;

namespace {

/// Gate, product and down of one block of d_ff at a time: the product of a
/// block lives in a buffer of `T x block` that stays in cache.
template <typename FFNOp> struct LowerPackedFFN : OpRewritePattern<FFNOp> {
  LowerPackedFFN(MLIRContext *context, int64_t limit)
      : OpRewritePattern<FFNOp>(context, /*benefit=*/2), limit(limit) {}

  LogicalResult matchAndRewrite(FFNOp op, PatternRewriter &b) const override {
    if (!isPackedFFN(op))
      return b.notifyMatchFailure(op, "the matrices are not packed, or not in "
                                      "the type of x");
    auto gate = cast<PackedType>(op.getGate().getType());
    auto down = cast<PackedType>(op.getDown().getType());
    Location loc = op.getLoc();
    int64_t columns = gate.getColumns();
    int64_t block = chooseBlock(columns, limit);
    explain(op, block);

    OpFoldResult tokens = tensor::getMixedSize(b, loc, op.getX(), 0);
    Type f32 = b.getF32Type();
    Value acc =
        emptyTensor(b, loc, {tokens, b.getIndexAttr(down.getColumns())}, f32);
    Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0.0f));
    acc = linalg::FillOp::create(b, loc, zero, acc).getResult(0);
    auto index = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(b, loc, value);
    };
    Value start = index(0), end = index(columns), step = index(block);
    auto loop = scf::ForOp::create(
        b, loc, start, end, step, ValueRange{acc},
        [&](OpBuilder &body, Location l, Value first, ValueRange state) {
          OpFoldResult width = body.getIndexAttr(block);
          SmallVector<OpFoldResult> sizes = {tokens, width};
          SmallVector<Value> buffers = {
              emptyTensor(body, l, sizes, f32),
              emptyTensor(body, l, sizes, down.getElementType())};
          if (usesUpMatrix(op))
            buffers.push_back(emptyTensor(body, l, sizes, f32));
          Value product =
              buildGatedBlock(body, l, op, first, width, buffers)[1];
          scf::YieldOp::create(body, l,
                               multiplyPacked(body, l, product, op.getDown(),
                                              state[0], first, nullptr,
                                              /*accumulate=*/true));
        });
    Value result = loop.getResult(0);
    if (op.getDownBias())
      result = addBias(b, loc, result, op.getDownBias());
    b.replaceOp(op,
                convertTensor(b, loc, result, op.getType().getElementType()));
    return success();
  }

  /// The bytes that decide the block, for whoever asks.
  void explain(FFNOp op, int64_t block) const {
    auto x = cast<RankedTensorType>(op.getX().getType());
    if (x.isDynamicDim(0))
      return;
    int64_t rows = x.getDimSize(0);
    remark::passed(op.getLoc(),
                   remark::RemarkOpts::name("StemFFNBlock").category("stem"))
        << remark::metric("BlockColumns", block)
        << remark::metric("GateBytes", rows * block * 4)
        << remark::metric("AccumulatorBytes", rows * x.getDimSize(1) * 4);
  }

  int64_t limit;
};

/// The same without packed weights: plain products around one elementwise op.
template <typename FFNOp> struct LowerPlainFFN : OpRewritePattern<FFNOp> {
  using OpRewritePattern<FFNOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(FFNOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type f32 = b.getF32Type();
    auto linear = [&](Value x, Value weight, Value bias) -> Value {
      auto type =
          RankedTensorType::get({op.getX().getType().getDimSize(0),
                                 getWeightShape(weight.getType()).outputs},
                                f32);
      return LinearOp::create(b, loc, type, x, weight, bias);
    };
    Value gate = linear(op.getX(), op.getGate(), op.getGateBias());
    Value up = upOf(op, b, linear);
    Value product = buildGeneric(
        b, loc, 2, false, {{up, {0, 1}}}, {{gate, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value u = convertFloat(nb, l, arguments[0], f32);
          return SmallVector<Value>{gateTimesUp(nb, l, arguments[1], u)};
        })[0];
    Value result = linear(product, op.getDown(), op.getDownBias());
    b.replaceOp(op,
                convertTensor(b, loc, result, op.getType().getElementType()));
    return success();
  }

  template <typename Linear>
  static Value upOf(DenseFFNOp op, OpBuilder &, Linear linear) {
    return linear(op.getX(), op.getUp(), op.getUpBias());
  }
  template <typename Linear>
  static Value upOf(GatedFFNOp op, OpBuilder &, Linear) {
    return op.getUp();
  }
  template <typename Linear>
  static Value upOf(FusedFFNOp op, OpBuilder &b, Linear) {
    auto rows = cast<RankedTensorType>(op.getRows().getType());
    auto type = RankedTensorType::get(
        {op.getX().getType().getDimSize(0), rows.getDimSize(1)},
        rows.getElementType());
    return LookupOp::create(b, op.getLoc(), type, op.getRows(), op.getIndex());
  }
};

} // namespace

void stem::populateFFNPatterns(RewritePatternSet &patterns,
                               const ToLinalgOptions &options) {
  MLIRContext *context = patterns.getContext();
  patterns.add<LowerPackedFFN<DenseFFNOp>, LowerPackedFFN<GatedFFNOp>,
               LowerPackedFFN<FusedFFNOp>>(context, options.ffnBlock);
  patterns.add<LowerPlainFFN<DenseFFNOp>, LowerPlainFFN<GatedFFNOp>,
               LowerPlainFFN<FusedFFNOp>>(context);
}
