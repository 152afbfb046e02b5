//===- AttentionLowering.cpp - Attention of one head over pages -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionLowering.h"

#include "TilingUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

// Scores that a row must not see. Finite, so that no difference of two of them
// is NaN; no real score comes near.
static constexpr float kMasked = -1.0e30f;

namespace {

/// The maximum; which of two it is when one is NaN does not matter.
Value largerOf(OpBuilder &b, Location loc, Value x, Value y) {
  return arith::MaximumFOp::create(b, loc, x, y, arith::FastMathFlags::nnan);
}

/// Builds the loop over pages; M query rows, E = head_dim, P positions a page.
class PageLoop {
public:
  PageLoop(OpBuilder &builder, Location loc, const AttentionTile &tile,
           Value queries)
      : b(builder), loc(loc), tile(tile), queries(queries) {
    auto type = cast<RankedTensorType>(queries.getType());
    rows = type.getDimSize(0);
    headDim = type.getDimSize(1);
    elementType = type.getElementType();
    f32 = b.getF32Type();
  }

  Value build(Value dest) {
    Value zero = constant(0.0f);
    Value initialMax = filled({rows}, constant(kMasked));
    Value initialSum = filled({rows}, zero);
    Value initialOut = filled({rows, headDim}, zero);
    auto [first, last] = pageRange();
    Value one = index(1);
    auto loop = scf::ForOp::create(
        b, loc, first, last, one,
        ValueRange{initialMax, initialSum, initialOut},
        [&](OpBuilder &body, Location, Value page, ValueRange state) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPoint(body.getInsertionBlock(),
                              body.getInsertionPoint());
          scf::YieldOp::create(b, loc, step(page, state));
        });
    return normalise(loop.getResult(2), loop.getResult(1), dest);
  }

private:
  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(b, loc, value);
  }
  Value constant(float value) {
    return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
  }
  Value empty(ArrayRef<int64_t> shape, Type type) {
    return tensor::EmptyOp::create(b, loc, shape, type);
  }
  Value filled(ArrayRef<int64_t> shape, Value value) {
    return linalg::FillOp::create(b, loc, value, empty(shape, f32))
        .getResult(0);
  }

  /// Pages [first, last) that some row sees.
  std::pair<Value, Value> pageRange() {
    Value pageTokens = index(KVPageOp::kPageTokens);
    Value first = index(0);
    if (int64_t window = tile.op.getWindow()) {
      // The oldest visible position is firstPosition - window + 1.
      Value oldest =
          arith::SubIOp::create(b, loc, tile.firstPosition, index(window - 1));
      oldest = arith::MaxSIOp::create(b, loc, oldest, index(0));
      first = arith::DivUIOp::create(b, loc, oldest, pageTokens);
    }
    Value last = arith::DivUIOp::create(b, loc, tile.lastPosition, pageTokens);
    last = arith::AddIOp::create(b, loc, last, index(1));
    return {first, last};
  }

  Value page(Value number, bool values) {
    auto type = values ? PackedType::get(b.getContext(), KVPageOp::kPageTokens,
                                         headDim, elementType)
                       : PackedType::get(b.getContext(), headDim,
                                         KVPageOp::kPageTokens, elementType);
    return KVPageOp::create(b, loc, type, tile.op.getCache(),
                            tile.op.getLayer(), tile.sequence, number,
                            tile.head, values);
  }

  Value multiply(Value a, Value packed, Value acc, bool accumulate) {
    Value zero = index(0);
    return PackedMatmulOp::create(b, loc, acc.getType(), a, packed, acc, zero,
                                  zero, accumulate)
        .getResult(0);
  }

  /// One page: new (max, sum, out).
  SmallVector<Value> step(Value number, ValueRange state) {
    Value oldMax = state[0], oldSum = state[1], oldOut = state[2];
    Value scores = multiply(queries, page(number, /*values=*/false),
                            empty({rows, KVPageOp::kPageTokens}, f32),
                            /*accumulate=*/false);
    scores = mask(scores, number);
    Value pageMax = rowMax(scores, filled({rows}, constant(kMasked)));
    ValueRange moved = moveMax(oldMax, pageMax);
    Value newMax = moved[0], decay = moved[1];
    Value weights = exponentials(scores, newMax);
    Value newSum = rowSum(weights, scale1D(oldSum, decay));
    Value out = scale2D(oldOut, decay);
    weights = convertTensor(b, loc, weights, elementType);
    out = multiply(weights, page(number, /*values=*/true), out,
                   /*accumulate=*/true);
    return {newMax, newSum, out};
  }

  /// score * scale where row r may see the position, else kMasked.
  Value mask(Value scores, Value number) {
    Type i32 = b.getI32Type();
    Value firstKey =
        arith::MulIOp::create(b, loc, number, index(KVPageOp::kPageTokens));
    firstKey = arith::IndexCastOp::create(b, loc, i32, firstKey);
    Value firstQuery =
        arith::IndexCastOp::create(b, loc, i32, tile.firstPosition);
    Value masked = constant(kMasked);
    Value scale = constant(tile.op.getScale().convertToDouble());
    return buildGeneric(
        b, loc, 2, false, {}, {{scores, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          // Positions are i32: twice as many to a vector as indices.
          auto position = [&](unsigned loop, Value first) -> Value {
            Value step = linalg::IndexOp::create(nb, l, loop);
            step = arith::IndexCastOp::create(nb, l, i32, step);
            return arith::AddIOp::create(nb, l, first, step);
          };
          Value key = position(1, firstKey);
          Value query = tile.rowsAdvance ? position(0, firstQuery) : firstQuery;
          Value visible = arith::CmpIOp::create(
              nb, l, arith::CmpIPredicate::sle, key, query);
          if (int64_t window = tile.op.getWindow()) {
            Value size = arith::ConstantIntOp::create(
                nb, l, std::min<int64_t>(window, INT32_MAX), 32);
            Value oldest = arith::SubIOp::create(nb, l, query, size);
            Value recent = arith::CmpIOp::create(
                nb, l, arith::CmpIPredicate::sgt, key, oldest);
            visible = arith::AndIOp::create(nb, l, visible, recent);
          }
          Value scaled = arith::MulFOp::create(nb, l, arguments[0], scale);
          return SmallVector<Value>{
              arith::SelectOp::create(nb, l, visible, scaled, masked)};
        })[0];
  }

  Value rowMax(Value scores, Value initial) {
    return buildGeneric(b, loc, 2, true, {{scores, {0, 1}}}, {{initial, {0}}},
                        [](OpBuilder &nb, Location l, ValueRange arguments) {
                          return SmallVector<Value>{
                              largerOf(nb, l, arguments[1], arguments[0])};
                        })[0];
  }

  /// exp(score - max), exactly 0 where masked.
  Value exponentials(Value scores, Value max) {
    Value threshold = constant(kMasked / 2);
    Value zero = constant(0.0f);
    return buildGeneric(
        b, loc, 2, false, {{max, {0}}}, {{scores, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value seen = arith::CmpFOp::create(nb, l, arith::CmpFPredicate::OGT,
                                             arguments[1], threshold);
          Value shifted =
              arith::SubFOp::create(nb, l, arguments[1], arguments[0]);
          Value weight = math::ExpOp::create(nb, l, shifted);
          return SmallVector<Value>{
              arith::SelectOp::create(nb, l, seen, weight, zero)};
        })[0];
  }

  /// The new maximum in place of the old, and exp(old - new). One loop, so
  /// that the old one need not be kept.
  ValueRange moveMax(Value oldMax, Value pageMax) {
    return buildGeneric(
        b, loc, 1, false, {{pageMax, {0}}},
        {{oldMax, {0}}, {empty({rows}, f32), {0}}},
        [](OpBuilder &nb, Location l, ValueRange arguments) {
          Value max = largerOf(nb, l, arguments[1], arguments[0]);
          Value shifted = arith::SubFOp::create(nb, l, arguments[1], max);
          return SmallVector<Value>{max, math::ExpOp::create(nb, l, shifted)};
        });
  }

  Value rowSum(Value weights, Value initial) {
    return buildGeneric(b, loc, 2, true, {{weights, {0, 1}}}, {{initial, {0}}},
                        [](OpBuilder &nb, Location l, ValueRange arguments) {
                          return SmallVector<Value>{arith::AddFOp::create(
                              nb, l, arguments[1], arguments[0])};
                        })[0];
  }

  Value scale1D(Value vector, Value factors) {
    return buildGeneric(b, loc, 1, false, {{factors, {0}}}, {{vector, {0}}},
                        [](OpBuilder &nb, Location l, ValueRange arguments) {
                          return SmallVector<Value>{arith::MulFOp::create(
                              nb, l, arguments[1], arguments[0])};
                        })[0];
  }

  Value scale2D(Value matrix, Value factors) {
    return buildGeneric(b, loc, 2, false, {{factors, {0}}}, {{matrix, {0, 1}}},
                        [](OpBuilder &nb, Location l, ValueRange arguments) {
                          return SmallVector<Value>{arith::MulFOp::create(
                              nb, l, arguments[1], arguments[0])};
                        })[0];
  }

  /// out / sum in the element type of `dest`.
  Value normalise(Value out, Value sum, Value dest) {
    Type type = cast<RankedTensorType>(dest.getType()).getElementType();
    return buildGeneric(
        b, loc, 2, false, {{out, {0, 1}}, {sum, {0}}}, {{dest, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value quotient =
              arith::DivFOp::create(nb, l, arguments[0], arguments[1]);
          return SmallVector<Value>{convertFloat(nb, l, quotient, type)};
        })[0];
  }

  OpBuilder &b;
  Location loc;
  AttentionTile tile;
  Value queries;
  int64_t rows, headDim;
  Type elementType, f32;
};

} // namespace

Value stem::attendPages(OpBuilder &builder, Location loc,
                        const AttentionTile &tile, Value queries, Value dest) {
  return PageLoop(builder, loc, tile, queries).build(dest);
}
