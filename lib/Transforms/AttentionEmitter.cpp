//===- AttentionEmitter.cpp - What attention and its VJP are made of ------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

Value AttentionEmitter::largerOf(OpBuilder &b, Location loc, Value x, Value y) {
  return arith::MaximumFOp::create(b, loc, x, y, arith::FastMathFlags::nnan);
}

Value AttentionEmitter::index(int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

Value AttentionEmitter::constant(float value) {
  return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(value));
}

Value AttentionEmitter::empty(ArrayRef<int64_t> shape, Type type) {
  return tensor::EmptyOp::create(b, loc, shape, type);
}

Value AttentionEmitter::filled(ArrayRef<int64_t> shape, Value value) {
  return linalg::FillOp::create(b, loc, value, empty(shape, f32)).getResult(0);
}

SmallVector<Value> AttentionEmitter::loop(Value first, Value last,
                                          ValueRange state, LoopBody body) {
  auto loop = scf::ForOp::create(
      b, loc, first, last, index(1), state,
      [&](OpBuilder &inside, Location, Value number, ValueRange arguments) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(inside.getInsertionBlock(),
                            inside.getInsertionPoint());
        scf::YieldOp::create(b, loc, body(number, arguments));
      });
  return llvm::to_vector_of<Value>(loop.getResults());
}

Value AttentionEmitter::firstPage(Value position) {
  if (!window)
    return index(0);
  // The oldest visible position is position - window + 1.
  Value oldest = arith::SubIOp::create(b, loc, position, index(window - 1));
  oldest = arith::MaxSIOp::create(b, loc, oldest, index(0));
  return arith::DivUIOp::create(b, loc, oldest, index(KVPageOp::kPageTokens));
}

Value AttentionEmitter::page(Value cache, Value layer, Value sequence,
                             Value number, Value head, bool values) {
  auto type = values ? PackedType::get(b.getContext(), KVPageOp::kPageTokens,
                                       headDim, elementType)
                     : PackedType::get(b.getContext(), headDim,
                                       KVPageOp::kPageTokens, elementType);
  return KVPageOp::create(b, loc, type, cache, layer, sequence, number, head,
                          values);
}

Value AttentionEmitter::multiply(Value a, Value packed, Value acc,
                                 bool accumulate) {
  Value zero = index(0);
  return PackedMatmulOp::create(b, loc, acc.getType(), a, packed, acc, zero,
                                zero, accumulate)
      .getResult(0);
}

Value AttentionEmitter::isVisible(OpBuilder &nested, Location l,
                                  Value distance) {
  // Unsigned, a distance below zero is larger than any window.
  int64_t most = window ? std::min<int64_t>(window, INT32_MAX) : INT32_MAX;
  Value size = arith::ConstantIntOp::create(nested, l, most, 32);
  auto below = window ? arith::CmpIPredicate::ult : arith::CmpIPredicate::ule;
  return arith::CmpIOp::create(nested, l, below, distance, size);
}

Value AttentionEmitter::rowSum(Value weights, Value initial) {
  return buildGeneric(b, loc, 2, true, {{weights, {0, 1}}}, {{initial, {0}}},
                      [](OpBuilder &nb, Location l, ValueRange arguments) {
                        return SmallVector<Value>{arith::AddFOp::create(
                            nb, l, arguments[1], arguments[0])};
                      })[0];
}

ValueRange AttentionEmitter::moveMax(Value oldMax, Value pageMax,
                                     bool isBase2) {
  Value decay = empty(cast<RankedTensorType>(oldMax.getType()).getShape(), f32);
  return buildGeneric(
      b, loc, 1, false, {{pageMax, {0}}}, {{oldMax, {0}}, {decay, {0}}},
      [&](OpBuilder &nb, Location l, ValueRange arguments) {
        Value max = largerOf(nb, l, arguments[1], arguments[0]);
        Value shifted = arith::SubFOp::create(nb, l, arguments[1], max);
        Value decay = isBase2 ? Value(math::Exp2Op::create(nb, l, shifted))
                              : Value(math::ExpOp::create(nb, l, shifted));
        return SmallVector<Value>{max, decay};
      });
}

Value AttentionEmitter::scale1D(Value vector, Value factors) {
  return buildGeneric(b, loc, 1, false, {{factors, {0}}}, {{vector, {0}}},
                      [](OpBuilder &nb, Location l, ValueRange arguments) {
                        return SmallVector<Value>{arith::MulFOp::create(
                            nb, l, arguments[1], arguments[0])};
                      })[0];
}

Value AttentionEmitter::scale2D(Value matrix, Value factors) {
  return buildGeneric(b, loc, 2, false, {{factors, {0}}}, {{matrix, {0, 1}}},
                      [](OpBuilder &nb, Location l, ValueRange arguments) {
                        return SmallVector<Value>{arith::MulFOp::create(
                            nb, l, arguments[1], arguments[0])};
                      })[0];
}
