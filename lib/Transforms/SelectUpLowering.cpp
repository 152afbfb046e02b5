//===- SelectUpLowering.cpp - The tokens that keep the matrix -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SelectUpLowering.h"

#include "TilingUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

namespace {

/// The tokens of a step whose ids are selected, in order.
struct SelectedTokens {
  Value places; // [T] of i32, of which `count` are used
  Value count;  // index
};

} // namespace

// Ids are i32: so many halvings leave one of any number of them.
static constexpr int64_t kHalvings = 31;

static Value index(OpBuilder &b, Location loc, int64_t value) {
  return arith::ConstantIndexOp::create(b, loc, value);
}

/// Whether `id` occurs in `selected`, which holds `size` >= 1 rising ids.
static Value contains(OpBuilder &b, Location loc, Value selected, Value size,
                      Value id) {
  // [first, first + length) holds the last selected id that is not above `id`,
  // if there is one. No branches: all ids take the same time.
  auto loop = scf::ForOp::create(
      b, loc, index(b, loc, 0), index(b, loc, kHalvings), index(b, loc, 1),
      ValueRange{index(b, loc, 0), size},
      [&](OpBuilder &body, Location l, Value, ValueRange state) {
        Value first = state[0], length = state[1];
        Value half = arith::ShRUIOp::create(body, l, length, index(body, l, 1));
        Value middle = arith::AddIOp::create(body, l, first, half);
        Value found =
            tensor::ExtractOp::create(body, l, selected, ValueRange{middle});
        Value isAbove = arith::CmpIOp::create(
            body, l, arith::CmpIPredicate::sgt, found, id);
        first = arith::SelectOp::create(body, l, isAbove, first, middle);
        length = arith::SubIOp::create(body, l, length, half);
        scf::YieldOp::create(body, l, ValueRange{first, length});
      });
  Value last = tensor::ExtractOp::create(b, loc, selected,
                                         ValueRange{loop.getResult(0)});
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, last, id);
}

/// Looks every id up in `selected`, which rises strictly, by halving.
static SelectedTokens findSelected(OpBuilder &b, Location loc, Value ids,
                                   Value selected) {
  Value zero = index(b, loc, 0), one = index(b, loc, 1);
  Value tokens = tensor::DimOp::create(b, loc, ids, zero);
  Value size = tensor::DimOp::create(b, loc, selected, zero);
  // Nothing to look for in nothing.
  Value isEmpty =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, size, zero);
  Value end = arith::SelectOp::create(b, loc, isEmpty, zero, tokens);
  Value places = emptyLike(b, loc, ids, b.getI32Type());
  auto loop = scf::ForOp::create(
      b, loc, zero, end, one, ValueRange{places, zero},
      [&](OpBuilder &body, Location l, Value token, ValueRange state) {
        Value id = tensor::ExtractOp::create(body, l, ids, ValueRange{token});
        Value isSelected = contains(body, l, selected, size, id);
        // Each place is written; the next overwrites one that is not counted.
        Value place =
            arith::IndexCastOp::create(body, l, body.getI32Type(), token);
        Value written = tensor::InsertOp::create(body, l, place, state[0],
                                                 ValueRange{state[1]});
        Value more = arith::AddIOp::create(body, l, state[1], one);
        Value count =
            arith::SelectOp::create(body, l, isSelected, more, state[1]);
        scf::YieldOp::create(body, l, ValueRange{written, count});
      });
  return {loop.getResult(0), loop.getResult(1)};
}

/// The first `count` rows of a new `[T, columns]` tensor, T as in `like`.
static Value selectedRows(OpBuilder &b, Location loc,
                          const SelectedTokens &tokens, Value like,
                          int64_t columns, Type elementType) {
  // Room for all tokens: planned memory knows no other number.
  Value all = emptyTensor(
      b, loc, {tensor::getMixedSize(b, loc, like, 0), b.getIndexAttr(columns)},
      elementType);
  return extractSlice(b, loc, all,
                      {{b.getIndexAttr(0), OpFoldResult(tokens.count)},
                       fullRange(b, loc, all, 1)});
}

/// The rows of `x` of these tokens, as `[count, D]` of `elementType`.
static Value gatherSelected(OpBuilder &b, Location loc,
                            const SelectedTokens &tokens, Value x,
                            Type elementType) {
  int64_t columns = cast<RankedTensorType>(x.getType()).getDimSize(1);
  Value rows = selectedRows(b, loc, tokens, x, columns, elementType);
  Value places = extractSlice(
      b, loc, tokens.places, {{b.getIndexAttr(0), OpFoldResult(tokens.count)}});
  return buildGeneric(
      b, loc, 2, false, {{places, {0}}}, {{rows, {0, 1}}},
      [&](OpBuilder &nb, Location l, ValueRange arguments) {
        Value token =
            arith::IndexCastOp::create(nb, l, nb.getIndexType(), arguments[0]);
        Value column = linalg::IndexOp::create(nb, l, 1);
        Value element =
            tensor::ExtractOp::create(nb, l, x, ValueRange{token, column});
        return SmallVector<Value>{convertFloat(nb, l, element, elementType)};
      })[0];
}

/// `up` with the rows of these tokens replaced by those of `products`, plus
/// `bias`, which may be null.
static Value scatterSelected(OpBuilder &b, Location loc,
                             const SelectedTokens &tokens, Value products,
                             Value bias, Value up) {
  auto loop = scf::ForOp::create(
      b, loc, index(b, loc, 0), tokens.count, index(b, loc, 1), ValueRange{up},
      [&](OpBuilder &body, Location l, Value number, ValueRange state) {
        Value place = tensor::ExtractOp::create(body, l, tokens.places,
                                                ValueRange{number});
        place = arith::IndexCastOp::create(body, l, body.getIndexType(), place);
        auto rowAt = [&](Value row) {
          return SmallVector<SliceRange>{
              {OpFoldResult(row), body.getIndexAttr(1)},
              fullRange(body, l, up, 1)};
        };
        SmallVector<Access> inputs = {
            {extractSlice(body, l, products, rowAt(number)), {0, 1}}};
        if (bias)
          inputs.push_back({bias, {1}});
        Value row = extractSlice(body, l, state[0], rowAt(place));
        row = buildGeneric(
            body, l, 2, false, inputs, {{row, {0, 1}}},
            [&](OpBuilder &nb, Location nl, ValueRange arguments) {
              Value value = arguments[0];
              if (bias)
                value = arith::AddFOp::create(
                    nb, nl, value,
                    convertFloat(nb, nl, arguments[1], nb.getF32Type()));
              return SmallVector<Value>{
                  convertFloat(nb, nl, value, arguments.back().getType())};
            })[0];
        scf::YieldOp::create(body, l,
                             insertSlice(body, l, row, state[0], rowAt(place)));
      });
  return loop.getResult(0);
}

Value stem::buildSelectUp(OpBuilder &b, SelectUpOp op, MultiplyInto multiply) {
  Location loc = op.getLoc();
  Value weight = op.getWeight();
  SelectedTokens tokens = findSelected(b, loc, op.getIds(), op.getSelected());
  auto packed = dyn_cast<PackedType>(weight.getType());
  Value x = gatherSelected(b, loc, tokens, op.getX(),
                           packed ? packed.getElementType()
                                  : op.getX().getType().getElementType());
  Value products =
      selectedRows(b, loc, tokens, op.getX(),
                   getWeightShape(weight.getType()).outputs, b.getF32Type());
  products = multiply(b, loc, x, weight, products);
  Value up = convertTensor(b, loc, op.getUp(), op.getType().getElementType());
  return scatterSelected(b, loc, tokens, products, op.getBias(), up);
}

Value stem::buildKeepSelected(OpBuilder &b, KeepSelectedOp op) {
  Location loc = op.getLoc();
  Type element = op.getType().getElementType();
  Value out = emptyLike(b, loc, op.getX(), element);
  Value size = tensor::DimOp::create(b, loc, op.getSelected(), 0);
  Value tokens = tensor::DimOp::create(b, loc, op.getIds(), 0);
  Value isEmpty = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, size,
                                        index(b, loc, 0));
  Value others = arith::ConstantIntOp::create(b, loc, op.getOthers(), 1);
  auto loop = scf::ForOp::create(
      b, loc, index(b, loc, 0), tokens, index(b, loc, 1), ValueRange{out},
      [&](OpBuilder &body, Location l, Value token, ValueRange state) {
        Value id =
            tensor::ExtractOp::create(body, l, op.getIds(), ValueRange{token});
        auto found = scf::IfOp::create(
            body, l, isEmpty,
            [&](OpBuilder &then, Location tl) {
              Value no = arith::ConstantIntOp::create(then, tl, 0, 1);
              scf::YieldOp::create(then, tl, no);
            },
            [&](OpBuilder &otherwise, Location ol) {
              scf::YieldOp::create(
                  otherwise, ol,
                  contains(otherwise, ol, op.getSelected(), size, id));
            });
        Value keeps = arith::CmpIOp::create(body, l, arith::CmpIPredicate::ne,
                                            found.getResult(0), others);
        SmallVector<SliceRange> place = {
            {OpFoldResult(token), body.getIndexAttr(1)},
            fullRange(body, l, op.getX(), 1)};
        Value zero =
            arith::ConstantOp::create(body, l, body.getFloatAttr(element, 0.0));
        Value row = buildGeneric(
            body, l, 2, false,
            {{extractSlice(body, l, op.getX(), place), {0, 1}}},
            {{extractSlice(body, l, state[0], place), {0, 1}}},
            [&](OpBuilder &nb, Location nl, ValueRange arguments) {
              Value value = convertFloat(nb, nl, arguments[0], element);
              return SmallVector<Value>{
                  arith::SelectOp::create(nb, nl, keeps, value, zero)};
            })[0];
        scf::YieldOp::create(body, l,
                             insertSlice(body, l, row, state[0], place));
      });
  return loop.getResult(0);
}
