//===- TileColumns.cpp - Matrix products, panel by panel ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionLowering.h"
#include "FFNLowering.h"
#include "SelectUpLowering.h"
#include "TilingUtils.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace stem {
#define GEN_PASS_DEF_STEMTILECOLUMNSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// Columns of one task: one panel of the matrix kernels.
constexpr int64_t kPanel = PackedType::kPanelColumns;

/// A loop over blocks of `kPanel` of `columns` columns; `body` gets the first
/// column and the width of the block, and the loop's shared outputs, and gives
/// one block for each.
ValueRange
buildPanelLoop(OpBuilder &builder, Location loc, int64_t columns,
               ValueRange outputs,
               function_ref<SmallVector<Value>(OpBuilder &, Value, OpFoldResult,
                                               ValueRange)>
                   body) {
  OpFoldResult tasks = builder.getIndexAttr(llvm::divideCeil(columns, kPanel));
  auto loop = scf::ForallOp::create(
      builder, loc, ArrayRef<OpFoldResult>{tasks}, outputs, std::nullopt,
      [&](OpBuilder &b, Location l, ValueRange arguments) {
        Value panel = arith::ConstantIndexOp::create(b, l, kPanel);
        Value first = arith::MulIOp::create(b, l, arguments.front(), panel);
        OpFoldResult width = b.getIndexAttr(kPanel);
        if (columns % kPanel != 0) {
          Value all = arith::ConstantIndexOp::create(b, l, columns);
          Value left = arith::SubIOp::create(b, l, all, first);
          width = Value(arith::MinUIOp::create(b, l, left, panel));
        }
        ValueRange shared = arguments.drop_front();
        SmallVector<Value> blocks = body(b, first, width, shared);
        SmallVector<SliceRange> rows;
        for (Value output : shared)
          rows.push_back(fullRange(b, l, output, 0));
        auto terminator = scf::InParallelOp::create(b, l);
        OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
        for (auto [block, output, row] : llvm::zip_equal(blocks, shared, rows))
          parallelInsertSlice(inParallel, l, block, output,
                              {row, {OpFoldResult(first), width}});
      });
  return loop.getResults();
}

Value columnsOf(OpBuilder &builder, Location loc, Value matrix, Value first,
                OpFoldResult width) {
  return extractSlice(
      builder, loc, matrix,
      {fullRange(builder, loc, matrix, 0), {OpFoldResult(first), width}});
}

/// x * weight as a new or given f32 matrix.
Value multiplyByPanels(OpBuilder &builder, Location loc, Value x, Value weight,
                       Value dest) {
  int64_t columns = cast<PackedType>(weight.getType()).getColumns();
  return buildPanelLoop(
      builder, loc, columns, {dest},
      [&](OpBuilder &b, Value first, OpFoldResult width, ValueRange shared) {
        Value block = columnsOf(b, loc, shared[0], first, width);
        return SmallVector<Value>{multiplyPacked(
            b, loc, x, weight, block, nullptr, first, /*accumulate=*/false)};
      })[0];
}

Value f32Matrix(OpBuilder &builder, Location loc, Value rowsOf,
                int64_t columns) {
  return emptyTensor(builder, loc,
                     {tensor::getMixedSize(builder, loc, rowsOf, 0),
                      builder.getIndexAttr(columns)},
                     builder.getF32Type());
}

/// The f32 argument that `result` is returned in, or a new matrix.
Value destinationFor(OpBuilder &builder, Location loc, Value result, Value x,
                     int64_t columns) {
  auto function = result.getDefiningOp()->getParentOfType<func::FuncOp>();
  if (std::optional<unsigned> index = returnedIndex(result))
    if (Value argument = outputArgument(function, *index))
      if (argument.getType() == result.getType() &&
          cast<RankedTensorType>(result.getType()).getElementType().isF32())
        return argument;
  return f32Matrix(builder, loc, x, columns);
}

// Pattern: linear(x, packed) -> forall panels { packed_matmul } (+ bias)
struct TileLinear : OpRewritePattern<LinearOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LinearOp op,
                                PatternRewriter &rewriter) const override {
    auto weight = dyn_cast<PackedType>(op.getWeight().getType());
    if (!weight)
      return rewriter.notifyMatchFailure(op, "the weight is not packed");
    Location loc = op.getLoc();
    Type element = op.getType().getElementType();
    Value dest = destinationFor(rewriter, loc, op.getResult(), op.getX(),
                                weight.getColumns());
    Value x = convertTensor(rewriter, loc, op.getX(), weight.getElementType());
    Value result = multiplyByPanels(rewriter, loc, x, op.getWeight(), dest);
    if (op.getBias())
      result = addBias(rewriter, loc, result, op.getBias());
    rewriter.replaceOp(op, convertTensor(rewriter, loc, result, element));
    return success();
  }
};

/// Gate, product and down of any of the gated FFNs.
template <typename FFNOp> struct TileFFN : OpRewritePattern<FFNOp> {
  using OpRewritePattern<FFNOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(FFNOp op,
                                PatternRewriter &rewriter) const override {
    if (!isPackedFFN(op))
      return rewriter.notifyMatchFailure(
          op, "the matrices are not packed, or not in the type of x");
    Location loc = op.getLoc();
    auto gate = cast<PackedType>(op.getGate().getType());
    auto down = cast<PackedType>(op.getDown().getType());
    int64_t columns = gate.getColumns();
    Value gates = f32Matrix(rewriter, loc, op.getX(), columns);
    Value products = emptyLike(rewriter, loc, gates, down.getElementType());
    SmallVector<Value> outputs = {gates, products};
    if (usesUpMatrix(op))
      outputs.push_back(f32Matrix(rewriter, loc, op.getX(), columns));
    products = buildPanelLoop(
        rewriter, loc, columns, outputs,
        [&](OpBuilder &b, Value first, OpFoldResult width, ValueRange shared) {
          SmallVector<Value> buffers;
          for (Value output : shared)
            buffers.push_back(columnsOf(b, loc, output, first, width));
          return buildGatedBlock(b, loc, op, first, width, buffers);
        })[1];
    Value dest = destinationFor(rewriter, loc, op.getResult(), op.getX(),
                                down.getColumns());
    Value result =
        multiplyByPanels(rewriter, loc, products, op.getDown(), dest);
    if (op.getDownBias())
      result = addBias(rewriter, loc, result, op.getDownBias());
    rewriter.replaceOp(op, convertTensor(rewriter, loc, result,
                                         op.getType().getElementType()));
    return success();
  }
};

// Pattern: select_up(up, x, packed, ids, selected)
//          -> scatter(forall panels { packed_matmul(gather(x)) } (+ bias), up)
struct TileSelectUp : OpRewritePattern<SelectUpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SelectUpOp op,
                                PatternRewriter &rewriter) const override {
    if (!isa<PackedType>(op.getWeight().getType()))
      return rewriter.notifyMatchFailure(op, "the weight is not packed");
    rewriter.replaceOp(op, buildSelectUp(rewriter, op, multiplyByPanels));
    return success();
  }
};

// Pattern: attend(q) -> forall (token, key-value head) { attend pages }
struct TileAttend : OpRewritePattern<AttendOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttendOp op,
                                PatternRewriter &rewriter) const override {
    Type element = op.getQ().getType().getElementType();
    if (!element.isF32() && !element.isBF16())
      return rewriter.notifyMatchFailure(op, "pages are f32 or bf16");
    if (op.getLogsumexp())
      return rewriter.notifyMatchFailure(op, "logarithms come from tiles");
    Location loc = op.getLoc();
    int64_t group = op.getQueryHeads() / op.getKvHeads();
    OpFoldResult tokens = tensor::getMixedSize(rewriter, loc, op.getQ(), 0);
    Value dest = emptyLike(rewriter, loc, op.getQ(),
                           op.getResult().getType().getElementType());
    int64_t headDim = op.getHeadDim();
    auto loop = scf::ForallOp::create(
        rewriter, loc,
        ArrayRef<OpFoldResult>{tokens, rewriter.getIndexAttr(op.getKvHeads())},
        ValueRange{dest}, std::nullopt,
        [&](OpBuilder &b, Location l, ValueRange arguments) {
          Value token = arguments[0], head = arguments[1];
          Value width = arith::ConstantIndexOp::create(b, l, group * headDim);
          Value column = arith::MulIOp::create(b, l, head, width);
          SmallVector<SliceRange> ranges = {
              {OpFoldResult(token), b.getIndexAttr(1)},
              {OpFoldResult(column), b.getIndexAttr(group * headDim)}};
          Value position = tensor::ExtractOp::create(b, l, op.getPositions(),
                                                     ValueRange{token});
          position =
              arith::IndexCastOp::create(b, l, b.getIndexType(), position);
          Value sequence = tensor::ExtractOp::create(b, l, op.getSequences(),
                                                     ValueRange{token});
          AttentionTile tile = {op,       sequence, head,
                                position, position, /*rowsAdvance=*/false};
          auto asHeads = [&](Value row) {
            return perHead(b, l, row, group, headDim);
          };
          Value queries = asHeads(extractSlice(b, l, op.getQ(), ranges));
          Value out = asHeads(extractSlice(b, l, arguments[2], ranges));
          out = attendPages(b, l, tile, queries, out).result;
          Value row = asRow(b, l, out);
          auto terminator = scf::InParallelOp::create(b, l);
          OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
          parallelInsertSlice(inParallel, l, row, arguments[2], ranges);
        });
    rewriter.replaceOp(op, loop.getResults());
    return success();
  }

  /// [1, group * E] -> [group, E]
  static Value perHead(OpBuilder &b, Location loc, Value row, int64_t group,
                       int64_t headDim) {
    auto type = cast<RankedTensorType>(row.getType());
    auto cube = type.clone({1, group, headDim});
    Value expanded = tensor::ExpandShapeOp::create(
        b, loc, cube, row, ArrayRef<ReassociationIndices>{{0}, {1, 2}});
    return tensor::CollapseShapeOp::create(
        b, loc, type.clone({group, headDim}), expanded,
        ArrayRef<ReassociationIndices>{{0, 1}, {2}});
  }

  /// [group, E] -> [1, group * E]
  static Value asRow(OpBuilder &b, Location loc, Value heads) {
    auto type = cast<RankedTensorType>(heads.getType());
    int64_t group = type.getDimSize(0), headDim = type.getDimSize(1);
    Value expanded = tensor::ExpandShapeOp::create(
        b, loc, type.clone({1, group, headDim}), heads,
        ArrayRef<ReassociationIndices>{{0, 1}, {2}});
    return tensor::CollapseShapeOp::create(
        b, loc, type.clone({1, group * headDim}), expanded,
        ArrayRef<ReassociationIndices>{{0}, {1, 2}});
  }
};

/// The argument that the result of an elementwise op may be written into: the
/// one marked for it, or an operand that nothing reads later.
Value argumentFor(func::FuncOp function, Operation *op) {
  Type type = op->getResult(0).getType();
  std::optional<unsigned> index = returnedIndex(op->getResult(0));
  if (!index)
    return {};
  Value output = outputArgument(function, *index);
  if (output && output.getType() == type)
    return output;
  for (Value operand : op->getOperands()) {
    bool isReadLater = llvm::any_of(operand.getUsers(), [&](Operation *user) {
      return user != op && !user->isBeforeInBlock(op);
    });
    if (isa<BlockArgument>(operand) && operand.getType() == type &&
        !isReadLater)
      return operand;
  }
  return {};
}

// Pattern: return elementwise(..., argument) -> return generic outs(argument)
// After bufferization a function returns nothing but its arguments.
void buildInArgument(func::FuncOp function, Operation *op) {
  Value dest = argumentFor(function, op);
  if (!dest)
    return;
  OpBuilder builder(op);
  auto type = cast<RankedTensorType>(dest.getType());
  auto dims = llvm::to_vector(llvm::seq<unsigned>(0, type.getRank()));
  SmallVector<Access> inputs;
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()) && operand != dest)
      inputs.push_back({operand, dims});
  Value result = buildGeneric(
      builder, op->getLoc(), type.getRank(), /*reduceLast=*/false, inputs,
      {{dest, dims}}, [&](OpBuilder &b, Location loc, ValueRange arguments) {
        SmallVector<Value> operands;
        unsigned next = 0;
        for (Value operand : op->getOperands())
          operands.push_back(!isa<RankedTensorType>(operand.getType()) ? operand
                             : operand == dest ? arguments.back()
                                               : arguments[next++]);
        return SmallVector<Value>{b.create(loc, op->getName().getIdentifier(),
                                           operands, type.getElementType(),
                                           op->getAttrs())
                                      ->getResult(0)};
      })[0];
  op->getResult(0).replaceAllUsesWith(result);
  op->erase();
}

bool isElementwiseOnTensor(Operation &op) {
  return OpTrait::hasElementwiseMappableTraits(&op) &&
         op.getNumResults() == 1 &&
         isa<RankedTensorType>(op.getResult(0).getType());
}

struct TileColumnsPass
    : public stem::impl::StemTileColumnsPassBase<TileColumnsPass> {
  void runOnOperation() override {
    auto tile =
        getOperation()->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
    if (!tile || tile.getInt() != 1)
      return;
    WalkResult shapes = getOperation()->walk([](TokenwiseOpInterface op) {
      return WalkResult(verifyTokenShapes(op));
    });
    if (shapes.wasInterrupted())
      return signalPassFailure();
    RewritePatternSet patterns(&getContext());
    patterns.add<TileLinear, TileFFN<DenseFFNOp>, TileFFN<GatedFFNOp>,
                 TileFFN<FusedFFNOp>, TileSelectUp, TileAttend>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    if (!getOperation().getBody().hasOneBlock())
      return;
    for (Operation &op :
         llvm::make_early_inc_range(getOperation().getBody().front()))
      if (isElementwiseOnTensor(op))
        buildInArgument(getOperation(), &op);
  }
};

} // namespace
