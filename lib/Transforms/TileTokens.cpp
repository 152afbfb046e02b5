//===- TileTokens.cpp - Tokenwise ops, tile by tile -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TilingUtils.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace stem {
#define GEN_PASS_DEF_STEMTILETOKENSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// Elementwise arith or math on tensors whose rows are tokens.
bool isElementwiseOnTokens(Operation *op) {
  if (!OpTrait::hasElementwiseMappableTraits(op) || op->getNumResults() != 1)
    return false;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && type.getRank() > 0 && type.isDynamicDim(0);
}

bool isTokenOperand(OpOperand &operand) {
  if (auto tokenwise = dyn_cast<TokenwiseOpInterface>(operand.getOwner()))
    return tokenwise.isTokenOperand(operand.getOperandNumber());
  return true;
}

bool isTokenwise(Operation *op) {
  return isa<TokenwiseOpInterface>(op) || isElementwiseOnTokens(op);
}

/// The ops of one loop over tiles.
class Group {
public:
  bool empty() const { return ops.empty(); }
  bool contains(Operation *op) const { return op && ops.contains(op); }
  bool contains(Value value) const { return contains(value.getDefiningOp()); }
  void add(Operation *op) { ops.insert(op); }
  ArrayRef<Operation *> getOps() const { return ops.getArrayRef(); }

  /// Whether `op` reads something of the group other than tile by tile.
  bool mustPrecede(Operation *op) const {
    if (!isTokenwise(op))
      return llvm::any_of(op->getOperands(),
                          [&](Value value) { return contains(value); });
    if (isa<AttendOp>(op) && llvm::any_of(ops, [](Operation *other) {
          return isa<KVAppendOp>(other);
        }))
      return true;
    return llvm::any_of(op->getOpOperands(), [&](OpOperand &operand) {
      return contains(operand.get()) && !isTokenOperand(operand);
    });
  }

  /// Token operands from outside, in order of first use.
  SmallVector<Value> inputs() const {
    llvm::SetVector<Value> result;
    for (Operation *op : ops)
      for (OpOperand &operand : op->getOpOperands())
        if (isTokenOperand(operand) && !contains(operand.get()))
          result.insert(operand.get());
    return result.takeVector();
  }

  /// Values that something outside reads.
  SmallVector<Value> outputs() const {
    SmallVector<Value> result;
    for (Operation *op : ops)
      for (Value value : op->getResults())
        if (llvm::any_of(value.getUsers(),
                         [&](Operation *user) { return !contains(user); }))
          result.push_back(value);
    return result;
  }

  /// Whether every use of `value` is in the group or before it.
  bool isLastUser(Value value) const {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      return contains(user) || user->isBeforeInBlock(ops.front());
    });
  }

private:
  llvm::SetVector<Operation *> ops;
};

struct TileTokensPass
    : public stem::impl::StemTileTokensPassBase<TileTokensPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    auto attribute =
        function->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
    if (!attribute || attribute.getInt() <= 1 || function.isExternal())
      return;
    tile = attribute.getInt();
    if (!function.getBody().hasOneBlock()) {
      function.emitOpError("has several blocks; tiling needs straight-line "
                           "code");
      return signalPassFailure();
    }
    Group group;
    for (Operation &op :
         llvm::make_early_inc_range(function.getBody().front())) {
      bool breaks = !isTokenwise(&op) &&
                    (!isPure(&op) || op.hasTrait<OpTrait::IsTerminator>());
      if (breaks || group.mustPrecede(&op))
        flush(group, &op);
      if (isTokenwise(&op))
        group.add(&op);
    }
  }

  /// Replaces the ops of the group by one loop in front of `next`.
  void flush(Group &group, Operation *next) {
    if (!group.empty())
      buildLoop(group, next);
    group = Group();
  }

  SliceRange tileRange(OpBuilder &builder, OpFoldResult offset) {
    return {offset, builder.getIndexAttr(tile)};
  }

  SmallVector<SliceRange> tileRanges(OpBuilder &builder, Location loc,
                                     Value whole, OpFoldResult offset) {
    SmallVector<SliceRange> ranges = {tileRange(builder, offset)};
    int64_t rank = cast<RankedTensorType>(whole.getType()).getRank();
    for (int64_t i = 1; i < rank; ++i)
      ranges.push_back(fullRange(builder, loc, whole, i));
    return ranges;
  }

  /// An argument that a returned value may overwrite, or a new tensor.
  Value destination(const Group &group, ArrayRef<Value> inputs, Value output,
                    OpBuilder &builder, OpFoldResult tokens) {
    auto type = cast<RankedTensorType>(output.getType());
    if (std::optional<unsigned> index = returnedIndex(output)) {
      if (Value argument = outputArgument(getOperation(), *index))
        return argument;
      for (Value input : inputs)
        if (isa<BlockArgument>(input) && input.getType() == type &&
            group.isLastUser(input))
          return input;
    }
    SmallVector<OpFoldResult> sizes = {tokens};
    for (int64_t size : type.getShape().drop_front())
      sizes.push_back(builder.getIndexAttr(size));
    return emptyTensor(builder, output.getLoc(), sizes, type.getElementType());
  }

  void buildLoop(const Group &group, Operation *next) {
    OpBuilder builder(next);
    Location loc = group.getOps().front()->getLoc();
    SmallVector<Value> inputs = group.inputs();
    SmallVector<Value> outputs = group.outputs();
    if (inputs.empty()) {
      group.getOps().front()->emitOpError("has no token operand to tile by");
      return signalPassFailure();
    }
    Value tokens =
        tensor::DimOp::create(builder, loc, inputs.front(), /*index=*/0);
    SmallVector<Value> destinations;
    for (Value output : outputs)
      destinations.push_back(
          destination(group, inputs, output, builder, tokens));
    Value tileSize = arith::ConstantIndexOp::create(builder, loc, tile);
    Value tiles = arith::DivUIOp::create(builder, loc, tokens, tileSize);

    auto loop = scf::ForallOp::create(
        builder, loc, ArrayRef<OpFoldResult>{tiles}, destinations,
        /*mapping=*/std::nullopt,
        [&](OpBuilder &body, Location bodyLoc, ValueRange arguments) {
          buildBody(group, inputs, outputs, destinations, body, bodyLoc,
                    arguments, tileSize);
        });
    for (auto [output, result] : llvm::zip_equal(outputs, loop.getResults()))
      output.replaceUsesWithIf(result, [&](OpOperand &use) {
        return !group.contains(use.getOwner()) &&
               !loop->isAncestor(use.getOwner());
      });
    for (Operation *op : llvm::reverse(group.getOps()))
      op->erase();
  }

  void buildBody(const Group &group, ArrayRef<Value> inputs,
                 ArrayRef<Value> outputs, ArrayRef<Value> destinations,
                 OpBuilder &body, Location loc, ValueRange arguments,
                 Value tileSize) {
    Value offset =
        arith::MulIOp::create(body, loc, arguments.front(), tileSize);
    ValueRange shared = arguments.drop_front();
    IRMapping mapping;
    for (Value input : inputs) {
      // The tile of an overwritten input is read through the loop's own
      // argument, so that the write can happen in place.
      Value source = input;
      for (auto [destination, argument] : llvm::zip_equal(destinations, shared))
        if (destination == input)
          source = argument;
      mapping.map(input, extractSlice(body, loc, source,
                                      tileRanges(body, loc, source, offset)));
    }
    for (Operation *op : group.getOps())
      cloneOnTile(op, body, mapping);
    auto terminator = scf::InParallelOp::create(body, loc);
    OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
    for (auto [output, argument] : llvm::zip_equal(outputs, shared)) {
      // Sizes are static here, or need ops that stand before the terminator.
      OpBuilder before(terminator);
      auto ranges = tileRanges(before, loc, argument, offset);
      parallelInsertSlice(inParallel, loc, mapping.lookup(output), argument,
                          ranges);
    }
  }

  void cloneOnTile(Operation *op, OpBuilder &body, IRMapping &mapping) {
    Operation *clone = body.clone(*op, mapping);
    for (Value result : clone->getResults()) {
      auto type = cast<RankedTensorType>(result.getType());
      SmallVector<int64_t> shape(type.getShape());
      shape.front() = tile;
      result.setType(type.clone(shape));
    }
  }

  int64_t tile = 0;
};

} // namespace
