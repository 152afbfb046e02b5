//===- FFNLowering.cpp - Pieces of the gated FFNs -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FFNLowering.h"

#include "TilingUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace stem;

Value stem::multiplyPacked(OpBuilder &builder, Location loc, Value x,
                           Value weight, Value acc, Value rowOffset,
                           Value columnOffset, bool accumulate) {
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  return PackedMatmulOp::create(builder, loc, acc.getType(), x, weight, acc,
                                rowOffset ? rowOffset : zero,
                                columnOffset ? columnOffset : zero, accumulate)
      .getResult(0);
}

Value stem::addBias(OpBuilder &builder, Location loc, Value matrix,
                    Value bias) {
  return buildGeneric(builder, loc, 2, false, {{bias, {1}}}, {{matrix, {0, 1}}},
                      [](OpBuilder &b, Location l, ValueRange arguments) {
                        Value term = convertFloat(b, l, arguments[0],
                                                  arguments[1].getType());
                        return SmallVector<Value>{
                            arith::AddFOp::create(b, l, arguments[1], term)};
                      })[0];
}

Value stem::buildSilu(OpBuilder &builder, Location loc, Value x) {
  // x * sigmoid(x) with one division.
  Value one = arith::ConstantOp::create(builder, loc,
                                        builder.getFloatAttr(x.getType(), 1.0));
  Value negated = arith::NegFOp::create(builder, loc, x);
  Value power = math::ExpOp::create(builder, loc, negated);
  Value denominator = arith::AddFOp::create(builder, loc, one, power);
  return arith::DivFOp::create(builder, loc, x, denominator);
}

Value stem::gateTimesUp(OpBuilder &builder, Location loc, Value gate,
                        Value up) {
  return arith::MulFOp::create(builder, loc, buildSilu(builder, loc, gate), up);
}

namespace {

/// What the FFNs multiply the gate by, as an input of the elementwise loop
/// over `[T, width]`.
struct UpSource {
  std::optional<Access> access; // [T, width], or the row index [T]
  Value rows;                   // of a table, when access is an index
  Value bias;                   // [width]
};

struct ColumnBlock {
  OpBuilder &b;
  Location loc;
  Value first;
  OpFoldResult width;

  Value columns(Value matrix) const {
    return extractSlice(
        b, loc, matrix,
        {fullRange(b, loc, matrix, 0), {OpFoldResult(first), width}});
  }
  Value entries(Value vector) const {
    if (!vector)
      return {};
    return extractSlice(b, loc, vector, {{OpFoldResult(first), width}});
  }
};

UpSource upSource(const ColumnBlock &block, DenseFFNOp op,
                  ArrayRef<Value> buffers) {
  Value up = multiplyPacked(block.b, block.loc, op.getX(), op.getUp(),
                            buffers[2], nullptr, block.first, false);
  return {Access{up, {0, 1}}, {}, block.entries(op.getUpBias())};
}

UpSource upSource(const ColumnBlock &block, GatedFFNOp op, ArrayRef<Value>) {
  return {Access{block.columns(op.getUp()), {0, 1}}, {}, {}};
}

UpSource upSource(const ColumnBlock &block, FusedFFNOp op, ArrayRef<Value>) {
  return {Access{op.getIndex(), {0}}, block.columns(op.getRows()), {}};
}

} // namespace

template <typename FFNOp>
SmallVector<Value>
stem::buildGatedBlock(OpBuilder &builder, Location loc, FFNOp op, Value first,
                      OpFoldResult width, ArrayRef<Value> buffers) {
  ColumnBlock block = {builder, loc, first, width};
  Type f32 = builder.getF32Type();
  Value gate = multiplyPacked(builder, loc, op.getX(), op.getGate(), buffers[0],
                              nullptr, first, false);
  UpSource up = upSource(block, op, buffers);
  SmallVector<Access> inputs = {{gate, {0, 1}}, *up.access};
  Value gateBias = block.entries(op.getGateBias());
  if (gateBias)
    inputs.push_back({gateBias, {1}});
  if (up.bias)
    inputs.push_back({up.bias, {1}});

  // The product, then what is kept of gate and up.
  SmallVector<Access> outputs = {{buffers[1], {0, 1}}};
  for (Value kept : buffers.drop_front(usesUpMatrix(op) ? 3 : 2))
    outputs.push_back({kept, {0, 1}});
  ValueRange made = buildGeneric(
      builder, loc, 2, false, inputs, outputs,
      [&](OpBuilder &b, Location l, ValueRange arguments) {
        Value g = arguments[0], u = arguments[1];
        unsigned next = 2;
        if (up.rows) {
          Value row =
              arith::IndexCastOp::create(b, l, b.getIndexType(), arguments[1]);
          Value column = linalg::IndexOp::create(b, l, 1);
          u = tensor::ExtractOp::create(b, l, up.rows, ValueRange{row, column});
        }
        u = convertFloat(b, l, u, f32);
        auto plusBias = [&](Value value, Value bias) -> Value {
          if (!bias)
            return value;
          Value term = convertFloat(b, l, arguments[next++], f32);
          return arith::AddFOp::create(b, l, value, term);
        };
        g = plusBias(g, gateBias);
        u = plusBias(u, up.bias);
        Value values[] = {gateTimesUp(b, l, g, u), g, u};
        SmallVector<Value> results;
        for (auto [value, like] :
             llvm::zip(values, arguments.take_back(outputs.size())))
          results.push_back(convertFloat(b, l, value, like.getType()));
        return results;
      });
  SmallVector<Value> results = {gate, made[0]};
  if (usesUpMatrix(op))
    results.push_back(up.access->value);
  llvm::append_range(results, made.drop_front());
  return results;
}

template SmallVector<Value> stem::buildGatedBlock(OpBuilder &, Location,
                                                  DenseFFNOp, Value,
                                                  OpFoldResult,
                                                  ArrayRef<Value>);
template SmallVector<Value> stem::buildGatedBlock(OpBuilder &, Location,
                                                  GatedFFNOp, Value,
                                                  OpFoldResult,
                                                  ArrayRef<Value>);
template SmallVector<Value> stem::buildGatedBlock(OpBuilder &, Location,
                                                  FusedFFNOp, Value,
                                                  OpFoldResult,
                                                  ArrayRef<Value>);
