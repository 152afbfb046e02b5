//===- ToLinalgOptimizer.cpp - Updates of parameters ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loops over blocks of elements, whatever the shape. A block is one thread's,
// and sums have the order of blocks: bits depend on sizes alone.
//
//===----------------------------------------------------------------------===//

#include "Constants.h"
#include "TilingUtils.h"
#include "ToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <limits>

using namespace mlir;
using namespace stem;

namespace {

/// Elements of a task of an update: 28 bytes each, a few times the first cache.
constexpr int64_t kUpdateBlock = 16384;
/// Elements of one sum, as in the runtime's globalNorm.
constexpr int64_t kSumBlock = 65536;

/// The elements in one dimension.
Value flatten(OpBuilder &b, Location loc, Value x) {
  if (cast<RankedTensorType>(x.getType()).getRank() == 1)
    return x;
  SmallVector<ReassociationIndices> joined = {{0, 1}};
  return tensor::CollapseShapeOp::create(b, loc, x, joined);
}

Value unflatten(OpBuilder &b, Location loc, Value x, RankedTensorType type) {
  if (type.getRank() == 1)
    return x;
  SmallVector<ReassociationIndices> joined = {{0, 1}};
  return tensor::ExpandShapeOp::create(b, loc, type, x, joined);
}

/// Blocks of a flat tensor.
class Blocks {
public:
  Blocks(OpBuilder &b, Location loc, Value flat, int64_t block)
      : block(constantIndex(b, loc, block)) {
    auto type = cast<RankedTensorType>(flat.getType());
    if (!type.isDynamicDim(0)) {
      isWhole = type.getDimSize(0) % block == 0;
      total = constantIndex(b, loc, type.getDimSize(0));
      count = b.getIndexAttr(llvm::divideCeil(type.getDimSize(0), block));
      return;
    }
    total = tensor::DimOp::create(b, loc, flat, 0);
    Value last =
        arith::AddIOp::create(b, loc, total, constantIndex(b, loc, block - 1));
    count = arith::DivUIOp::create(b, loc, last, this->block).getResult();
  }

  /// The elements of one.
  SliceRange range(OpBuilder &b, Location loc, Value number) const {
    Value first = arith::MulIOp::create(b, loc, number, block);
    if (isWhole)
      return {OpFoldResult(first), getAsOpFoldResult(block)};
    Value left = arith::SubIOp::create(b, loc, total, first);
    return {OpFoldResult(first),
            Value(arith::MinUIOp::create(b, loc, left, block))};
  }

  Value block, total;
  OpFoldResult count;
  bool isWhole = false;
};

/// One element of a vector.
Value extractAt(OpBuilder &b, Location loc, Value vector, int64_t index) {
  return tensor::ExtractOp::create(b, loc, vector,
                                   ValueRange{constantIndex(b, loc, index)});
}

/// The elements of a vector, added up one after the other.
Value addUp(OpBuilder &b, Location loc, Value vector, Value count) {
  Value zero = constantIndex(b, loc, 0);
  auto loop = scf::ForOp::create(
      b, loc, zero, count, constantIndex(b, loc, 1),
      ValueRange{constantF64(b, loc, 0)},
      [&](OpBuilder &body, Location l, Value i, ValueRange sums) {
        Value element = tensor::ExtractOp::create(body, l, vector, i);
        Value sum = arith::AddFOp::create(body, l, sums[0], element);
        scf::YieldOp::create(body, l, sum);
      });
  return loop.getResult(0);
}

// Pattern: sum_squares(x into sums[i]) -> sums of blocks, added up
struct LowerSumSquares : OpRewritePattern<SumSquaresOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SumSquaresOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Value x = flatten(b, loc, op.getX());
    Blocks blocks(b, loc, x, kSumBlock);
    auto loop = scf::ForallOp::create(
        b, loc, ArrayRef<OpFoldResult>{blocks.count},
        ValueRange{partialSums(b, op, blocks)}, std::nullopt,
        [&](OpBuilder &body, Location l, ValueRange arguments) {
          Value slice =
              extractSlice(body, l, x, {blocks.range(body, l, arguments[0])});
          SliceRange place = {OpFoldResult(arguments[0]), body.getIndexAttr(1)};
          Value sum = sumOf(body, l, slice,
                            extractOne(body, l, arguments[1], arguments[0]));
          auto terminator = scf::InParallelOp::create(body, l);
          OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
          parallelInsertSlice(inParallel, l, sum, arguments[1], {place});
        });
    Value total = addUp(b, loc, loop.getResult(0),
                        getValueOrCreateConstantIndexOp(b, loc, blocks.count));
    b.replaceOpWithNewOp<tensor::InsertOp>(
        op, total, op.getSums(),
        ValueRange{constantIndex(b, loc, op.getPlace())});
    return success();
  }

  /// A place for the sum of each block. Memory is planned by rows, so dynamic
  /// rows have one for each row that may begin a block.
  static Value partialSums(OpBuilder &b, SumSquaresOp op,
                           const Blocks &blocks) {
    Location loc = op.getLoc();
    Type f64 = b.getF64Type();
    if (isa<Attribute>(blocks.count))
      return emptyTensor(b, loc, {blocks.count}, f64);
    auto type = cast<RankedTensorType>(op.getX().getType());
    int64_t each = type.getRank() == 1
                       ? 1
                       : llvm::divideCeil(type.getDimSize(1), kSumBlock);
    Value places = emptyTensor(
        b, loc,
        {tensor::getMixedSize(b, loc, op.getX(), 0), b.getIndexAttr(each)},
        f64);
    return flatten(b, loc, places);
  }

  /// The place of one sum, as a tensor without dimensions.
  static Value extractOne(OpBuilder &b, Location loc, Value sums,
                          Value number) {
    OpFoldResult one = b.getIndexAttr(1);
    return tensor::ExtractSliceOp::create(
        b, loc, RankedTensorType::get({}, b.getF64Type()), sums,
        ArrayRef<OpFoldResult>{OpFoldResult(number)}, one, one);
  }

  static Value sumOf(OpBuilder &b, Location loc, Value x, Value sum) {
    sum = linalg::FillOp::create(b, loc, constantF64(b, loc, 0), sum)
              .getResult(0);
    return buildGeneric(
        b, loc, 1, true, {{x, {0}}}, {{sum, {}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value value = convertFloat(nb, l, arguments[0], nb.getF64Type());
          Value square = arith::MulFOp::create(nb, l, value, value);
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, arguments[1], square)};
        })[0];
  }
};

// Pattern: gradient_scale(sums) -> finite ? 1 : NaN
struct LowerGradientScale : OpRewritePattern<GradientScaleOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GradientScaleOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    int64_t count =
        cast<RankedTensorType>(op.getSums().getType()).getDimSize(0);
    Value total = addUp(b, loc, op.getSums(), constantIndex(b, loc, count));
    // No sum is negative.
    Value isFinite = arith::CmpFOp::create(
        b, loc, arith::CmpFPredicate::OLT, total,
        constantF64(b, loc, std::numeric_limits<double>::infinity()));
    Value scale = arith::SelectOp::create(
        b, loc, isFinite, constantF32(b, loc, 1),
        constantF32(b, loc, std::numeric_limits<double>::quiet_NaN()));
    b.replaceOpWithNewOp<tensor::FromElementsOp>(op, op.getType(), scale);
    return success();
  }
};

/// The update of one element, in the order of lib/Training/AdamStep.h.
class ElementUpdate {
public:
  ElementUpdate(OpBuilder &builder, Location loc) : b(loc, builder) {}

  Value real(double value) { return constantF32(b, b.getLoc(), value); }

  /// Numbers below the normal range are 0, of their sign.
  Value flushed(Value x) { return zeroedBelow(x, 0x1p-126); }

  Value scaled(Value gradient, Value scale) {
    return flushed(mul(flushed(gradient), scale));
  }
  /// The root of the least normal number is exact, so that no product is ever
  /// below: processors are slow there.
  Value squared(Value x) {
    Value large = zeroedBelow(x, 0x1p-63);
    return mul(large, large);
  }
  /// `moment` on its way to `to`.
  Value moved(Value moment, Value to, Value rest) {
    moment = flushed(moment);
    Value distance = flushed(arith::SubFOp::create(b, to, moment));
    return flushed(math::FmaOp::create(b, rest, distance, moment));
  }
  Value denominator(Value second, Value root, Value epsilon) {
    return math::FmaOp::create(b, math::SqrtOp::create(b, second), root,
                               epsilon);
  }
  Value stepped(Value weight, Value decay, Value rate, Value first,
                Value denominator) {
    weight = flushed(weight);
    Value move = flushed(
        arith::DivFOp::create(b, flushed(mul(rate, first)), denominator));
    Value change = flushed(math::FmaOp::create(b, decay, weight, move));
    return flushed(arith::SubFOp::create(b, weight, change));
  }

private:
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }

  Value zeroedBelow(Value x, double least) {
    Type bits = b.getI32Type();
    Value sign =
        arith::AndIOp::create(b, arith::BitcastOp::create(b, bits, x),
                              arith::ConstantIntOp::create(
                                  b, std::numeric_limits<int32_t>::min(), 32));
    Value isSmall = arith::CmpFOp::create(
        b, arith::CmpFPredicate::OLT, math::AbsFOp::create(b, x), real(least));
    return arith::SelectOp::create(
        b, isSmall, arith::BitcastOp::create(b, x.getType(), sign), x);
  }

  ImplicitLocOpBuilder b;
};

// Pattern: adamw(g into w, m, v) -> one loop over blocks of elements, in place
struct LowerAdamW : OpRewritePattern<AdamWOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AdamWOp op, PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Value gradient = flatten(b, loc, op.getGradient());
    SmallVector<Value> state;
    for (Value part : {op.getWeight(), op.getFirst(), op.getSecond()})
      state.push_back(flatten(b, loc, part));
    Blocks blocks(b, loc, gradient, kUpdateBlock);
    auto loop = scf::ForallOp::create(
        b, loc, ArrayRef<OpFoldResult>{blocks.count}, state, std::nullopt,
        [&](OpBuilder &body, Location l, ValueRange arguments) {
          SliceRange range = blocks.range(body, l, arguments[0]);
          SmallVector<Value> slices;
          for (Value part : arguments.drop_front())
            slices.push_back(extractSlice(body, l, part, {range}));
          ValueRange updated = update(
              body, l, op, extractSlice(body, l, gradient, {range}), slices);
          auto terminator = scf::InParallelOp::create(body, l);
          OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
          for (auto [slice, part] :
               llvm::zip_equal(updated, arguments.drop_front()))
            parallelInsertSlice(inParallel, l, slice, part, {range});
        });
    SmallVector<Value> results;
    for (Value result : loop.getResults())
      results.push_back(unflatten(
          b, loc, result, cast<RankedTensorType>(op.getWeight().getType())));
    b.replaceOp(op, results);
    return success();
  }

  static ValueRange update(OpBuilder &b, Location loc, AdamWOp op,
                           Value gradient, ArrayRef<Value> state) {
    auto rest = [&](const APFloat &beta) {
      return constantF32(b, loc, 1 - beta.convertToDouble());
    };
    Value rate = extractAt(b, loc, op.getStep(), 0);
    Value root = extractAt(b, loc, op.getStep(), 1);
    Value decay = op.getDecays() ? extractAt(b, loc, op.getStep(), 2)
                                 : constantF32(b, loc, 0);
    Value scale = extractAt(b, loc, op.getScale(), 0);
    Value holds =
        arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, scale, scale);
    Value firstRest = rest(op.getBeta1()), secondRest = rest(op.getBeta2());
    Value epsilon = constantF32(b, loc, op.getEpsilon().convertToDouble());
    return buildGeneric(
        b, loc, 1, false, {{gradient, {0}}},
        {{state[0], {0}}, {state[1], {0}}, {state[2], {0}}},
        [&](OpBuilder &nb, Location l, ValueRange old) {
          ElementUpdate element(nb, l);
          Value g = element.scaled(old[0], scale);
          Value first = element.moved(old[2], g, firstRest);
          Value second = element.moved(old[3], element.squared(g), secondRest);
          Value weight =
              element.stepped(old[1], decay, rate, first,
                              element.denominator(second, root, epsilon));
          SmallVector<Value> values = {weight, first, second};
          for (auto [value, before] : llvm::zip_equal(values, old.drop_front()))
            value = arith::SelectOp::create(nb, l, holds, value, before);
          return values;
        });
  }
};

} // namespace

void stem::populateOptimizerPatterns(RewritePatternSet &patterns) {
  patterns.add<LowerSumSquares, LowerGradientScale, LowerAdamW>(
      patterns.getContext());
}
