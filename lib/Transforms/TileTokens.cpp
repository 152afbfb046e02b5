//===- TileTokens.cpp - Tokenwise ops, tile by tile -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TilingUtils.h"
#include "TokenSums.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
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

/// Why chunks of tokens, one after the other, cannot add to `op`: it is not
/// what stem-to-linalg adds up without a conversion. Empty: they can.
StringRef whyNoChunks(LinearWeightVjpOp op, int64_t tile) {
  if (kSumDepth % tile != 0)
    return "its tiles do not fill a chunk of 2048 tokens";
  RankedTensorType x = op.getX().getType(), dy = op.getCotangent().getType(),
                   sum = op.getType();
  Type element = x.getElementType();
  if (dy.getElementType() != element)
    return "its sides differ in their types";
  if ((!element.isF32() && !element.isBF16()) || !sum.getElementType().isF32())
    return "only sides of f32 or bf16 are added up, in f32";
  if (!sum.hasStaticShape() || sum.getNumElements() == 0 ||
      x.getDimSize(0) != dy.getDimSize(0) ||
      x.getDimSize(1) != sum.getDimSize(1) ||
      dy.getDimSize(1) != sum.getDimSize(0))
    return "its shape is dynamic, empty, or not that of its sides";
  return "";
}

/// The ops of one loop over tiles, and the gradients of weights that add up
/// what it makes.
class Group {
public:
  bool empty() const { return ops.empty(); }
  bool contains(Operation *op) const { return op && ops.contains(op); }
  bool contains(Value value) const { return contains(value.getDefiningOp()); }
  void add(Operation *op) { ops.insert(op); }
  ArrayRef<Operation *> getOps() const { return ops.getArrayRef(); }

  bool isSum(Operation *op) const { return op && sums.contains(op); }
  bool isSum(Value value) const { return isSum(value.getDefiningOp()); }
  void addSum(LinearWeightVjpOp op) { sums.insert(op); }
  SmallVector<LinearWeightVjpOp> getSums() const {
    return llvm::map_to_vector(
        sums, [](Operation *op) { return cast<LinearWeightVjpOp>(op); });
  }

  /// Whether `op` adds up what the tiles of this group make.
  bool feeds(LinearWeightVjpOp op) const {
    return contains(op.getX()) || contains(op.getCotangent());
  }

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
      // Sums are there after the last tile.
      if (isSum(operand.get()))
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
        if (!isOwn(value))
          result.push_back(value);
    return result;
  }

  /// Values that sums alone read: as panels, what is the x of all of them.
  SmallVector<Value> summed(bool asPanels) const {
    llvm::SetVector<Value> result;
    for (LinearWeightVjpOp sum : getSums())
      for (Value value : {Value(sum.getX()), Value(sum.getCotangent())})
        if (contains(value) && isOwn(value) &&
            asPanels == llvm::all_of(getSums(), [&](LinearWeightVjpOp other) {
              return other.getCotangent() != value;
            }))
          result.insert(value);
    return result.takeVector();
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
  /// Whether the group and its sums alone read `value`.
  bool isOwn(Value value) const {
    return llvm::all_of(value.getUsers(), [&](Operation *user) {
      return contains(user) || isSum(user);
    });
  }

  template <typename OpT> bool containsAny() const {
    return llvm::any_of(ops, llvm::IsaPred<OpT>);
  }

  llvm::SetVector<Operation *> ops, sums;
};

/// What a loop over tiles writes: whole matrices of all tokens, then what sums
/// alone read, for the tokens of one chunk: panels, and matrices.
struct LoopOutputs {
  SmallVector<Value> whole, panels, chunks;

  SmallVector<Value> all() const {
    SmallVector<Value> result(whole);
    llvm::append_range(result, panels);
    llvm::append_range(result, chunks);
    return result;
  }
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
      if (auto sum = dyn_cast<LinearWeightVjpOp>(op); sum && group.feeds(sum)) {
        StringRef reason = whyNoChunks(sum, tile);
        if (reason.empty()) {
          group.addSum(sum);
          continue;
        }
        remark::missed(op.getLoc(), remark::RemarkOpts::name("NotInChunks")
                                        .category("stem-tile-tokens")
                                        .function(function.getName()))
            << remark::reason("{0}, so that what it adds up is written whole",
                              reason);
      }
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
    if (inputs.empty()) {
      group.getOps().front()->emitOpError("has no token operand to tile by");
      return signalPassFailure();
    }
    LoopOutputs outputs = {group.outputs(), group.summed(/*asPanels=*/true),
                           group.summed(/*asPanels=*/false)};
    Value tokens =
        tensor::DimOp::create(builder, loc, inputs.front(), /*index=*/0);
    SmallVector<Value> destinations;
    for (Value output : outputs.whole)
      destinations.push_back(
          destination(group, inputs, output, builder, tokens));
    SmallVector<LinearWeightVjpOp> sums = group.getSums();
    Loop loop = {group, inputs, outputs, destinations};
    ValueRange results =
        sums.empty()
            ? buildTiles(loop, builder, loc, destinations, tokens, Value())
            : buildChunks(loop, builder, loc, tokens);
    for (auto [output, result] : llvm::zip(outputs.whole, results))
      output.replaceUsesWithIf(result, [&](OpOperand &use) {
        return !group.contains(use.getOwner()) &&
               !group.isSum(use.getOwner()) &&
               !isInside(use.getOwner(), result);
      });
    for (auto [sum, result] :
         llvm::zip_equal(sums, results.take_back(sums.size())))
      sum.getResult().replaceAllUsesWith(result);
    for (LinearWeightVjpOp sum : sums)
      sum.erase();
    for (Operation *op : llvm::reverse(group.getOps()))
      op->erase();
  }

  static bool isInside(Operation *op, Value resultOfLoop) {
    return resultOfLoop.getDefiningOp()->isAncestor(op);
  }

  /// A loop in the making. `destinations` are what the whole outputs are built
  /// in.
  struct Loop {
    const Group &group;
    ArrayRef<Value> inputs;
    const LoopOutputs &outputs;
    ArrayRef<Value> destinations;
  };

  /// The tiles of `tokens` tokens from `first` on (null: 0), written into
  /// `shared`. Gives what became of it.
  ValueRange buildTiles(const Loop &loop, OpBuilder &builder, Location loc,
                        ArrayRef<Value> shared, Value tokens, Value first) {
    Value tileSize = arith::ConstantIndexOp::create(builder, loc, tile);
    Value tiles = arith::DivUIOp::create(builder, loc, tokens, tileSize);
    auto forall = scf::ForallOp::create(
        builder, loc, ArrayRef<OpFoldResult>{tiles}, shared,
        /*mapping=*/std::nullopt,
        [&](OpBuilder &body, Location bodyLoc, ValueRange arguments) {
          buildBody(loop, body, bodyLoc, arguments, tileSize, first);
        });
    return forall.getResults();
  }

  /// Chunk after chunk of tokens: its tiles, then what they add to the sums.
  /// What sums alone read is there for one chunk. Gives the whole outputs, then
  /// the sums.
  ValueRange buildChunks(const Loop &loop, OpBuilder &builder, Location loc,
                         Value tokens) {
    SmallVector<Value> state(loop.destinations);
    for (LinearWeightVjpOp sum : loop.group.getSums())
      state.push_back(
          destinationOf(builder, sum.getResult(),
                        {builder.getIndexAttr(sum.getType().getDimSize(0)),
                         builder.getIndexAttr(sum.getType().getDimSize(1))}));
    Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
    Value step = arith::ConstantIndexOp::create(builder, loc, kSumDepth);
    auto chunks = scf::ForOp::create(
        builder, loc, zero, tokens, step, state,
        [&](OpBuilder &body, Location l, Value first, ValueRange values) {
          Value left = arith::SubIOp::create(body, l, tokens, first);
          Value count = arith::MinUIOp::create(body, l, left, step);
          Value isLater = arith::CmpIOp::create(
              body, l, arith::CmpIPredicate::ne, first, zero);
          scf::YieldOp::create(
              body, l,
              visitChunk(loop, body, l, first, count, isLater, values));
        });
    return chunks.getResults();
  }

  /// Tokens [first, first + count): the new values of `state`.
  SmallVector<Value> visitChunk(const Loop &loop, OpBuilder &b, Location loc,
                                Value first, Value count, Value isLater,
                                ValueRange state) {
    const size_t whole = loop.outputs.whole.size();
    SmallVector<Value> shared(state.take_front(whole));
    for (Value value : loop.outputs.panels) {
      auto type = cast<RankedTensorType>(value.getType());
      shared.push_back(
          createPanels(b, loc, type.getDimSize(1), type.getElementType()));
    }
    for (Value value : loop.outputs.chunks) {
      auto type = cast<RankedTensorType>(value.getType());
      shared.push_back(tensor::EmptyOp::create(
          b, loc,
          ArrayRef<int64_t>{kSumDepth, spreadColumns(type.getDimSize(1),
                                                     type.getElementType())},
          type.getElementType()));
    }
    ValueRange made = buildTiles(loop, b, loc, shared, count, first);
    IRMapping mapping;
    for (auto [value, result] : llvm::zip_equal(loop.outputs.all(), made))
      mapping.map(value, result);
    // Without what spreads their rows.
    for (Value value : loop.outputs.chunks)
      mapping.map(value,
                  extractSlice(b, loc, mapping.lookup(value),
                               {{b.getIndexAttr(0), b.getIndexAttr(kSumDepth)},
                                fullRange(b, loc, value, 1)}));

    SmallVector<Value> next(made.take_front(whole));
    SliceRange own = {OpFoldResult(first), OpFoldResult(count)};
    // The tokens of the chunk, in a matrix of all tokens or of the chunk.
    auto tokensIn = [&](Value value) -> SliceRange {
      if (llvm::is_contained(loop.outputs.chunks, value))
        return {b.getIndexAttr(0), OpFoldResult(count)};
      return own;
    };
    llvm::DenseMap<Value, Value> packed;
    for (auto [sum, acc] :
         llvm::zip_equal(loop.group.getSums(), state.drop_front(whole))) {
      Value x = sum.getX(), dy = sum.getCotangent();
      Value &panels = packed[x];
      if (!panels)
        panels =
            llvm::is_contained(loop.outputs.panels, x)
                ? mapping.lookup(x)
                : packPanels(b, loc, mapping.lookupOrDefault(x), tokensIn(x));
      next.push_back(addPanelProducts(b, loc, panels,
                                      mapping.lookupOrDefault(dy), tokensIn(dy),
                                      acc, isLater));
    }
    return next;
  }

  void buildBody(const Loop &loop, OpBuilder &body, Location loc,
                 ValueRange arguments, Value tileSize, Value first) {
    Value local = arith::MulIOp::create(body, loc, arguments.front(), tileSize);
    Value offset =
        first ? arith::AddIOp::create(body, loc, first, local).getResult()
              : local;
    ValueRange shared = arguments.drop_front();
    IRMapping mapping;
    for (Value input : loop.inputs) {
      // The tile of an overwritten input is read through the loop's own
      // argument, so that the write can happen in place.
      Value source = input;
      for (auto [destination, argument] : llvm::zip(loop.destinations, shared))
        if (destination == input)
          source = argument;
      mapping.map(input, extractSlice(body, loc, source,
                                      tileRanges(body, loc, source, offset)));
    }
    for (Operation *op : loop.group.getOps())
      cloneOnTile(op, body, mapping);
    insertTiles(loop, body, loc, mapping, shared, offset, local);
  }

  /// The terminator of a loop over tiles.
  void insertTiles(const Loop &loop, OpBuilder &body, Location loc,
                   IRMapping &mapping, ValueRange shared, Value offset,
                   Value local) {
    const LoopOutputs &outputs = loop.outputs;
    const size_t whole = outputs.whole.size(), panels = outputs.panels.size();
    SmallVector<Value> tiles;
    SmallVector<SmallVector<SliceRange>> places;
    for (auto [i, output] : llvm::enumerate(outputs.all())) {
      Value value = mapping.lookup(output);
      if (i < whole || i >= whole + panels) {
        tiles.push_back(value);
        places.push_back(
            tileRanges(body, loc, value, i < whole ? offset : local));
        continue;
      }
      // The tile's part of every panel.
      constexpr int64_t panel = PackedType::kPanelColumns;
      Value size = arith::ConstantIndexOp::create(body, loc, panel);
      Value start = arith::MulIOp::create(body, loc, local, size);
      places.push_back(
          {fullRange(body, loc, shared[i], 0),
           {OpFoldResult(start), body.getIndexAttr(tile * panel)}});
      Value part = extractSlice(body, loc, shared[i], places.back());
      tiles.push_back(packTokens(body, loc, value, part));
    }
    auto terminator = scf::InParallelOp::create(body, loc);
    OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
    for (auto [value, argument, place] : llvm::zip_equal(tiles, shared, places))
      parallelInsertSlice(inParallel, loc, value, argument, place);
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
