//===- ToLinalgMatrix.cpp - Matrix products and the loss ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FFNLowering.h"
#include "SelectUpLowering.h"
#include "TilingUtils.h"
#include "ToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace stem;

namespace {

/// x * weight^T by a plain loop nest, into `acc`.
Value multiplyPlain(OpBuilder &b, Location loc, Value x, Value weight,
                    Value acc) {
  Type f32 = b.getF32Type();
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0.0f));
  acc = linalg::FillOp::create(b, loc, zero, acc).getResult(0);
  return buildGeneric(
      b, loc, 3, true, {{x, {0, 2}}, {weight, {1, 2}}}, {{acc, {0, 1}}},
      [&](OpBuilder &nb, Location l, ValueRange arguments) {
        Value product =
            arith::MulFOp::create(nb, l, convertFloat(nb, l, arguments[0], f32),
                                  convertFloat(nb, l, arguments[1], f32));
        return SmallVector<Value>{
            arith::AddFOp::create(nb, l, arguments[2], product)};
      })[0];
}

} // namespace

void stem::explainPlainProduct(Location loc, Value weight, StringRef reason) {
  remark::missed(
      loc, remark::RemarkOpts::name("PlainProduct").category("stem-to-linalg"))
      << remark::reason(
             "a weight, {0}, {1}: a plain loop nest multiplies by it",
             weight.getType(), reason);
}

Value stem::multiplyInto(OpBuilder &b, Location loc, Value x, Value weight,
                         Value acc) {
  auto packed = dyn_cast<PackedType>(weight.getType());
  if (!packed) {
    explainPlainProduct(loc, weight, "is not packed");
    return multiplyPlain(b, loc, x, weight, acc);
  }
  x = convertTensor(b, loc, x, packed.getElementType());
  return multiplyPacked(b, loc, x, weight, acc, nullptr, nullptr, false);
}

namespace {

/// x * weight^T as f32 `[T, N]`.
Value multiply(OpBuilder &b, Location loc, Value x, Value weight) {
  WeightShape shape = getWeightShape(weight.getType());
  Value acc = emptyTensor(
      b, loc,
      {tensor::getMixedSize(b, loc, x, 0), b.getIndexAttr(shape.outputs)},
      b.getF32Type());
  return multiplyInto(b, loc, x, weight, acc);
}

// Pattern: linear(x, w, b) -> x w^T (+ b)
struct LowerLinear : OpRewritePattern<LinearOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LinearOp op,
                                PatternRewriter &b) const override {
    Value result = multiply(b, op.getLoc(), op.getX(), op.getWeight());
    if (op.getBias())
      result = addBias(b, op.getLoc(), result, op.getBias());
    b.replaceOp(op, convertTensor(b, op.getLoc(), result,
                                  op.getType().getElementType()));
    return success();
  }
};

// Pattern: mix(up, x, a, b) -> up + a (b x)
struct LowerMix : OpRewritePattern<MixOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MixOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Value inner = multiply(b, loc, op.getX(), op.getB());
    inner = convertTensor(
        b, loc, inner,
        cast<RankedTensorType>(op.getX().getType()).getElementType());
    Value term = multiply(b, loc, inner, op.getA());
    Type element = op.getType().getElementType();
    Value out = emptyLike(b, loc, op.getUp(), element);
    b.replaceOp(
        op, buildGeneric(
                b, loc, 2, false, {{op.getUp(), {0, 1}}, {term, {0, 1}}},
                {{out, {0, 1}}},
                [&](OpBuilder &nb, Location l, ValueRange arguments) {
                  Value up = convertFloat(nb, l, arguments[0], nb.getF32Type());
                  Value sum = arith::AddFOp::create(nb, l, up, arguments[1]);
                  return SmallVector<Value>{convertFloat(nb, l, sum, element)};
                }));
    return success();
  }
};

// Pattern: select_up(up, x, w, ids, selected)
//          -> scatter(gather(x) w^T (+ b), up)
struct LowerSelectUp : OpRewritePattern<SelectUpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SelectUpOp op,
                                PatternRewriter &b) const override {
    b.replaceOp(op, buildSelectUp(b, op, multiplyInto));
    return success();
  }
};

/// The loss over blocks of the vocabulary, in the online form of logsumexp: a
/// running maximum, the sum of exponentials below it, and the label's logit.
/// With a teacher the same of its logits, and the sum of its exponentials times
/// the difference of the logits.
class VocabularyLoop {
public:
  VocabularyLoop(OpBuilder &b, Location loc, Value hiddens, Value weight,
                 Value labels, int64_t limit)
      : b(b), loc(loc), labels(labels), f32(b.getF32Type()) {
    vocabulary = getWeightShape(weight.getType()).outputs;
    own = headOf(hiddens, weight);
    // Blocks of whole panels; the last may be narrower.
    block =
        std::min<int64_t>(std::max<int64_t>(limit / 64 * 64, 64), vocabulary);
  }

  void addTeacher(Value hiddens, Value weight) {
    teacher = headOf(hiddens, weight);
  }

  /// nll and, with a teacher, kl; of this element type.
  SmallVector<Value> build(Type element) {
    Value lowest = constant(-std::numeric_limits<float>::infinity());
    Value zero = constant(0.0f);
    SmallVector<Value> state = {perToken(lowest), perToken(zero),
                                perToken(zero)};
    if (teacher)
      state.append({perToken(lowest), perToken(zero), perToken(zero)});
    Value first = index(0), last = index(vocabulary), step = index(block);
    auto loop = scf::ForOp::create(
        b, loc, first, last, step, state,
        [&](OpBuilder &body, Location, Value column, ValueRange iterArgs) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPoint(body.getInsertionBlock(),
                              body.getInsertionPoint());
          scf::YieldOp::create(b, loc, visit(column, iterArgs));
        });
    SmallVector<Value> losses = {finish(loop.getResults(), element)};
    if (teacher)
      losses.push_back(divergence(loop.getResults(), element));
    return losses;
  }

private:
  struct Head {
    Value x, weight;
  };

  Head headOf(Value x, Value weight) {
    if (auto packed = dyn_cast<PackedType>(weight.getType()))
      x = convertTensor(b, loc, x, packed.getElementType());
    return {x, weight};
  }

  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(b, loc, value);
  }
  Value constant(float value) {
    return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
  }
  OpFoldResult tokens() { return tensor::getMixedSize(b, loc, own.x, 0); }
  Value perToken(Value value) {
    Value empty = emptyTensor(b, loc, {tokens()}, f32);
    return linalg::FillOp::create(b, loc, value, empty).getResult(0);
  }

  /// Logits of columns [column, column + width).
  Value logits(const Head &of, Value column) {
    OpFoldResult width = b.getIndexAttr(block);
    if (vocabulary % block != 0) {
      Value left = arith::SubIOp::create(b, loc, index(vocabulary), column);
      width = Value(arith::MinUIOp::create(b, loc, left, index(block)));
    }
    Value buffer = emptyTensor(b, loc, {tokens(), b.getIndexAttr(block)}, f32);
    Value acc = extractSlice(
        b, loc, buffer,
        {fullRange(b, loc, buffer, 0), {b.getIndexAttr(0), width}});
    if (isa<PackedType>(of.weight.getType()))
      return multiplyPacked(b, loc, of.x, of.weight, acc, nullptr, column,
                            false);
    explainPlainProduct(loc, of.weight, "is not packed");
    Value rows = extractSlice(
        b, loc, of.weight,
        {{OpFoldResult(column), width}, fullRange(b, loc, of.weight, 1)});
    return multiplyPlain(b, loc, of.x, rows, acc);
  }

  SmallVector<Value> visit(Value column, ValueRange state) {
    Value scores = logits(own, column);
    Value label = labelLogit(scores, column, state[2]);
    SmallVector<Value> next = moveTo(scores, state.take_front(2));
    next[1] = addPowers(scores, next[0], next[1], {});
    next.push_back(label);
    if (!teacher)
      return next;
    Value wanted = logits(*teacher, column);
    SmallVector<Value> sums = moveTo(wanted, state.drop_front(3));
    sums[1] = addPowers(wanted, sums[0], sums[1], {});
    sums[2] = addPowers(wanted, sums[0], sums[2], scores);
    llvm::append_range(next, sums);
    return next;
  }

  /// A maximum and sums of exponentials below it: the maximum with `scores`,
  /// and what the sums are below that. One loop, so that the old maximum need
  /// not be kept.
  SmallVector<Value> moveTo(Value scores, ValueRange state) {
    Value lowest = constant(-std::numeric_limits<float>::infinity());
    Value blockMax = buildGeneric(
        b, loc, 2, true, {{scores, {0, 1}}}, {{perToken(lowest), {0}}},
        [](OpBuilder &nb, Location l, ValueRange a) {
          return SmallVector<Value>{
              arith::MaximumFOp::create(nb, l, a[1], a[0])};
        })[0];
    SmallVector<Access> outputs;
    for (Value value : state)
      outputs.push_back({value, {0}});
    return SmallVector<Value>(buildGeneric(
        b, loc, 1, false, {{blockMax, {0}}}, outputs,
        [](OpBuilder &nb, Location l, ValueRange a) {
          Value max = arith::MaximumFOp::create(nb, l, a[1], a[0]);
          Value shift = arith::SubFOp::create(nb, l, a[1], max);
          Value factor = math::ExpOp::create(nb, l, shift);
          SmallVector<Value> moved = {max};
          for (Value sum : a.drop_front(2))
            moved.push_back(arith::MulFOp::create(nb, l, sum, factor));
          return moved;
        }));
  }

  /// sum + exp(score - max), each times (score - less) where that is given.
  Value addPowers(Value scores, Value max, Value sum, Value less) {
    SmallVector<Access> inputs = {{scores, {0, 1}}, {max, {0}}};
    if (less)
      inputs.push_back({less, {0, 1}});
    return buildGeneric(
        b, loc, 2, true, inputs, {{sum, {0}}},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          Value shift = arith::SubFOp::create(nb, l, a[0], a[1]);
          Value term = math::ExpOp::create(nb, l, shift);
          if (less)
            term = arith::MulFOp::create(
                nb, l, term, arith::SubFOp::create(nb, l, a[0], a[2]));
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, a.back(), term)};
        })[0];
  }

  /// The logit of each token's label when it lies in this block.
  Value labelLogit(Value scores, Value column, Value old) {
    Value width = tensor::DimOp::create(b, loc, scores, 1);
    return buildGeneric(
        b, loc, 1, false, {{labels, {0}}}, {{old, {0}}},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          Value label =
              arith::IndexCastOp::create(nb, l, nb.getIndexType(), a[0]);
          Value offset = arith::SubIOp::create(nb, l, label, column);
          // A label in front of the block is a large unsigned offset.
          Value inside = arith::CmpIOp::create(nb, l, arith::CmpIPredicate::ult,
                                               offset, width);
          Value zero = arith::ConstantIndexOp::create(nb, l, 0);
          Value safe = arith::SelectOp::create(nb, l, inside, offset, zero);
          Value token = linalg::IndexOp::create(nb, l, 0);
          Value logit =
              tensor::ExtractOp::create(nb, l, scores, ValueRange{token, safe});
          return SmallVector<Value>{
              arith::SelectOp::create(nb, l, inside, logit, a[1])};
        })[0];
  }

  /// What `body` makes of a token's elements of `inputs`, 0 where the label is
  /// -100.
  Value perLabel(ValueRange inputs, Type element,
                 function_ref<Value(OpBuilder &, Location, ValueRange)> body) {
    SmallVector<Access> accesses;
    for (Value input : inputs)
      accesses.push_back({input, {0}});
    accesses.push_back({labels, {0}});
    return buildGeneric(
        b, loc, 1, false, accesses,
        {{emptyTensor(b, loc, {tokens()}, element), {0}}},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          Value loss = body(nb, l, a);
          Value ignored = arith::ConstantIntOp::create(nb, l, -100, 32);
          Value skip = arith::CmpIOp::create(nb, l, arith::CmpIPredicate::eq,
                                             a[inputs.size()], ignored);
          Value zero = arith::ConstantOp::create(nb, l, nb.getF32FloatAttr(0));
          Value result = arith::SelectOp::create(nb, l, skip, zero, loss);
          return SmallVector<Value>{convertFloat(nb, l, result, element)};
        })[0];
  }

  static Value logSum(OpBuilder &nb, Location l, Value max, Value sum) {
    return arith::AddFOp::create(nb, l, math::LogOp::create(nb, l, sum), max);
  }

  /// log(sum) + max - label logit.
  Value finish(ValueRange state, Type element) {
    return perLabel(state.take_front(3), element,
                    [](OpBuilder &nb, Location l, ValueRange a) -> Value {
                      return arith::SubFOp::create(
                          nb, l, logSum(nb, l, a[0], a[1]), a[2]);
                    });
  }

  /// The mean of the logits' difference less that of their logsumexps.
  Value divergence(ValueRange state, Type element) {
    SmallVector<Value> inputs = {state[0], state[1], state[3], state[4],
                                 state[5]};
    return perLabel(
        inputs, element, [](OpBuilder &nb, Location l, ValueRange a) -> Value {
          Value mean = arith::DivFOp::create(nb, l, a[4], a[3]);
          Value shift = arith::SubFOp::create(nb, l, logSum(nb, l, a[2], a[3]),
                                              logSum(nb, l, a[0], a[1]));
          return arith::SubFOp::create(nb, l, mean, shift);
        });
  }

  OpBuilder &b;
  Location loc;
  Value labels;
  Head own;
  std::optional<Head> teacher;
  Type f32;
  int64_t vocabulary, block;
};

struct LowerCrossEntropy : OpRewritePattern<CrossEntropyOp> {
  LowerCrossEntropy(MLIRContext *context, int64_t block)
      : OpRewritePattern(context), block(block) {}

  LogicalResult matchAndRewrite(CrossEntropyOp op,
                                PatternRewriter &b) const override {
    VocabularyLoop loop(b, op.getLoc(), op.getX(), op.getHead(), op.getLabels(),
                        block);
    b.replaceOp(op, loop.build(op.getType().getElementType()));
    return success();
  }

  int64_t block;
};

struct LowerDistillation : OpRewritePattern<DistillationOp> {
  LowerDistillation(MLIRContext *context, int64_t block)
      : OpRewritePattern(context), block(block) {}

  LogicalResult matchAndRewrite(DistillationOp op,
                                PatternRewriter &b) const override {
    Type element = op.getNll().getType().getElementType();
    if (op.getKl().getType().getElementType() != element)
      return b.notifyMatchFailure(op, "nll and kl differ in their types");
    VocabularyLoop loop(b, op.getLoc(), op.getX(), op.getHead(), op.getLabels(),
                        block);
    loop.addTeacher(op.getTeacher(), op.getTeacherHead());
    b.replaceOp(op, loop.build(element));
    return success();
  }

  int64_t block;
};

} // namespace

void stem::populateMatrixPatterns(RewritePatternSet &patterns,
                                  const ToLinalgOptions &options) {
  patterns.add<LowerLinear, LowerMix, LowerSelectUp>(patterns.getContext());
  patterns.add<LowerCrossEntropy, LowerDistillation>(patterns.getContext(),
                                                     options.vocabularyBlock);
}
