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

bool isMatrixOfTokens(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() > 0 && tensor.isDynamicDim(0);
}

/// Elementwise arith or math on tensors whose rows are tokens.
bool isElementwiseOnTokens(Operation *op) {
  return OpTrait::hasElementwiseMappableTraits(op) &&
         op->getNumResults() == 1 &&
         isMatrixOfTokens(op->getResult(0).getType());
}

bool isTokenOperand(OpOperand &operand) {
  if (auto tokenwise = dyn_cast<TokenwiseOpInterface>(operand.getOwner()))
    return tokenwise.isTokenOperand(operand.getOperandNumber());
  // Elementwise: all but scalars, such as the condition of a select.
  return isa<RankedTensorType>(operand.get().getType());
}

/// A tokenwise op on tensors; buffers are beyond this pass.
bool isTokenwise(Operation *op) {
  if (!isa<TokenwiseOpInterface>(op))
    return isElementwiseOnTokens(op);
  return llvm::all_of(op->getOpOperands(), [](OpOperand &operand) {
    return !isTokenOperand(operand) ||
           isa<RankedTensorType>(operand.get().getType());
  });
}

/// Calls `visit` on every operand of `op` and of the ops inside it.
void forEachOperand(Operation *op, function_ref<void(OpOperand &)> visit) {
  op->walk([&](Operation *inner) {
    for (OpOperand &operand : inner->getOpOperands())
      visit(operand);
  });
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
    // Every tile's keys are in the cache before any token attends, and are
    // not overwritten before all have.
    if ((isa<AttendOp>(op) && containsAny<KVAppendOp>()) ||
        (isa<KVAppendOp>(op) && containsAny<AttendOp>()))
      return true;
    bool tileByTile = isTokenwise(op);
    bool result = false;
    forEachOperand(op, [&](OpOperand &operand) {
      if (contains(operand.get()) && !(tileByTile && isTokenOperand(operand)))
        result = true;
    });
    return result;
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
    Block *block = ops.front()->getBlock();
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      // A size is not the contents.
      return contains(user) || isa<tensor::DimOp>(user) ||
             block->findAncestorOpInBlock(*user)->isBeforeInBlock(ops.front());
    });
  }

private:
  template <typename OpT> bool containsAny() const {
    return llvm::any_of(ops, llvm::IsaPred<OpT>);
  }

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
    Block &body = function.getBody().front();
    bool areTileable = true;
    for (Operation &op : body)
      if (isTokenwise(&op) && failed(verifyTiles(&op)))
        areTileable = false;
    if (!areTileable)
      return signalPassFailure();
    Group group;
    for (Operation &op : llvm::make_early_inc_range(body)) {
      bool breaks = !isTokenwise(&op) &&
                    (!isPure(&op) || op.hasTrait<OpTrait::IsTerminator>());
      if (breaks || group.mustPrecede(&op))
        flush(group, &op);
      if (isTokenwise(&op))
        group.add(&op);
    }
  }

  /// Whether `op` can be cut into tiles.
  LogicalResult verifyTiles(Operation *op) {
    if (auto tokenwise = dyn_cast<TokenwiseOpInterface>(op))
      if (failed(verifyTokenShapes(tokenwise)))
        return failure();
    for (OpOperand &operand : op->getOpOperands()) {
      auto type = dyn_cast<RankedTensorType>(operand.get().getType());
      if (!type || !isTokenOperand(operand))
        continue;
      if (llvm::is_contained(type.getShape().drop_front(),
                             ShapedType::kDynamic))
        return op->emitOpError()
               << "has an operand " << type
               << "; only the number of tokens may be dynamic";
      if (!type.isDynamicDim(0) && type.getDimSize(0) % tile != 0)
        return op->emitOpError() << "has " << type.getDimSize(0)
                                 << " tokens, which is not a multiple of '"
                                 << StemDialect::kTileAttr << "', " << tile;
    }
    return success();
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
      Value argument = outputArgument(getOperation(), *index);
      if (argument && argument.getType() == type)
        return argument;
      for (Value input : inputs)
        if (isa<BlockArgument>(input) && input.getType() == type &&
            group.isLastUser(input))
          return input;
    }
    SmallVector<OpFoldResult> sizes = {
        type.isDynamicDim(0) ? tokens
                             : builder.getIndexAttr(type.getDimSize(0))};
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
    Operation *clone = body.clone(*op);
    // Operand by operand: a value may be the tokens of one operand and the
    // whole matrix of another.
    for (OpOperand &operand : op->getOpOperands())
      if (isTokenOperand(operand))
        clone->setOperand(operand.getOperandNumber(),
                          mapping.lookup(operand.get()));
    for (auto [result, whole] :
         llvm::zip_equal(clone->getResults(), op->getResults())) {
      auto type = cast<RankedTensorType>(whole.getType());
      SmallVector<int64_t> shape(type.getShape());
      shape.front() = tile;
      result.setType(type.clone(shape));
      mapping.map(whole, result);
    }
  }

  int64_t tile = 0;
};

} // namespace
