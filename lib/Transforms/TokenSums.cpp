//===- TokenSums.cpp - Sums over the tokens of a step ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenSums.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

static constexpr int64_t kPanel = PackedType::kPanelColumns;

static constexpr int64_t kDepth = kSumDepth;

/// Rows of the gradient that one task computes: the panels are read once for
/// them. Fewer where too few tasks would be left.
static int64_t rowsOfTask(int64_t rows) {
  constexpr int64_t most = 2 * kPanel, leastTasks = 8;
  return rows >= leastTasks * most ? most : kPanel;
}

/// The number of the result that `value` is returned as, rows that are added
/// onto it included.
static std::optional<unsigned> finalIndex(Value value) {
  if (value.hasOneUse())
    if (auto sum = dyn_cast<SumRowsOp>(*value.user_begin()))
      if (sum.getInitial() == value)
        return finalIndex(sum.getResult());
  return returnedIndex(value);
}

Value stem::destinationOf(OpBuilder &builder, Value result,
                          ArrayRef<OpFoldResult> sizes) {
  auto function = result.getDefiningOp()->getParentOfType<func::FuncOp>();
  if (std::optional<unsigned> index = finalIndex(result))
    if (Value argument = outputArgument(function, *index))
      if (argument.getType() == result.getType())
        return argument;
  return emptyTensor(builder, result.getLoc(), sizes,
                     cast<RankedTensorType>(result.getType()).getElementType());
}

namespace {

struct Columns {
  Value first;
  OpFoldResult width;

  SliceRange range() const { return {OpFoldResult(first), width}; }
};

/// A loop over blocks of `block` of `columns` columns; `body` gets the columns
/// and `shared`, and leaves one slice to be inserted.
Value forColumns(
    OpBuilder &builder, Location loc, int64_t columns, int64_t block,
    Value shared, function_ref<Value(OpBuilder &, Columns, Value)> body,
    function_ref<SmallVector<SliceRange>(OpBuilder &, Columns, Value)> place) {
  OpFoldResult tasks = builder.getIndexAttr(llvm::divideCeil(columns, block));
  auto loop = scf::ForallOp::create(
      builder, loc, ArrayRef<OpFoldResult>{tasks}, ValueRange{shared},
      std::nullopt, [&](OpBuilder &b, Location l, ValueRange arguments) {
        Value size = arith::ConstantIndexOp::create(b, l, block);
        Columns own = {arith::MulIOp::create(b, l, arguments[0], size),
                       b.getIndexAttr(block)};
        if (columns % block != 0) {
          Value all = arith::ConstantIndexOp::create(b, l, columns);
          Value left = arith::SubIOp::create(b, l, all, own.first);
          own.width = Value(arith::MinUIOp::create(b, l, left, size));
        }
        Value result = body(b, own, arguments[1]);
        auto ranges = place(b, own, arguments[1]);
        auto terminator = scf::InParallelOp::create(b, l);
        OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
        parallelInsertSlice(inParallel, l, result, arguments[1], ranges);
      });
  return loop.getResult(0);
}

SliceRange all(OpBuilder &b, int64_t size) {
  return {b.getIndexAttr(0), b.getIndexAttr(size)};
}

int64_t columnsOf(Value matrix) {
  return cast<RankedTensorType>(matrix.getType()).getDimSize(1);
}

Type elementOf(Value matrix) {
  return cast<RankedTensorType>(matrix.getType()).getElementType();
}

} // namespace

Value stem::packPanels(OpBuilder &builder, Location loc, Value x,
                       SliceRange tokens) {
  Value buffer = createPanels(builder, loc, columnsOf(x), elementOf(x));
  auto rowOf = [&](OpBuilder &b, Columns columns) -> SmallVector<SliceRange> {
    Value panel = arith::ConstantIndexOp::create(b, loc, kPanel);
    Value row = arith::DivUIOp::create(b, loc, columns.first, panel);
    return {{OpFoldResult(row), b.getIndexAttr(1)}, all(b, kDepth * kPanel)};
  };
  return forColumns(
      builder, loc, columnsOf(x), kPanel, buffer,
      [&](OpBuilder &b, Columns columns, Value shared) -> Value {
        Value slice = extractSlice(b, loc, x, {tokens, columns.range()});
        Value panel = extractSlice(b, loc, shared, rowOf(b, columns));
        return PackTokensOp::create(b, loc, panel.getType(), slice, panel)
            .getResult(0);
      },
      [&](OpBuilder &b, Columns columns, Value) { return rowOf(b, columns); });
}

Value stem::addPanelProducts(OpBuilder &builder, Location loc, Value panels,
                             Value dy, SliceRange tokens, Value acc,
                             Value accumulate) {
  const int64_t block = rowsOfTask(columnsOf(dy));
  const int64_t stride = spreadColumns(kDepth, elementOf(dy));
  return forColumns(
      builder, loc, columnsOf(dy), block, acc,
      [&](OpBuilder &b, Columns columns, Value shared) -> Value {
        Value buffer = tensor::EmptyOp::create(
            b, loc, ArrayRef<int64_t>{block, stride}, elementOf(dy));
        buffer = extractSlice(b, loc, buffer,
                              {{b.getIndexAttr(0), columns.width},
                               {b.getIndexAttr(0), tokens.second}});
        Value transposed =
            TransposeTokensOp::create(
                b, loc, buffer.getType(),
                extractSlice(b, loc, dy, {tokens, columns.range()}), buffer)
                .getResult(0);
        Value own = extractSlice(b, loc, shared,
                                 {columns.range(), all(b, columnsOf(acc))});
        return PanelMatmulOp::create(b, loc, own.getType(), transposed, panels,
                                     own, accumulate, kDepth)
            .getResult(0);
      },
      [&](OpBuilder &b, Columns columns, Value) -> SmallVector<SliceRange> {
        return {columns.range(), all(b, columnsOf(acc))};
      });
}

Value stem::addOuterProducts(OpBuilder &builder, Location loc, Value x,
                             Value dy, Value acc, Value accumulate) {
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value step = arith::ConstantIndexOp::create(builder, loc, kDepth);
  Value tokens = tensor::DimOp::create(builder, loc, x, 0);
  auto loop = scf::ForOp::create(
      builder, loc, zero, tokens, step, ValueRange{acc},
      [&](OpBuilder &b, Location l, Value first, ValueRange state) {
        Value left = arith::SubIOp::create(b, l, tokens, first);
        SliceRange rows = {OpFoldResult(first),
                           Value(arith::MinUIOp::create(b, l, left, step))};
        Value isLater =
            arith::CmpIOp::create(b, l, arith::CmpIPredicate::ne, first, zero);
        Value adds = arith::OrIOp::create(b, l, isLater, accumulate);
        Value panels = packPanels(b, l, x, rows);
        scf::YieldOp::create(
            b, l, addPanelProducts(b, l, panels, dy, rows, state[0], adds));
      });
  return loop.getResult(0);
}

Value stem::createPanels(OpBuilder &builder, Location loc, int64_t columns,
                         Type element) {
  const int64_t panels = llvm::divideCeil(columns, kPanel);
  return tensor::EmptyOp::create(
      builder, loc, ArrayRef<int64_t>{panels, kDepth * kPanel}, element);
}

Value stem::packTokens(OpBuilder &builder, Location loc, Value x,
                       Value panels) {
  const int64_t columns = columnsOf(x);
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value end = arith::ConstantIndexOp::create(builder, loc, columns);
  Value step = arith::ConstantIndexOp::create(builder, loc, kPanel);
  auto loop = scf::ForOp::create(
      builder, loc, zero, end, step, ValueRange{panels},
      [&](OpBuilder &b, Location l, Value column, ValueRange state) {
        OpFoldResult width = b.getIndexAttr(kPanel);
        if (columns % kPanel != 0) {
          Value left = arith::SubIOp::create(b, l, end, column);
          width = Value(arith::MinUIOp::create(b, l, left, step));
        }
        Value row = arith::DivUIOp::create(b, l, column, step);
        SmallVector<SliceRange> place = {{OpFoldResult(row), b.getIndexAttr(1)},
                                         fullRange(b, l, state[0], 1)};
        Value slice = extractSlice(
            b, l, x, {fullRange(b, l, x, 0), {OpFoldResult(column), width}});
        Value panel = extractSlice(b, l, state[0], place);
        panel = PackTokensOp::create(b, l, panel.getType(), slice, panel)
                    .getResult(0);
        scf::YieldOp::create(b, l, insertSlice(b, l, panel, state[0], place));
      });
  return loop.getResult(0);
}

/// block[row] += x[token, column : column + width], for one row.
static Value addRow(OpBuilder &b, Location loc, Value block, Value row, Value x,
                    Value token, OpFoldResult column, OpFoldResult width,
                    Value isSkipped) {
  SmallVector<SliceRange> place = {{OpFoldResult(row), b.getIndexAttr(1)},
                                   {b.getIndexAttr(0), width}};
  Value terms = extractSlice(
      b, loc, x, {{OpFoldResult(token), b.getIndexAttr(1)}, {column, width}});
  Value sum = buildGeneric(
      b, loc, 2, false, {{terms, {0, 1}}},
      {{extractSlice(b, loc, block, place), {0, 1}}},
      [&](OpBuilder &nb, Location l, ValueRange arguments) {
        Value term = convertFloat(nb, l, arguments[0], nb.getF32Type());
        Value more = arith::AddFOp::create(nb, l, arguments[1], term);
        if (isSkipped)
          more = arith::SelectOp::create(nb, l, isSkipped, arguments[1], more);
        return SmallVector<Value>{more};
      })[0];
  return insertSlice(b, loc, sum, block, place);
}

Value stem::addRows(OpBuilder &builder, Location loc, Value x, Value index,
                    Value acc, bool startsFromZero,
                    std::optional<uint64_t> skipped) {
  int64_t columns = cast<RankedTensorType>(acc.getType()).getDimSize(1);
  int64_t groups = cast<RankedTensorType>(x.getType()).getDimSize(1) / columns;
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value tokens = tensor::DimOp::create(builder, loc, x, 0);
  auto place = [&](OpBuilder &b, Columns own,
                   Value shared) -> SmallVector<SliceRange> {
    return {fullRange(b, loc, shared, 0), own.range()};
  };
  auto addToken = [&](OpBuilder &b, Columns own, Value block, Value token) {
    Value row = zero, isSkipped;
    if (index) {
      Value number =
          tensor::ExtractOp::create(b, loc, index, ValueRange{token});
      row = arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
    }
    if (skipped) {
      Value id = arith::ConstantIndexOp::create(b, loc, *skipped);
      isSkipped =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, row, id);
    }
    for (int64_t group = 0; group < groups; ++group) {
      Value start = arith::ConstantIndexOp::create(b, loc, group * columns);
      Value column = arith::AddIOp::create(b, loc, own.first, start);
      block = addRow(b, loc, block, row, x, token, OpFoldResult(column),
                     own.width, isSkipped);
    }
    return block;
  };
  return forColumns(
      builder, loc, columns, kPanel, acc,
      [&](OpBuilder &b, Columns own, Value shared) -> Value {
        Value block = extractSlice(b, loc, shared, place(b, own, shared));
        if (startsFromZero) {
          Value none = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
          block = linalg::FillOp::create(b, loc, none, block).getResult(0);
        }
        auto loop = scf::ForOp::create(
            b, loc, zero, tokens, one, ValueRange{block},
            [&](OpBuilder &body, Location l, Value token, ValueRange state) {
              scf::YieldOp::create(body, l,
                                   addToken(body, own, state[0], token));
            });
        return loop.getResult(0);
      },
      place);
}
