//===- AttentionVjpLowering.cpp - VJP of attention over pages -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// After Dao et al. 2022: probabilities are computed again, page by page, from
// what is known of each row of scores. A product needs one of its sides packed,
// so each task has one side as a tile of a matrix and reads the other from
// pages: queries read keys, and keys read queries.
//
//===----------------------------------------------------------------------===//

#include "AttentionVjpLowering.h"

#include "AttentionEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

namespace {

constexpr int64_t kRows = KVPageOp::kPageTokens;
constexpr double kLog2E = 1.4426950408889634;

/// Rows of a tile against columns of a page.
class VjpEmitter : protected AttentionEmitter {
protected:
  VjpEmitter(OpBuilder &builder, Location loc, AttendVjpOp op,
             const PageTile &tile)
      : AttentionEmitter(builder, loc, op.getQ().getType().getElementType(),
                         op.getHeadDim(), op.getWindow()),
        op(op), tile(tile), scale(op.getScale().convertToDouble()) {}

  /// 64 rows and the columns of one head.
  Value rowsOf(Value matrix, Value token, Value head) {
    Value column = arith::MulIOp::create(b, loc, head, index(headDim));
    return extractSlice(b, loc, matrix,
                        {{OpFoldResult(token), b.getIndexAttr(kRows)},
                         {OpFoldResult(column), b.getIndexAttr(headDim)}});
  }
  Value product(Value rows, Value packed) {
    return multiply(rows, packed, empty({kRows, kRows}, f32),
                    /*accumulate=*/false);
  }
  Value asI32(Value number) {
    return arith::IndexCastOp::create(b, loc, b.getI32Type(), number);
  }

  /// How far the key of an element of the product is before the query, in the
  /// body of a generic; `first` is that of element (0, 0).
  Value distance(OpBuilder &nb, Location l, Value first, unsigned queryLoop) {
    auto step = [&](unsigned loop) -> Value {
      Value number = linalg::IndexOp::create(nb, l, loop);
      return arith::IndexCastOp::create(nb, l, nb.getI32Type(), number);
    };
    Value toQuery = arith::AddIOp::create(nb, l, first, step(queryLoop));
    return arith::SubIOp::create(nb, l, toQuery, step(1 - queryLoop));
  }
  Value visible(OpBuilder &nb, Location l, Value first, unsigned queryLoop) {
    return isVisible(nb, l, distance(nb, l, first, queryLoop));
  }

  Value probability(OpBuilder &nb, Location l, Value score, Value shift) {
    Value factor = constant(nb, l, scale * kLog2E);
    return math::Exp2Op::create(
        nb, l, math::FmaOp::create(nb, l, score, factor, shift));
  }
  static Value constant(OpBuilder &nb, Location l, double value) {
    return arith::ConstantOp::create(nb, l, nb.getF32FloatAttr(value));
  }

  /// i32 per row of the tile, negative for padding.
  Value sequencesOfTile() {
    return extractSlice(b, loc, op.getSequences(),
                        {{OpFoldResult(tile.token), b.getIndexAttr(kRows)}});
  }
  static Value isToken(OpBuilder &nb, Location l, Value sequence) {
    Value zero = arith::ConstantIntOp::create(nb, l, 0, 32);
    return arith::CmpIOp::create(nb, l, arith::CmpIPredicate::sge, sequence,
                                 zero);
  }
  /// factor * sum, and 0 for padding.
  Value finish(Value sum, Value sequences, double factor) {
    return buildGeneric(b, loc, 2, false, {{sequences, {0}}}, {{sum, {0, 1}}},
                        [&](OpBuilder &nb, Location l, ValueRange arguments) {
                          Value scaled = arith::MulFOp::create(
                              nb, l, arguments[1], constant(nb, l, factor));
                          return SmallVector<Value>{arith::SelectOp::create(
                              nb, l, isToken(nb, l, arguments[0]), scaled,
                              constant(nb, l, 0.0))};
                        })[0];
  }
  Value zeros(Value dest) {
    return linalg::FillOp::create(b, loc, AttentionEmitter::constant(0.0f),
                                  dest)
        .getResult(0);
  }

  AttendVjpOp op;
  PageTile tile;
  double scale;
};

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

class QueryTile : VjpEmitter {
public:
  QueryTile(OpBuilder &builder, Location loc, AttendVjpOp op,
            const PageTile &tile, Value keyHead)
      : VjpEmitter(builder, loc, op, tile), keyHead(keyHead) {}

  QueryTileResult build(Value dest) {
    Value sequences = sequencesOfTile();
    layers[0] = index(0);
    layers[1] = index(1);
    setPageRange();

    queries = rowsOf(op.getQ(), tile.token, tile.head);
    cotangents = rowsOf(op.getCotangent(), tile.token, tile.head);
    QueryTileResult result;
    if (op.getForward().empty()) {
      ValueRange statistics = finishStatistics(buildStatistics(), sequences);
      result = {{}, statistics[0], statistics[1]};
    } else {
      result = {{}, shiftOfForward(sequences), meanOfForward()};
    }
    SmallVector<Value> state = overPages(
        zeros(dest), [&](Value number, ValueRange carried, bool masks) {
          return SmallVector<Value>{addPage(number, carried[0], result, masks)};
        });
    result.dq = finish(state[0], sequences, scale);
    return result;
  }

private:
  using PageBody =
      function_ref<SmallVector<Value>(Value, ValueRange, bool masks)>;

  /// Pages [first, full) are seen whole, [full, last) in part.
  void setPageRange() {
    first = firstPage(tile.position);
    own = arith::DivUIOp::create(b, loc, tile.position, index(kRows));
    full = window ? first : own;
    last = arith::AddIOp::create(b, loc, own, index(1));
  }

  SmallVector<Value> overPages(ValueRange state, PageBody body) {
    SmallVector<Value> carried = llvm::to_vector_of<Value>(state);
    if (!window)
      carried =
          loop(first, full, carried, [&](Value number, ValueRange inside) {
            return body(number, inside, /*masks=*/false);
          });
    return loop(full, last, carried, [&](Value number, ValueRange inside) {
      return body(number, inside, /*masks=*/true);
    });
  }

  /// The distance of the first query from the first key of a page.
  Value firstDistance(Value number) {
    Value key = arith::MulIOp::create(b, loc, number, index(kRows));
    return asI32(arith::SubIOp::create(b, loc, tile.position, key));
  }

  //===--------------------------------------------------------------------===//
  // Statistics, from what attention gave
  //===--------------------------------------------------------------------===//

  Value shiftOfForward(Value sequences) {
    auto type = RankedTensorType::get({kRows}, f32);
    OpFoldResult one = b.getIndexAttr(1);
    SmallVector<OpFoldResult> offsets = {tile.token, tile.head},
                              sizes = {b.getIndexAttr(kRows), one},
                              strides = {one, one};
    Value logarithms = tensor::ExtractSliceOp::create(
        b, loc, type, op.getForward()[1], offsets, sizes, strides);
    return buildGeneric(b, loc, 1, false, {{logarithms, {0}}, {sequences, {0}}},
                        {{empty({kRows}, f32), {0}}},
                        [&](OpBuilder &nb, Location l, ValueRange arguments) {
                          Value shift = arith::MulFOp::create(
                              nb, l, arguments[0], constant(nb, l, -kLog2E));
                          return SmallVector<Value>{arith::SelectOp::create(
                              nb, l, isToken(nb, l, arguments[1]), shift,
                              constant(nb, l, kMasked))};
                        })[0];
  }

  /// sum_s p_ts (g_t . v_s) = g_t . sum_s p_ts v_s
  Value meanOfForward() {
    Value results = rowsOf(op.getForward()[0], tile.token, tile.head);
    return buildGeneric(
        b, loc, 2, true, {{cotangents, {0, 1}}, {results, {0, 1}}},
        {{filled({kRows}, AttentionEmitter::constant(0.0f)), {0}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value product = arith::MulFOp::create(
              nb, l, convertFloat(nb, l, arguments[0], f32),
              convertFloat(nb, l, arguments[1], f32));
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, arguments[2], product)};
        })[0];
  }

  //===--------------------------------------------------------------------===//
  // Statistics, where there are none yet: a product has a row for each key, so
  // that sums over keys need no sums within vectors. Scores are times log2(e).
  //===--------------------------------------------------------------------===//

  /// (largest score, sum of exponentials, sum of exponentials times flow),
  /// the sums relative to the largest score.
  SmallVector<Value> buildStatistics() {
    queryPage = ownPage(/*cotangents=*/false);
    cotangentPage = ownPage(/*cotangents=*/true);
    Value zero = AttentionEmitter::constant(0.0f);
    SmallVector<Value> state = {
        filled({kRows}, AttentionEmitter::constant(kMasked)),
        filled({kRows}, zero), filled({kRows}, zero)};
    return overPages(state, [&](Value number, ValueRange carried, bool masks) {
      return addStatistics(number, carried, masks);
    });
  }

  /// The queries or cotangents of the tile as columns.
  Value ownPage(bool cotangents) {
    return page(op.getQueries(), layers[cotangents], tile.sequence, own,
                tile.head, /*values=*/false);
  }

  /// Tiles of a sequence follow each other. Where they do not, some tile, but
  /// one that is there.
  Value tokenOfPage(Value number) {
    Value before = arith::SubIOp::create(b, loc, own, number);
    before = arith::MulIOp::create(b, loc, before, index(kRows));
    Value token = arith::SubIOp::create(b, loc, tile.token, before);
    return arith::MaxSIOp::create(b, loc, token, index(0));
  }

  SmallVector<Value> addStatistics(Value number, ValueRange state, bool masks) {
    Value token = tokenOfPage(number);
    Value scores = product(rowsOf(op.getK(), token, keyHead), queryPage);
    Value flow = product(rowsOf(op.getV(), token, keyHead), cotangentPage);
    Value firstOfPage = masks ? firstDistance(number) : Value();
    ValueRange moved = moveMax(state[0], pageMax(scores, firstOfPage),
                               /*isBase2=*/true);
    Value max = moved[0], decay = moved[1];
    ValueRange sums = buildGeneric(
        b, loc, 2, true, {{scores, {1, 0}}, {flow, {1, 0}}, {max, {0}}},
        {{scale1D(state[1], decay), {0}}, {scale1D(state[2], decay), {0}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value shift = arith::NegFOp::create(nb, l, arguments[2]);
          Value weight = probability(nb, l, arguments[0], shift);
          if (masks)
            weight = ifVisible(nb, l, firstOfPage, weight, 0.0);
          Value flowing = arith::MulFOp::create(nb, l, weight, arguments[1]);
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, arguments[3], weight),
              arith::AddFOp::create(nb, l, arguments[4], flowing)};
        });
    return {max, sums[0], sums[1]};
  }

  Value pageMax(Value scores, Value firstOfPage) {
    Value initial = filled({kRows}, AttentionEmitter::constant(kMasked));
    return buildGeneric(
        b, loc, 2, true, {{scores, {1, 0}}}, {{initial, {0}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value score = arith::MulFOp::create(nb, l, arguments[0],
                                              constant(nb, l, scale * kLog2E));
          if (firstOfPage)
            score = ifVisible(nb, l, firstOfPage, score, kMasked);
          return SmallVector<Value>{largerOf(nb, l, arguments[1], score)};
        })[0];
  }

  /// For rows that are queries.
  Value ifVisible(OpBuilder &nb, Location l, Value firstOfPage, Value value,
                  double other) {
    return arith::SelectOp::create(nb, l,
                                   visible(nb, l, firstOfPage, /*queryLoop=*/0),
                                   value, constant(nb, l, other));
  }

  ValueRange finishStatistics(ValueRange state, Value sequences) {
    return buildGeneric(
        b, loc, 1, false, {{state[0], {0}}, {sequences, {0}}},
        {{state[1], {0}}, {state[2], {0}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value logarithm = math::LogOp::create(nb, l, arguments[2]);
          logarithm =
              arith::MulFOp::create(nb, l, logarithm, constant(nb, l, kLog2E));
          logarithm = arith::AddFOp::create(nb, l, arguments[0], logarithm);
          Value shift = arith::NegFOp::create(nb, l, logarithm);
          Value mean = arith::DivFOp::create(nb, l, arguments[3], arguments[2]);
          Value token = isToken(nb, l, arguments[1]);
          return SmallVector<Value>{
              arith::SelectOp::create(nb, l, token, shift,
                                      constant(nb, l, kMasked)),
              arith::SelectOp::create(nb, l, token, mean,
                                      constant(nb, l, 0.0))};
        });
  }

  //===--------------------------------------------------------------------===//
  // The cotangent of the queries
  //===--------------------------------------------------------------------===//

  Value keyPage(Value number, unsigned layer, bool values) {
    return page(op.getKeys(), layers[layer], tile.sequence, number, keyHead,
                values);
  }

  Value addPage(Value number, Value sum, const QueryTileResult &statistics,
                bool masks) {
    Value scores = product(queries, keyPage(number, 0, /*values=*/false));
    // Of the probabilities.
    Value flow = product(cotangents, keyPage(number, 1, /*values=*/false));
    Value firstOfPage = masks ? firstDistance(number) : Value();
    Value weights = buildGeneric(
        b, loc, 2, false,
        {{scores, {0, 1}},
         {flow, {0, 1}},
         {statistics.shift, {0}},
         {statistics.mean, {0}}},
        {{empty({kRows, kRows}, elementType), {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value share = probability(nb, l, arguments[0], arguments[2]);
          Value excess =
              arith::SubFOp::create(nb, l, arguments[1], arguments[3]);
          Value weight = arith::MulFOp::create(nb, l, share, excess);
          if (masks)
            weight = ifVisible(nb, l, firstOfPage, weight, 0.0);
          return SmallVector<Value>{convertFloat(nb, l, weight, elementType)};
        })[0];
    return multiply(weights, keyPage(number, 0, /*values=*/true), sum,
                    /*accumulate=*/true);
  }

  Value keyHead, queries, cotangents, queryPage, cotangentPage;
  /// Layer 0 and layer 1 of either cache.
  Value layers[2];
  Value first, own, full, last;
};

//===----------------------------------------------------------------------===//
// Keys and values
//===----------------------------------------------------------------------===//

class KeyTile : VjpEmitter {
public:
  KeyTile(OpBuilder &builder, Location loc, AttendVjpOp op,
          const PageTile &tile, const SoftmaxStatistics &statistics)
      : VjpEmitter(builder, loc, op, tile), statistics(statistics) {}

  std::pair<Value, Value> build(Value tokens, Value dk, Value dv) {
    keys = rowsOf(op.getK(), tile.token, tile.head);
    values = rowsOf(op.getV(), tile.token, tile.head);
    queryLayer = index(0);
    cotangentLayer = index(1);
    Value own = arith::DivUIOp::create(b, loc, tile.token, index(kRows));
    Value isToken = VjpEmitter::isToken(b, loc, tile.sequence);
    Value next = arith::AddIOp::create(b, loc, own, index(1));
    next = arith::SelectOp::create(b, loc, isToken, next, own);
    Value end = endOfSequence(next, tokens);

    SmallVector<Value> state = {zeros(dk), zeros(dv)};
    state = overTiles(own, next, state, /*masks=*/true);
    state = overTiles(next, end, state, /*masks=*/window != 0);
    Value sequences = sequencesOfTile();
    return {finish(state[0], sequences, scale), finish(state[1], sequences, 1)};
  }

private:
  /// The tile behind the last that belongs to the sequence and may see the
  /// keys; `next` where the tile there does not.
  Value endOfSequence(Value next, Value tokens) {
    Value bound = arith::DivUIOp::create(b, loc, tokens, index(kRows));
    if (window) {
      // The last key is seen by the window - 1 positions behind it.
      int64_t tiles = std::min<int64_t>(window, INT32_MAX) + kRows - 2;
      Value most = arith::AddIOp::create(b, loc, next, index(tiles / kRows));
      bound = arith::MinUIOp::create(b, loc, bound, most);
    }
    return loop(next, bound, next, [&](Value number, ValueRange end) {
      Value token = arith::MulIOp::create(b, loc, number, index(kRows));
      Value sequence = tensor::ExtractOp::create(b, loc, op.getSequences(),
                                                 ValueRange{token});
      Value same = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                         sequence, tile.sequence);
      Value follows = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                            number, end[0]);
      Value grows = arith::AndIOp::create(b, loc, same, follows);
      Value behind = arith::AddIOp::create(b, loc, number, index(1));
      return SmallVector<Value>{
          arith::SelectOp::create(b, loc, grows, behind, end[0])};
    })[0];
  }

  SmallVector<Value> overTiles(Value from, Value to, ValueRange state,
                               bool masks) {
    int64_t group = op.getQueryHeads() / op.getKeyValueHeads();
    return loop(from, to, state, [&](Value number, ValueRange outer) {
      Value firstHead = arith::MulIOp::create(b, loc, tile.head, index(group));
      Value token = arith::MulIOp::create(b, loc, number, index(kRows));
      Value position = tensor::ExtractOp::create(b, loc, op.getPositions(),
                                                 ValueRange{token});
      position = arith::IndexCastOp::create(b, loc, b.getIndexType(), position);
      return loop(
          index(0), index(group), outer, [&](Value shared, ValueRange inner) {
            Value head = arith::AddIOp::create(b, loc, firstHead, shared);
            return addPage({token, position, tile.sequence, head}, inner,
                           masks);
          });
    });
  }

  Value queryPage(const PageTile &from, Value layer, bool values) {
    Value number = arith::DivUIOp::create(b, loc, from.position, index(kRows));
    return page(op.getQueries(), layer, from.sequence, number, from.head,
                values);
  }

  /// [64] of a row of `[H, T]`.
  Value ofTokens(Value matrix, const PageTile &from) {
    auto type = RankedTensorType::get({kRows}, f32);
    SmallVector<OpFoldResult> offsets = {from.head, from.token},
                              sizes = {b.getIndexAttr(1),
                                       b.getIndexAttr(kRows)},
                              strides(2, b.getIndexAttr(1));
    return tensor::ExtractSliceOp::create(b, loc, type, matrix, offsets, sizes,
                                          strides);
  }

  /// (dk, dv) with what flows back from one page of queries.
  SmallVector<Value> addPage(const PageTile &from, ValueRange state,
                             bool masks) {
    Value scores = product(keys, queryPage(from, queryLayer, /*values=*/false));
    Value flow =
        product(values, queryPage(from, cotangentLayer, /*values=*/false));
    Value first =
        masks
            ? asI32(arith::SubIOp::create(b, loc, from.position, tile.position))
            : Value();
    ValueRange weights = buildGeneric(
        b, loc, 2, false,
        {{scores, {0, 1}},
         {flow, {0, 1}},
         {ofTokens(statistics.shift, from), {1}},
         {ofTokens(statistics.mean, from), {1}}},
        {{empty({kRows, kRows}, elementType), {0, 1}},
         {empty({kRows, kRows}, elementType), {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange arguments) {
          Value share = probability(nb, l, arguments[0], arguments[2]);
          if (masks)
            share = arith::SelectOp::create(
                nb, l, visible(nb, l, first, /*queryLoop=*/1), share,
                constant(nb, l, 0.0));
          Value excess =
              arith::SubFOp::create(nb, l, arguments[1], arguments[3]);
          Value weight = arith::MulFOp::create(nb, l, share, excess);
          return SmallVector<Value>{convertFloat(nb, l, weight, elementType),
                                    convertFloat(nb, l, share, elementType)};
        });
    return {multiply(weights[0], queryPage(from, queryLayer, /*values=*/true),
                     state[0], /*accumulate=*/true),
            multiply(weights[1],
                     queryPage(from, cotangentLayer, /*values=*/true), state[1],
                     /*accumulate=*/true)};
  }

  SoftmaxStatistics statistics;
  Value keys, values, queryLayer, cotangentLayer;
};

} // namespace

QueryTileResult stem::buildQueryTile(OpBuilder &builder, Location loc,
                                     AttendVjpOp op, const PageTile &tile,
                                     Value keyHead, Value dest) {
  return QueryTile(builder, loc, op, tile, keyHead).build(dest);
}

std::pair<Value, Value> stem::buildKeyTile(OpBuilder &builder, Location loc,
                                           AttendVjpOp op, const PageTile &tile,
                                           Value tokens,
                                           const SoftmaxStatistics &statistics,
                                           Value dk, Value dv) {
  return KeyTile(builder, loc, op, tile, statistics).build(tokens, dk, dv);
}
