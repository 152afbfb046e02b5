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
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stem;

namespace {

/// The bytes that decide the block, for whoever asks.
template <typename FFNOp> void explain(FFNOp op, int64_t block) {
  auto x = cast<RankedTensorType>(op.getX().getType());
  if (x.isDynamicDim(0))
    return;
  int64_t rows = x.getDimSize(0);
  remark::passed(
      op.getLoc(),
      remark::RemarkOpts::name("StemFFNBlock").category("stem-to-linalg"))
      << remark::metric("BlockColumns", block)
      << remark::metric("GateBytes", rows * block * 4)
      << remark::metric("AccumulatorBytes", rows * x.getDimSize(1) * 4);
}

/// Gate, product and down of one block of d_ff at a time: the product of a
/// block lives in a buffer of `T x block` that stays in cache.
template <typename FFNOp> class BlockLoop {
public:
  /// `kept` are linear ops that compute what goes into the product: of the
  /// gate, and of the up-projection of a dense FFN; or none.
  BlockLoop(OpBuilder &b, FFNOp op, ArrayRef<LinearOp> kept)
      : b(b), op(op), kept(kept), loc(op.getLoc()), f32(b.getF32Type()),
        tokens(tensor::getMixedSize(b, loc, op.getX(), 0)),
        down(cast<PackedType>(op.getDown().getType())) {}

  /// The result of the FFN, then those of the kept ops.
  SmallVector<Value> build(int64_t limit) {
    int64_t columns = cast<PackedType>(op.getGate().getType()).getColumns();
    int64_t block = chooseBlock(columns, limit);
    explain(op, block);
    Value acc =
        emptyTensor(b, loc, {tokens, b.getIndexAttr(down.getColumns())}, f32);
    Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0.0f));
    SmallVector<Value> state = {
        linalg::FillOp::create(b, loc, zero, acc).getResult(0)};
    for (LinearOp linear : kept)
      state.push_back(emptyTensor(b, loc, {tokens, b.getIndexAttr(columns)},
                                  linear.getType().getElementType()));
    Value start = index(0), end = index(columns), step = index(block);
    auto loop = scf::ForOp::create(
        b, loc, start, end, step, state,
        [&](OpBuilder &body, Location, Value first, ValueRange values) {
          scf::YieldOp::create(body, loc, visit(body, first, block, values));
        });
    SmallVector<Value> results(loop.getResults());
    if (op.getDownBias())
      results[0] = addBias(b, loc, results[0], op.getDownBias());
    results[0] =
        convertTensor(b, loc, results[0], op.getType().getElementType());
    return results;
  }

private:
  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(b, loc, value);
  }

  SmallVector<Value> visit(OpBuilder &body, Value first, int64_t block,
                           ValueRange state) {
    OpFoldResult width = body.getIndexAttr(block);
    SmallVector<OpFoldResult> sizes = {tokens, width};
    SmallVector<SliceRange> place = {{body.getIndexAttr(0), tokens},
                                     {OpFoldResult(first), width}};
    Value product = emptyTensor(body, loc,
                                {tokens, body.getIndexAttr(spreadColumns(
                                             block, down.getElementType()))},
                                down.getElementType());
    SmallVector<Value> buffers = {
        emptyTensor(body, loc, sizes, f32),
        extractSlice(
            body, loc, product,
            {{body.getIndexAttr(0), tokens}, {body.getIndexAttr(0), width}})};
    if (usesUpMatrix(op))
      buffers.push_back(emptyTensor(body, loc, sizes, f32));
    for (Value whole : state.drop_front())
      buffers.push_back(extractSlice(body, loc, whole, place));
    SmallVector<Value> made =
        buildGatedBlock(body, loc, op, first, width, buffers);
    SmallVector<Value> next = {multiplyPacked(body, loc, made[1], op.getDown(),
                                              state[0], first, nullptr,
                                              /*accumulate=*/true)};
    for (auto [part, whole] : llvm::zip_equal(
             ArrayRef<Value>(made).take_back(kept.size()), state.drop_front()))
      next.push_back(insertSlice(body, loc, part, whole, place));
    return next;
  }

  OpBuilder &b;
  FFNOp op;
  ArrayRef<LinearOp> kept;
  Location loc;
  Type f32;
  OpFoldResult tokens;
  PackedType down;
};

template <typename FFNOp> struct LowerPackedFFN : OpRewritePattern<FFNOp> {
  LowerPackedFFN(MLIRContext *context, int64_t limit)
      : OpRewritePattern<FFNOp>(context, /*benefit=*/2), limit(limit) {}

  LogicalResult matchAndRewrite(FFNOp op, PatternRewriter &b) const override {
    if (!isPackedFFN(op))
      return b.notifyMatchFailure(op, "the matrices are not packed, or not in "
                                      "the type of x");
    b.replaceOp(op, BlockLoop<FFNOp>(b, op, {}).build(limit));
    return success();
  }

  int64_t limit;
};

/// The op that computes x * weight^T + bias beside `op`, behind it; null where
/// there is none.
LinearOp findLinear(Operation *op, Value x, Value weight, Value bias) {
  for (Operation *user : x.getUsers()) {
    auto linear = dyn_cast<LinearOp>(user);
    if (linear && linear.getX() == x && linear.getWeight() == weight &&
        linear.getBias() == bias && linear->getBlock() == op->getBlock() &&
        op->isBeforeInBlock(linear))
      return linear;
  }
  return {};
}

// Pattern: y = ffn(x, G, ...), g = linear(x, G) -> y, g of one loop
template <typename FFNOp> void lowerWithKept(FFNOp op, int64_t limit) {
  if (!isPackedFFN(op))
    return;
  SmallVector<LinearOp> kept = {
      findLinear(op, op.getX(), op.getGate(), op.getGateBias())};
  if constexpr (std::is_same_v<FFNOp, DenseFFNOp>)
    kept.push_back(findLinear(op, op.getX(), op.getUp(), op.getUpBias()));
  if (llvm::is_contained(kept, LinearOp()) ||
      (kept.size() == 2 && kept[0] == kept[1]))
    return;
  OpBuilder builder(op);
  SmallVector<Value> results = BlockLoop<FFNOp>(builder, op, kept).build(limit);
  op.getResult().replaceAllUsesWith(results[0]);
  op.erase();
  for (auto [linear, result] :
       llvm::zip_equal(kept, ArrayRef<Value>(results).drop_front())) {
    linear.getResult().replaceAllUsesWith(result);
    linear.erase();
  }
}

/// The same without packed weights: plain products around one elementwise op.
template <typename FFNOp> struct LowerPlainFFN : OpRewritePattern<FFNOp> {
  using OpRewritePattern<FFNOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(FFNOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type f32 = b.getF32Type();
    remark::missed(
        loc,
        remark::RemarkOpts::name("StemFFNBlock").category("stem-to-linalg"))
        << remark::reason("its matrices are not packed in the type of x, {0}: "
                          "the gate and the product are written whole",
                          op.getX().getType().getElementType());
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

void stem::lowerKeptGates(func::FuncOp function, int64_t limit) {
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) {
    if (isa<DenseFFNOp, GatedFFNOp, FusedFFNOp>(op))
      ops.push_back(op);
  });
  for (Operation *op : ops)
    llvm::TypeSwitch<Operation *>(op).Case<DenseFFNOp, GatedFFNOp, FusedFFNOp>(
        [&](auto ffn) { lowerWithKept(ffn, limit); });
}

void stem::populateFFNPatterns(RewritePatternSet &patterns,
                               const ToLinalgOptions &options) {
  MLIRContext *context = patterns.getContext();
  patterns.add<LowerPackedFFN<DenseFFNOp>, LowerPackedFFN<GatedFFNOp>,
               LowerPackedFFN<FusedFFNOp>>(context, options.ffnBlock);
  patterns.add<LowerPlainFFN<DenseFFNOp>, LowerPlainFFN<GatedFFNOp>,
               LowerPlainFFN<FusedFFNOp>>(context);
}
