//===- AttentionLowering.cpp - Attention of one head over pages -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionLowering.h"

#include "AttentionEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace stem;

namespace {

/// Builds the loop over pages; M query rows, E = head_dim, P positions a page.
class PageLoop : AttentionEmitter {
public:
  PageLoop(OpBuilder &builder, Location loc, AttentionTile tile, Value queries)
      : AttentionEmitter(builder, loc, typeOf(queries).getElementType(),
                         typeOf(queries).getDimSize(1), tile.op.getWindow()),
        tile(tile), queries(queries), rows(typeOf(queries).getDimSize(0)) {}

  AttentionRows build(Value dest, Value logSumExpDest) {
    Value zero = constant(0.0f);
    SmallVector<Value> state = {filled({rows}, constant(kMasked)),
                                filled({rows}, zero),
                                filled({rows, headDim}, zero)};
    Value pageTokens = index(kPage), one = index(1);
    Value first = firstPage(tile.firstPosition);
    Value last = arith::DivUIOp::create(b, loc, tile.lastPosition, pageTokens);
    last = arith::AddIOp::create(b, loc, last, one);
    // Pages that every row sees whole need no mask. A single token's time goes
    // into reading them, and one loop is less code.
    if (tile.rowsAdvance && !window) {
      Value seen = arith::AddIOp::create(b, loc, tile.firstPosition, one);
      Value full = arith::DivUIOp::create(b, loc, seen, pageTokens);
      state = loop(first, full, state, [&](Value number, ValueRange carried) {
        return step(number, carried, /*masks=*/false);
      });
      first = full;
    }
    state = loop(first, last, state, [&](Value number, ValueRange carried) {
      return step(number, carried, /*masks=*/true);
    });
    AttentionRows out = {normalise(state[2], state[1], dest), {}};
    if (logSumExpDest)
      out.logSumExp = logSumExp(state[0], state[1], logSumExpDest);
    return out;
  }

private:
  static constexpr int64_t kPage = KVPageOp::kPageTokens;

  static RankedTensorType typeOf(Value matrix) {
    return cast<RankedTensorType>(matrix.getType());
  }

  Value pageOf(Value number, bool values) {
    return page(tile.op.getCache(), tile.op.getLayer(), tile.sequence, number,
                tile.head, values);
  }

  /// One page: new (max, sum, out).
  SmallVector<Value> step(Value number, ValueRange state, bool masks) {
    Value oldMax = state[0], oldSum = state[1], oldOut = state[2];
    Value scores = multiply(queries, pageOf(number, /*values=*/false),
                            empty({rows, kPage}, f32),
                            /*accumulate=*/false);
    if (masks)
      scores = mask(scores, number);
    Value pageMax = rowMax(scores, masks);
    ValueRange moved = moveMax(oldMax, pageMax, /*isBase2=*/false);
    Value newMax = moved[0], decay = moved[1];
    ValueRange weights = exponentials(scores, newMax, masks);
    Value newSum = rowSum(weights.front(), scale1D(oldSum, decay));
    Value out = scale2D(oldOut, decay);
    out = multiply(weights.back(), pageOf(number, /*values=*/true), out,
                   /*accumulate=*/true);
    return {newMax, newSum, out};
  }

  /// score * scale.
  Value scaled(OpBuilder &nb, Location l, Value score) {
    Value scale = arith::ConstantOp::create(
        nb, l, nb.getF32FloatAttr(tile.op.getScale().convertToDouble()));
    return arith::MulFOp::create(nb, l, score, scale);
  }

  /// score * scale where row r may see the position, else kMasked.
  Value mask(Value scores, Value number) {
    Type i32 = b.getI32Type();
    Value firstKey = arith::MulIOp::create(b, loc, number, index(kPage));
    Value firstDistance =
        arith::SubIOp::create(b, loc, tile.firstPosition, firstKey);
    firstDistance = arith::IndexCastOp::create(b, loc, i32, firstDistance);
    Value masked = constant(kMasked);
    return buildGeneric(
        b, loc, 2, false, {}, {{scores, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          // Positions are i32: twice as many to a vector as indices.
          auto step = [&](unsigned loop) -> Value {
            Value number = linalg::IndexOp::create(nb, l, loop);
            return arith::IndexCastOp::create(nb, l, i32, number);
          };
          Value query = firstDistance;
          if (tile.rowsAdvance)
            query = arith::AddIOp::create(nb, l, query, step(0));
          Value distance = arith::SubIOp::create(nb, l, query, step(1));
          return SmallVector<Value>{
              arith::SelectOp::create(nb, l, isVisible(nb, l, distance),
                                      scaled(nb, l, arguments[0]), masked)};
        })[0];
  }

  /// Of scores that are scaled, or are not yet.
  Value rowMax(Value scores, bool areScaled) {
    return buildGeneric(
        b, loc, 2, true, {{scores, {0, 1}}},
        {{filled({rows}, constant(kMasked)), {0}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value score = areScaled ? arguments[0] : scaled(nb, l, arguments[0]);
          return SmallVector<Value>{largerOf(nb, l, arguments[1], score)};
        })[0];
  }

  /// exp(score - max), exactly 0 where masked, and the same in the type of the
  /// pages where that is another. The same bits whether scores are scaled here
  /// or with the mask.
  ValueRange exponentials(Value scores, Value max, bool areMasked) {
    SmallVector<Access> outputs = {{scores, {0, 1}}};
    if (elementType != f32)
      outputs.push_back({empty({rows, kPage}, elementType), {0, 1}});
    return buildGeneric(
        b, loc, 2, false, {{max, {0}}}, outputs,
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value score = areMasked ? arguments[1] : scaled(nb, l, arguments[1]);
          Value shifted = arith::SubFOp::create(nb, l, score, arguments[0]);
          Value weight = math::ExpOp::create(nb, l, shifted);
          if (areMasked) {
            Value threshold = arith::ConstantOp::create(
                nb, l, nb.getF32FloatAttr(kMasked / 2));
            Value seen = arith::CmpFOp::create(nb, l, arith::CmpFPredicate::OGT,
                                               score, threshold);
            Value zero =
                arith::ConstantOp::create(nb, l, nb.getF32FloatAttr(0.0f));
            weight = arith::SelectOp::create(nb, l, seen, weight, zero);
          }
          SmallVector<Value> results = {weight};
          if (elementType != f32)
            results.push_back(convertFloat(nb, l, weight, elementType));
          return results;
        });
  }

  /// out / sum in the element type of `dest`.
  Value normalise(Value out, Value sum, Value dest) {
    Type type = typeOf(dest).getElementType();
    return buildGeneric(
        b, loc, 2, false, {{out, {0, 1}}, {sum, {0}}}, {{dest, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value quotient =
              arith::DivFOp::create(nb, l, arguments[0], arguments[1]);
          return SmallVector<Value>{convertFloat(nb, l, quotient, type)};
        })[0];
  }

  Value logSumExp(Value max, Value sum, Value dest) {
    return buildGeneric(
        b, loc, 1, false, {{max, {0}}, {sum, {0}}}, {{dest, {0}}},
        [](OpBuilder &nb, Location l, ValueRange arguments) {
          Value logarithm = math::LogOp::create(nb, l, arguments[1]);
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, arguments[0], logarithm)};
        })[0];
  }

  AttentionTile tile;
  Value queries;
  int64_t rows;
};

} // namespace

AttentionRows stem::attendPages(OpBuilder &builder, Location loc,
                                const AttentionTile &tile, Value queries,
                                Value dest, Value logSumExpDest) {
  return PageLoop(builder, loc, tile, queries).build(dest, logSumExpDest);
}
