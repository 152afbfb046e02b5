//===- ToLinalgAttention.cpp - Attention of tiles of one sequence ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionLowering.h"
#include "AttentionVjpLowering.h"
#include "TilingUtils.h"
#include "ToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

namespace {

/// Column `number` of a matrix of so many rows, as a vector.
Value columnOf(OpBuilder &b, Location loc, Value matrix, Value number,
               int64_t rows) {
  auto type = cast<RankedTensorType>(matrix.getType());
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets = {zero, number},
                            sizes = {b.getIndexAttr(rows), one},
                            strides = {one, one};
  return tensor::ExtractSliceOp::create(
      b, loc, RankedTensorType::get({rows}, type.getElementType()), matrix,
      offsets, sizes, strides);
}

// Pattern: attend(q) on a static tile -> for each query head { attend pages }
struct LowerAttend : OpRewritePattern<AttendOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttendOp op,
                                PatternRewriter &b) const override {
    auto type = op.getQ().getType();
    if (type.isDynamicDim(0))
      return b.notifyMatchFailure(
          op, "the number of tokens is not static; tile first");
    Location loc = op.getLoc();
    auto index = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(b, loc, value);
    };
    // Token tiles hold consecutive positions of one sequence.
    Value zero = index(0);
    Value sequence = tensor::ExtractOp::create(b, loc, op.getSequences(), zero);
    Value position = tensor::ExtractOp::create(b, loc, op.getPositions(), zero);
    position = arith::IndexCastOp::create(b, loc, b.getIndexType(), position);
    int64_t rows = type.getDimSize(0), headDim = op.getHeadDim();
    Value last = arith::AddIOp::create(b, loc, position, index(rows - 1));
    Value group = index(op.getQueryHeads() / op.getKvHeads());

    SmallVector<Value> outputs = {emptyLike(
        b, loc, op.getQ(), op.getResult().getType().getElementType())};
    if (op.getLogsumexp())
      outputs.push_back(emptyTensor(
          b, loc, {b.getIndexAttr(rows), b.getIndexAttr(op.getQueryHeads())},
          b.getF32Type()));
    Value heads = index(op.getQueryHeads()), one = index(1);
    auto loop = scf::ForOp::create(
        b, loc, zero, heads, one, outputs,
        [&](OpBuilder &body, Location l, Value head, ValueRange state) {
          Value size = arith::ConstantIndexOp::create(body, l, headDim);
          Value column = arith::MulIOp::create(body, l, head, size);
          SmallVector<SliceRange> ranges = {
              {body.getIndexAttr(0), body.getIndexAttr(rows)},
              {OpFoldResult(column), body.getIndexAttr(headDim)}};
          Value kvHead = arith::DivUIOp::create(body, l, head, group);
          AttentionTile tile = {op,       sequence, kvHead,
                                position, last,     /*rowsAdvance=*/true};
          Value queries = extractSlice(body, l, op.getQ(), ranges);
          Value dest = extractSlice(body, l, state[0], ranges);
          Value logarithms = state.size() < 2
                                 ? Value()
                                 : columnOf(body, l, state[1], head, rows);
          auto made = attendPages(body, l, tile, queries, dest, logarithms);
          SmallVector<Value> results = {
              insertSlice(body, l, made.result, state[0], ranges)};
          if (made.logSumExp)
            results.push_back(insertSlice(
                body, l, made.logSumExp, state[1],
                {ranges[0], {OpFoldResult(head), body.getIndexAttr(1)}}));
          scf::YieldOp::create(body, l, results);
        });
    b.replaceOp(op, loop.getResults());
    return success();
  }
};

/// The first token of a tile, and what all its tokens share.
PageTile tileAt(OpBuilder &b, Location loc, AttendVjpOp op, Value number,
                Value head) {
  Value rows = arith::ConstantIndexOp::create(b, loc, KVPageOp::kPageTokens);
  Value token = arith::MulIOp::create(b, loc, number, rows);
  Value sequence = tensor::ExtractOp::create(b, loc, op.getSequences(), token);
  Value position = tensor::ExtractOp::create(b, loc, op.getPositions(), token);
  position = arith::IndexCastOp::create(b, loc, b.getIndexType(), position);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  position = arith::MaxSIOp::create(b, loc, position, zero);
  return {token, position, sequence, head};
}

/// Where a tile's rows of one head lie.
SmallVector<SliceRange> rangesOf(OpBuilder &b, Location loc,
                                 const PageTile &tile, int64_t headDim) {
  Value size = arith::ConstantIndexOp::create(b, loc, headDim);
  Value column = arith::MulIOp::create(b, loc, tile.head, size);
  return {{OpFoldResult(tile.token), b.getIndexAttr(KVPageOp::kPageTokens)},
          {OpFoldResult(column), b.getIndexAttr(headDim)}};
}

// Pattern: attend_vjp(q, k, v, g) ->
//   forall (query head, tile) { dq, statistics over pages of keys };
//   forall (key-value head, tile) { dk, dv over pages of queries }
// Heads outside: the pages of one stay in the cache.
struct LowerAttendVjp : OpRewritePattern<AttendVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttendVjpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    OpFoldResult tokens = tensor::getMixedSize(b, loc, op.getQ(), 0);
    Value count = getValueOrCreateConstantIndexOp(b, loc, tokens);
    Value rows = arith::ConstantIndexOp::create(b, loc, KVPageOp::kPageTokens);
    Value tiles = arith::DivUIOp::create(b, loc, count, rows);
    ValueRange ofQueries = queryLoop(b, loc, op, tiles, tokens);
    SoftmaxStatistics statistics = {ofQueries[1], ofQueries[2]};
    ValueRange ofKeys = keyLoop(b, loc, op, tiles, count, statistics);
    b.replaceOp(op, {ofQueries[0], ofKeys[0], ofKeys[1]});
    return success();
  }

  static ValueRange queryLoop(OpBuilder &builder, Location loc, AttendVjpOp op,
                              Value tiles, OpFoldResult tokens) {
    Type f32 = builder.getF32Type();
    int64_t heads = op.getQueryHeads();
    OpFoldResult tileCount = tiles, headCount = builder.getIndexAttr(heads);
    Value statistics = emptyTensor(builder, loc, {headCount, tokens}, f32);
    Value more = emptyTensor(builder, loc, {headCount, tokens}, f32);
    Value group = arith::ConstantIndexOp::create(builder, loc,
                                                 heads / op.getKeyValueHeads());
    Value one = arith::ConstantIndexOp::create(builder, loc, 1);
    auto loop = scf::ForallOp::create(
        builder, loc, ArrayRef<OpFoldResult>{headCount, tileCount},
        ValueRange{emptyLike(builder, loc, op.getQ(), f32), statistics, more},
        std::nullopt, [&](OpBuilder &b, Location l, ValueRange arguments) {
          // The last tiles see most: they come first.
          Value behind = arith::AddIOp::create(b, l, arguments[1], one);
          Value number = arith::SubIOp::create(b, l, tiles, behind);
          PageTile tile = tileAt(b, l, op, number, arguments[0]);
          auto ranges = rangesOf(b, l, tile, op.getHeadDim());
          Value dest = extractSlice(b, l, arguments[2], ranges);
          Value keyHead = arith::DivUIOp::create(b, l, tile.head, group);
          QueryTileResult result =
              buildQueryTile(b, l, op, tile, keyHead, dest);
          SmallVector<SliceRange> row = {
              {OpFoldResult(tile.head), b.getIndexAttr(1)},
              {OpFoldResult(tile.token),
               b.getIndexAttr(KVPageOp::kPageTokens)}};
          auto terminator = scf::InParallelOp::create(b, l);
          OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
          parallelInsertSlice(inParallel, l, result.dq, arguments[2], ranges);
          parallelInsertSlice(inParallel, l, result.shift, arguments[3], row);
          parallelInsertSlice(inParallel, l, result.mean, arguments[4], row);
        });
    return loop.getResults();
  }

  static ValueRange keyLoop(OpBuilder &builder, Location loc, AttendVjpOp op,
                            Value tiles, Value tokens,
                            const SoftmaxStatistics &statistics) {
    Type f32 = builder.getF32Type();
    OpFoldResult tileCount = tiles,
                 headCount = builder.getIndexAttr(op.getKeyValueHeads());
    auto loop = scf::ForallOp::create(
        builder, loc, ArrayRef<OpFoldResult>{headCount, tileCount},
        ValueRange{emptyLike(builder, loc, op.getK(), f32),
                   emptyLike(builder, loc, op.getV(), f32)},
        std::nullopt, [&](OpBuilder &b, Location l, ValueRange arguments) {
          PageTile tile = tileAt(b, l, op, arguments[1], arguments[0]);
          auto ranges = rangesOf(b, l, tile, op.getHeadDim());
          auto [dk, dv] =
              buildKeyTile(b, l, op, tile, tokens, statistics,
                           extractSlice(b, l, arguments[2], ranges),
                           extractSlice(b, l, arguments[3], ranges));
          auto terminator = scf::InParallelOp::create(b, l);
          OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
          parallelInsertSlice(inParallel, l, dk, arguments[2], ranges);
          parallelInsertSlice(inParallel, l, dv, arguments[3], ranges);
        });
    return loop.getResults();
  }
};

} // namespace

void stem::populateAttentionPatterns(RewritePatternSet &patterns) {
  patterns.add<LowerAttend, LowerAttendVjp>(patterns.getContext());
}
