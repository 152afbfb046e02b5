//===- ToLinalgElementwise.cpp - Norms, rotations and gathers -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FFNLowering.h"
#include "TilingUtils.h"
#include "ToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace stem;

namespace {

Value constantF32(OpBuilder &b, Location loc, double value) {
  return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
}

// Pattern: rms_norm(x, w) -> x * rsqrt(sum(x^2) / E + eps) * w per group of E
struct LowerRMSNorm : OpRewritePattern<RMSNormOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RMSNormOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    int64_t group = op.getWeight().getType().getDimSize(0);
    Type f32 = b.getF32Type();
    Value x = splitColumns(b, loc, op.getX(), group);
    auto sizes = tensor::getMixedSizes(b, loc, x);
    Value zero = constantF32(b, loc, 0.0);
    Value squares = emptyTensor(b, loc, ArrayRef(sizes).drop_back(), f32);
    squares = linalg::FillOp::create(b, loc, zero, squares).getResult(0);
    squares =
        buildGeneric(b, loc, 3, true, {{x, {0, 1, 2}}}, {{squares, {0, 1}}},
                     [&](OpBuilder &nb, Location l, ValueRange arguments) {
                       Value value = convertFloat(nb, l, arguments[0], f32);
                       Value square =
                           arith::MulFOp::create(nb, l, value, value);
                       return SmallVector<Value>{
                           arith::AddFOp::create(nb, l, arguments[1], square)};
                     })[0];
    Value inverseSize = constantF32(b, loc, 1.0 / static_cast<double>(group));
    Value eps = constantF32(b, loc, op.getEps().convertToDouble());
    Value factors = buildGeneric(
        b, loc, 2, false, {}, {{squares, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value mean = arith::MulFOp::create(nb, l, arguments[0], inverseSize);
          Value shifted = arith::AddFOp::create(nb, l, mean, eps);
          return SmallVector<Value>{math::RsqrtOp::create(nb, l, shifted)};
        })[0];
    Type element = op.getType().getElementType();
    Value out = emptyTensor(b, loc, sizes, element);
    out = buildGeneric(
        b, loc, 3, false,
        {{x, {0, 1, 2}}, {factors, {0, 1}}, {op.getWeight(), {2}}},
        {{out, {0, 1, 2}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value value = convertFloat(nb, l, arguments[0], f32);
          Value scaled = arith::MulFOp::create(nb, l, value, arguments[1]);
          Value weight = convertFloat(nb, l, arguments[2], f32);
          scaled = arith::MulFOp::create(nb, l, scaled, weight);
          return SmallVector<Value>{convertFloat(nb, l, scaled, element)};
        })[0];
    b.replaceOp(op, joinColumns(b, loc, out, op.getType()));
    return success();
  }
};

// Pattern: rotary_angles(p) -> scaling * cos(p * inv_freq), scaling * sin(...)
struct LowerRotaryAngles : OpRewritePattern<RotaryAnglesOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RotaryAnglesOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type f32 = b.getF32Type();
    auto frequencies = RankedTensorType::get(
        {static_cast<int64_t>(op.getInvFreq().size())}, f32);
    Value table = arith::ConstantOp::create(
        b, loc, DenseElementsAttr::get(frequencies, op.getInvFreq()));
    SmallVector<OpFoldResult> sizes = {
        tensor::getMixedSize(b, loc, op.getPositions(), 0),
        b.getIndexAttr(frequencies.getDimSize(0))};
    Value cos =
        emptyTensor(b, loc, sizes, op.getCos().getType().getElementType());
    Value sin =
        emptyTensor(b, loc, sizes, op.getSin().getType().getElementType());
    Value scaling = constantF32(b, loc, op.getScaling().convertToDouble());
    ValueRange results = buildGeneric(
        b, loc, 2, false, {{op.getPositions(), {0}}, {table, {1}}},
        {{cos, {0, 1}}, {sin, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value position = arith::SIToFPOp::create(nb, l, f32, arguments[0]);
          Value angle = arith::MulFOp::create(nb, l, position, arguments[1]);
          Value c = math::CosOp::create(nb, l, angle);
          Value s = math::SinOp::create(nb, l, angle);
          c = arith::MulFOp::create(nb, l, c, scaling);
          s = arith::MulFOp::create(nb, l, s, scaling);
          return SmallVector<Value>{
              convertFloat(nb, l, c, arguments[2].getType()),
              convertFloat(nb, l, s, arguments[3].getType())};
        });
    b.replaceOp(op, results);
    return success();
  }
};

// Pattern: rope(x, cos, sin) -> (a cos - b sin, b cos + a sin), x = (a, b)
struct LowerRope : OpRewritePattern<RopeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(RopeOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    int64_t half = op.getCos().getType().getDimSize(1);
    Value x = splitColumns(b, loc, op.getX(), 2 * half);
    Value out = emptyTensor(b, loc, tensor::getMixedSizes(b, loc, x),
                            op.getType().getElementType());
    // One half after the other, so that both are written in place.
    out = rotateHalf(b, op, x, out, /*isFirst=*/true);
    out = rotateHalf(b, op, x, out, /*isFirst=*/false);
    b.replaceOp(op, joinColumns(b, loc, out, op.getType()));
    return success();
  }

  /// Writes a cos - b sin, or b cos + a sin, into its half of `out`.
  static Value rotateHalf(OpBuilder &b, RopeOp op, Value x, Value out,
                          bool isFirst) {
    Location loc = op.getLoc();
    Type f32 = b.getF32Type();
    Type element = op.getType().getElementType();
    int64_t half = op.getCos().getType().getDimSize(1);
    auto halfOf = [&](Value whole, int64_t offset) {
      return extractSlice(b, loc, whole,
                          halfRanges(b, loc, whole, offset, half));
    };
    Value straight = halfOf(x, isFirst ? 0 : half);
    Value crossed = halfOf(x, isFirst ? half : 0);
    int64_t offset = isFirst ? 0 : half;
    Value rotated = buildGeneric(
        b, loc, 3, false,
        {{straight, {0, 1, 2}},
         {crossed, {0, 1, 2}},
         {op.getCos(), {0, 2}},
         {op.getSin(), {0, 2}}},
        {{halfOf(out, offset), {0, 1, 2}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          SmallVector<Value> in;
          for (Value argument : arguments.take_front(4))
            in.push_back(convertFloat(nb, l, argument, f32));
          Value left = arith::MulFOp::create(nb, l, in[0], in[2]);
          Value right = arith::MulFOp::create(nb, l, in[1], in[3]);
          Value sum = isFirst
                          ? Value(arith::SubFOp::create(nb, l, left, right))
                          : Value(arith::AddFOp::create(nb, l, left, right));
          return SmallVector<Value>{convertFloat(nb, l, sum, element)};
        })[0];
    return insertSlice(b, loc, rotated, out,
                       halfRanges(b, loc, out, offset, half));
  }

  static SmallVector<SliceRange> halfRanges(OpBuilder &b, Location loc,
                                            Value whole, int64_t offset,
                                            int64_t half) {
    return {fullRange(b, loc, whole, 0),
            fullRange(b, loc, whole, 1),
            {b.getIndexAttr(offset), b.getIndexAttr(half)}};
  }
};

// Pattern: silu(x) -> x / (1 + exp(-x))
struct LowerSilu : OpRewritePattern<SiluOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SiluOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type element = op.getType().getElementType();
    Value out = emptyLike(b, loc, op.getX(), element);
    out = buildGeneric(b, loc, 2, false, {{op.getX(), {0, 1}}}, {{out, {0, 1}}},
                       [&](OpBuilder &nb, Location l, ValueRange arguments) {
                         Value x =
                             convertFloat(nb, l, arguments[0], nb.getF32Type());
                         return SmallVector<Value>{
                             convertFloat(nb, l, buildSilu(nb, l, x), element)};
                       })[0];
    b.replaceOp(op, out);
    return success();
  }
};

/// `matrix[ids[t], j]`.
Value gatherRows(OpBuilder &b, Location loc, Value ids, Value matrix,
                 RankedTensorType type) {
  Value out = emptyTensor(b, loc,
                          {tensor::getMixedSize(b, loc, ids, 0),
                           b.getIndexAttr(type.getDimSize(1))},
                          type.getElementType());
  return buildGeneric(
      b, loc, 2, false, {{ids, {0}}}, {{out, {0, 1}}},
      [&](OpBuilder &nb, Location l, ValueRange arguments) {
        Value row =
            arith::IndexCastOp::create(nb, l, nb.getIndexType(), arguments[0]);
        Value column = linalg::IndexOp::create(nb, l, 1);
        Value element =
            tensor::ExtractOp::create(nb, l, matrix, ValueRange{row, column});
        return SmallVector<Value>{
            convertFloat(nb, l, element, type.getElementType())};
      })[0];
}

// Pattern: embedding(ids, w) -> w[ids[t], j]
// Pattern: embedding(ids, packed) -> packed_gather(ids, packed)
struct LowerEmbedding : OpRewritePattern<EmbeddingOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(EmbeddingOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    if (!isa<PackedType>(op.getWeight().getType())) {
      b.replaceOp(
          op, gatherRows(b, loc, op.getIds(), op.getWeight(), op.getType()));
      return success();
    }
    Value out = emptyTensor(b, loc,
                            {tensor::getMixedSize(b, loc, op.getIds(), 0),
                             b.getIndexAttr(op.getType().getDimSize(1))},
                            b.getF32Type());
    out = PackedGatherOp::create(b, loc, out.getType(), op.getIds(),
                                 op.getWeight(), out)
              .getResult(0);
    b.replaceOp(op, convertTensor(b, loc, out, op.getType().getElementType()));
    return success();
  }
};

// Pattern: lookup(rows, index) -> rows[index[t], j]
struct LowerLookup : OpRewritePattern<LookupOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LookupOp op,
                                PatternRewriter &b) const override {
    b.replaceOp(op, gatherRows(b, op.getLoc(), op.getIndex(), op.getRows(),
                               op.getType()));
    return success();
  }
};

// Pattern: map_ids(ids, map) -> in range and map[id] >= 0 ? map[id] : unknown
struct LowerMapIds : OpRewritePattern<MapIdsOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MapIdsOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Type i32 = b.getI32Type();
    Value out = emptyLike(b, loc, op.getIds(), i32);
    Value size = tensor::DimOp::create(b, loc, op.getMap(), 0);
    size = arith::IndexCastOp::create(b, loc, i32, size);
    Value zero = arith::ConstantIntOp::create(b, loc, 0, 32);
    Value unknown = arith::ConstantIntOp::create(
        b, loc, static_cast<int32_t>(op.getUnknown()), 32);
    using arith::CmpIPredicate;
    Value result = buildGeneric(
        b, loc, 1, false, {{op.getIds(), {0}}}, {{out, {0}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value id = arguments[0];
          // A negative id is a large unsigned one.
          Value known =
              arith::CmpIOp::create(nb, l, CmpIPredicate::ult, id, size);
          Value safe = arith::SelectOp::create(nb, l, known, id, zero);
          Value index =
              arith::IndexCastOp::create(nb, l, nb.getIndexType(), safe);
          Value mapped =
              tensor::ExtractOp::create(nb, l, op.getMap(), ValueRange{index});
          Value valid =
              arith::CmpIOp::create(nb, l, CmpIPredicate::sge, mapped, zero);
          known = arith::AndIOp::create(nb, l, known, valid);
          return SmallVector<Value>{
              arith::SelectOp::create(nb, l, known, mapped, unknown)};
        })[0];
    b.replaceOp(op, result);
    return success();
  }
};

} // namespace

void stem::populateElementwisePatterns(RewritePatternSet &patterns) {
  patterns.add<LowerRMSNorm, LowerRotaryAngles, LowerRope, LowerSilu,
               LowerEmbedding, LowerLookup, LowerMapIds>(patterns.getContext());
}
