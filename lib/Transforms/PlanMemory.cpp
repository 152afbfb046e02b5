//===- PlanMemory.cpp - A place for every buffer --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A frame consists of three regions, one after the other: buffers of a static
// size, buffers with a row for each token, buffers with a row for each output.
// Within a region offsets are constants in bytes per unit (a token, an output),
// so packing is the same one-dimensional problem three times. The fourth region
// is the scratch of a thread.
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/Count.h"
#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "BufferPacking.h"
#include "RowKinds.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferViewFlowAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

namespace stem {
#define GEN_PASS_DEF_STEMPLANMEMORYPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

constexpr int64_t kAlignment = 64;

enum Region { Fixed, Tokens, Outputs, Scratch, kRegions };

/// One memref.alloc or memref.alloca.
struct Buffer {
  Operation *alloc;
  MemRefType type;
  Region region;
  /// The outermost parallel loop around it, if any.
  scf::ForallOp forall;
  /// Not 0 for a buffer with token or output rows inside `forall`: each of the
  /// loop's tasks has its own copy of this size.
  int64_t taskBytes = 0;
  /// The size that counts tokens or outputs, if any.
  Value rows;
  PackedBuffer place;
};

/// The memory of a function, or of a function and all that it calls.
struct Frame {
  std::array<int64_t, kRegions> bytes{};
};

/// What is known of one function.
struct FunctionPlan {
  SmallVector<Buffer> buffers;
  SmallVector<Operation *> deallocs;
  SmallVector<func::CallOp> calls;
  /// Bytes of `buffers`; of scratch the most that one loop takes.
  Frame own;
  /// `own`, and the largest callee behind it.
  Frame total;
  bool takesMemory = false;
};

scf::ForallOp outermostForall(Operation *op) {
  scf::ForallOp outermost;
  for (auto forall = op->getParentOfType<scf::ForallOp>(); forall;
       forall = forall->getParentOfType<scf::ForallOp>())
    outermost = forall;
  return outermost;
}

/// The number of tasks of a loop, if it is static.
std::optional<int64_t> staticTasks(scf::ForallOp forall) {
  int64_t tasks = 1;
  for (auto [lower, upper, step] :
       llvm::zip_equal(forall.getMixedLowerBound(), forall.getMixedUpperBound(),
                       forall.getMixedStep())) {
    auto l = getConstantIntValue(lower), u = getConstantIntValue(upper),
         s = getConstantIntValue(step);
    if (!l || !u || !s || *s <= 0)
      return std::nullopt;
    int64_t count = *u > *l ? llvm::divideCeil(*u - *l, *s) : 0;
    if (llvm::MulOverflow(tasks, count, tasks))
      return std::nullopt;
  }
  return tasks;
}

/// The most that a size can be, when it is a constant or the smaller of one
/// and something else: the last block of columns is narrower than the others.
std::optional<int64_t> upperBound(Value size) {
  if (std::optional<int64_t> constant = getConstantIntValue(size))
    return *constant < 0 ? std::nullopt : constant;
  Operation *op = size.getDefiningOp();
  std::optional<int64_t> bound;
  auto limit = [&](int64_t value) {
    if (value >= 0)
      bound = std::min(bound.value_or(value), value);
  };
  if (isa_and_nonnull<arith::MinUIOp, arith::MinSIOp>(op)) {
    for (Value operand : op->getOperands())
      if (std::optional<int64_t> constant = getConstantIntValue(operand))
        limit(*constant);
  } else if (auto min = dyn_cast_or_null<affine::AffineMinOp>(op)) {
    for (AffineExpr result : min.getMap().getResults())
      if (auto constant = dyn_cast<AffineConstantExpr>(result))
        limit(constant.getValue());
  }
  return bound;
}

struct PlanMemoryPass
    : public stem::impl::StemPlanMemoryPassBase<PlanMemoryPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (failed(rowKinds.run(module)))
      return signalPassFailure();
    // Callees come first: a frame counts what is called.
    auto order = llvm::reverse(rowKinds.getCallersFirst());
    for (func::FuncOp function : order)
      if (failed(verifyResults(function)))
        return signalPassFailure();
    for (func::FuncOp function : order)
      if (failed(planFunction(function)))
        return signalPassFailure();
    for (func::FuncOp function : order)
      if (failed(addArguments(function)))
        return signalPassFailure();
    for (func::FuncOp function : order)
      rewriteFunction(function);
  }

private:
  LogicalResult verifyResults(func::FuncOp function);
  LogicalResult planFunction(func::FuncOp function);
  LogicalResult addBuffer(func::FuncOp function, Operation *alloc);
  LogicalResult findLifetimes(func::FuncOp function);
  FailureOr<Count> setRegion(Buffer &buffer);
  LogicalResult setSize(func::FuncOp function, Buffer &buffer);
  LogicalResult addArguments(func::FuncOp function);
  void placeBuffers(func::FuncOp function);
  void rewriteFunction(func::FuncOp function);
  Value frameOffset(OpBuilder &builder, Location loc, func::FuncOp function,
                    Region region, int64_t bytesPerUnit);
  Value bufferOffset(OpBuilder &builder, func::FuncOp function,
                     const Buffer &buffer);
  void describe(func::FuncOp function);

  RowKinds rowKinds;
  llvm::DenseMap<Operation *, FunctionPlan> plans;
};

/// Rows of the tile that the token count is a multiple of.
int64_t getTile(func::FuncOp function) {
  auto tile = function->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
  return tile ? std::max<int64_t>(tile.getInt(), 1) : 1;
}

/// What bytes per unit are rounded up to, so that every offset is aligned.
int64_t unitAlignment(func::FuncOp function, Region region) {
  if (region == Tokens)
    return kAlignment / std::gcd(kAlignment, getTile(function));
  return kAlignment;
}

//===----------------------------------------------------------------------===//
// Planning
//===----------------------------------------------------------------------===//

/// What a caller would read after the frame that held it is gone.
LogicalResult PlanMemoryPass::verifyResults(func::FuncOp function) {
  if (function.isExternal() ||
      llvm::none_of(function.getResultTypes(), llvm::IsaPred<BaseMemRefType>))
    return success();
  return function.emitOpError()
         << "returns a buffer: by now results are built in arguments, the "
            "residual stream that a layer adds to or one marked '"
         << StemDialect::kOutputAttr << "'";
}

LogicalResult PlanMemoryPass::planFunction(func::FuncOp function) {
  FunctionPlan &plan = plans[function];
  if (function.isExternal())
    return success();
  WalkResult walk = function.walk([&](Operation *op) {
    if (isa<memref::AllocOp, memref::AllocaOp>(op))
      return failed(addBuffer(function, op)) ? WalkResult::interrupt()
                                             : WalkResult::advance();
    if (isa<memref::DeallocOp>(op))
      plan.deallocs.push_back(op);
    if (auto call = dyn_cast<func::CallOp>(op))
      plan.calls.push_back(call);
    return WalkResult::advance();
  });
  if (walk.wasInterrupted() || failed(findLifetimes(function)))
    return failure();
  placeBuffers(function);

  plan.takesMemory = !plan.buffers.empty();
  Frame callees;
  for (func::CallOp call : plan.calls) {
    func::FuncOp callee = rowKinds.getCallee(call);
    FunctionPlan &calleePlan = plans[callee];
    if (!calleePlan.takesMemory)
      continue;
    plan.takesMemory = true;
    if (outermostForall(call))
      return call.emitOpError()
             << "calls '" << callee.getSymName()
             << "' in a parallel loop, but that function has buffers of its "
                "own: inline it, threads would share them";
    for (unsigned region = 0; region < kRegions; ++region)
      callees.bytes[region] =
          std::max(callees.bytes[region], calleePlan.total.bytes[region]);
  }
  for (unsigned region = 0; region < kRegions; ++region)
    plan.total.bytes[region] = plan.own.bytes[region] + callees.bytes[region];
  plan.total.bytes[Scratch] =
      std::max(plan.own.bytes[Scratch], callees.bytes[Scratch]);
  return success();
}

LogicalResult PlanMemoryPass::addBuffer(func::FuncOp function,
                                        Operation *alloc) {
  auto type = cast<MemRefType>(alloc->getResult(0).getType());
  if (!type.getLayout().isIdentity() || type.getMemorySpace())
    return alloc->emitOpError()
           << "cannot be planned: buffers have the identity layout and the "
              "default memory space, got "
           << type;
  if (!type.getElementType().isIntOrIndexOrFloat())
    return alloc->emitOpError() << "cannot be planned: elements must be "
                                   "integers, indices or floats, got "
                                << type.getElementType();
  auto alignment = alloc->getAttrOfType<IntegerAttr>("alignment");
  if (alignment && alignment.getInt() > kAlignment)
    return alloc->emitOpError()
           << "cannot be planned: wants alignment " << alignment.getInt()
           << ", but the arena is aligned to " << kAlignment << " bytes";
  Buffer buffer{alloc, type, Fixed, outermostForall(alloc), 0, {}, {}};
  if (failed(setSize(function, buffer)))
    return failure();
  plans[function].buffers.push_back(buffer);
  return success();
}

/// Sets the region and what the one dynamic size counts. Gives the bytes of
/// one unit of it.
FailureOr<Count> PlanMemoryPass::setRegion(Buffer &buffer) {
  MemRefType type = buffer.type;
  Count bytes = type.getElementType().isIndex()
                    ? 8
                    : llvm::divideCeil(type.getElementTypeBitWidth(), 8u);
  for (int64_t size : type.getShape())
    if (!ShapedType::isDynamic(size))
      bytes *= size;
  buffer.region = buffer.forall ? Scratch : Fixed;
  for (Value size : buffer.alloc->getOperands()) {
    if (std::optional<int64_t> bound = upperBound(size)) {
      bytes *= *bound;
      continue;
    }
    RowKind kind = rowKinds.ofSize(size);
    if (kind == RowKind::Unknown)
      return buffer.alloc->emitOpError()
             << "cannot be planned: a dynamic size is neither bounded by a "
                "constant nor the tokens or outputs of an argument (see the "
                "argument attribute '"
             << StemDialect::kRowsAttr << "')";
    if (buffer.rows)
      return buffer.alloc->emitOpError()
             << "cannot be planned: memory is a linear function of the token "
                "count, but two sizes of "
             << type << " depend on it";
    buffer.rows = size;
    buffer.region = kind == RowKind::Tokens ? Tokens : Outputs;
  }
  return bytes;
}

/// Sets the region and the bytes.
LogicalResult PlanMemoryPass::setSize(func::FuncOp function, Buffer &buffer) {
  FailureOr<Count> unit = setRegion(buffer);
  if (failed(unit))
    return failure();
  // No frame comes near this, and sums of such sizes cannot overflow.
  constexpr int64_t largest = int64_t(1) << 48;
  int64_t bytes = std::min(unit->get(), largest + 1);
  bytes = llvm::alignTo(bytes, unitAlignment(function, buffer.region));
  if (buffer.forall && buffer.region != Scratch) {
    std::optional<int64_t> tasks = staticTasks(buffer.forall);
    if (!tasks)
      return buffer.alloc->emitOpError()
             << "cannot be planned: in a parallel loop a buffer has a static "
                "size, unless the loop has a static number of tasks";
    buffer.taskBytes = bytes;
    bytes = (Count(bytes) * *tasks).get();
  }
  if (bytes > largest)
    return buffer.alloc->emitOpError()
           << "cannot be planned: " << buffer.type << " is too large";
  buffer.place.bytes = bytes;
  return success();
}

/// A lifetime counts ops of the block that owns the memory: the body of the
/// loop for scratch, of the function for the rest. A buffer used anywhere
/// inside such an op is live during all of it.
LogicalResult PlanMemoryPass::findLifetimes(func::FuncOp function) {
  FunctionPlan &plan = plans[function];
  if (plan.buffers.empty())
    return success();
  if (!function.getBody().hasOneBlock())
    return function.emitOpError(
        "has more than one block: memory is planned on structured control "
        "flow, before its lowering");
  llvm::DenseMap<Operation *, unsigned> positions;
  auto numberOps = [&](Block *block) {
    for (auto [index, op] : llvm::enumerate(*block))
      positions[&op] = index;
  };
  numberOps(&function.getBody().front());
  function.walk([&](scf::ForallOp forall) {
    if (!outermostForall(forall))
      numberOps(forall.getBody());
  });

  BufferViewFlowAnalysis aliases(function);
  for (Buffer &buffer : plan.buffers) {
    Block *scope = buffer.region == Scratch ? buffer.forall.getBody()
                                            : &function.getBody().front();
    unsigned first = positions[scope->findAncestorOpInBlock(*buffer.alloc)];
    buffer.place.first = buffer.place.last = first;
    for (Value alias : aliases.resolve(buffer.alloc->getResult(0))) {
      auto argument = dyn_cast<BlockArgument>(alias);
      if (argument &&
          argument.getOwner()->getParentOp()->isProperAncestor(buffer.alloc))
        return buffer.alloc->emitOpError(
            "cannot be planned: it is carried into the next iteration of a "
            "loop that allocates it anew; allocate it before the loop");
      for (Operation *user : alias.getUsers()) {
        if (isa<memref::DeallocOp>(user))
          continue;
        Operation *ancestor = scope->findAncestorOpInBlock(*user);
        if (ancestor)
          buffer.place.last = std::max(buffer.place.last, positions[ancestor]);
      }
    }
  }
  return success();
}

void PlanMemoryPass::placeBuffers(func::FuncOp function) {
  FunctionPlan &plan = plans[function];
  auto pack = [&](auto belongs) {
    SmallVector<PackedBuffer *> places;
    for (Buffer &buffer : plan.buffers)
      if (belongs(buffer))
        places.push_back(&buffer.place);
    return packBuffers(places);
  };
  for (Region region : {Fixed, Tokens, Outputs})
    plan.own.bytes[region] =
        pack([&](const Buffer &buffer) { return buffer.region == region; });
  function.walk([&](scf::ForallOp forall) {
    int64_t bytes = pack([&](const Buffer &buffer) {
      return buffer.region == Scratch && buffer.forall == forall;
    });
    plan.own.bytes[Scratch] = std::max(plan.own.bytes[Scratch], bytes);
  });
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

LogicalResult PlanMemoryPass::addArguments(func::FuncOp function) {
  if (!plans[function].takesMemory)
    return success();
  Builder builder(&getContext());
  Type bytes = MemRefType::get({ShapedType::kDynamic}, builder.getI8Type());
  for (StringRef name : {StemDialect::kScratchAttr, StemDialect::kArenaAttr}) {
    auto attribute = builder.getDictionaryAttr(
        builder.getNamedAttr(name, builder.getUnitAttr()));
    if (failed(function.insertArgument(function.getNumArguments(), bytes,
                                       attribute, function.getLoc())))
      return function.emitOpError("cannot take more arguments");
  }
  return success();
}

/// The offset of `bytesPerUnit` units into a region of the function's frame.
Value PlanMemoryPass::frameOffset(OpBuilder &builder, Location loc,
                                  func::FuncOp function, Region region,
                                  int64_t bytesPerUnit) {
  const Frame &own = plans[function].own;
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  auto units = [&](RowKind kind, int64_t bytes) -> Value {
    Value rows = memref::DimOp::create(
        builder, loc, rowKinds.findArgument(function, kind), 0);
    return arith::MulIOp::create(builder, loc, rows, constant(bytes));
  };
  if (region == Fixed)
    return constant(bytesPerUnit);
  Value offset = constant(own.bytes[Fixed]);
  int64_t tokenBytes = region == Tokens ? bytesPerUnit : own.bytes[Tokens];
  if (tokenBytes)
    offset = arith::AddIOp::create(builder, loc, offset,
                                   units(RowKind::Tokens, tokenBytes));
  if (region == Outputs && bytesPerUnit)
    offset = arith::AddIOp::create(builder, loc, offset,
                                   units(RowKind::Outputs, bytesPerUnit));
  return offset;
}

/// The number of the task that runs the body of a loop, counted row by row.
Value taskNumber(OpBuilder &builder, scf::ForallOp forall) {
  Location loc = forall.getLoc();
  Value number = arith::ConstantIndexOp::create(builder, loc, 0);
  for (auto [variable, lower, upper, step] :
       llvm::zip_equal(forall.getInductionVars(), forall.getMixedLowerBound(),
                       forall.getMixedUpperBound(), forall.getMixedStep())) {
    int64_t first = *getConstantIntValue(lower);
    int64_t stride = *getConstantIntValue(step);
    int64_t count =
        llvm::divideCeil(*getConstantIntValue(upper) - first, stride);
    auto constant = [&](int64_t value) {
      return arith::ConstantIndexOp::create(builder, loc, value);
    };
    Value index =
        arith::SubIOp::create(builder, loc, variable, constant(first));
    index = arith::DivUIOp::create(builder, loc, index, constant(stride));
    number = arith::MulIOp::create(builder, loc, number, constant(count));
    number = arith::AddIOp::create(builder, loc, number, index);
  }
  return number;
}

Value PlanMemoryPass::bufferOffset(OpBuilder &builder, func::FuncOp function,
                                   const Buffer &buffer) {
  Location loc = buffer.alloc->getLoc();
  if (buffer.region == Scratch) {
    // Loops run one after another, so each may have a stride of its own; the
    // function's is as good and the same for all.
    Value thread = ThreadIndexOp::create(builder, loc, builder.getIndexType());
    Value stride = arith::ConstantIndexOp::create(
        builder, loc, plans[function].own.bytes[Scratch]);
    Value base = arith::MulIOp::create(builder, loc, thread, stride);
    Value offset =
        arith::ConstantIndexOp::create(builder, loc, buffer.place.offset);
    return arith::AddIOp::create(builder, loc, base, offset);
  }
  Value offset =
      frameOffset(builder, loc, function, buffer.region, buffer.place.offset);
  if (!buffer.taskBytes)
    return offset;
  Value bytes = arith::ConstantIndexOp::create(builder, loc, buffer.taskBytes);
  Value copy = arith::MulIOp::create(builder, loc, buffer.rows, bytes);
  copy = arith::MulIOp::create(builder, loc, copy,
                               taskNumber(builder, buffer.forall));
  return arith::AddIOp::create(builder, loc, offset, copy);
}

void PlanMemoryPass::rewriteFunction(func::FuncOp function) {
  FunctionPlan &plan = plans[function];
  if (function->hasAttr(StemDialect::kEntryAttr))
    describe(function);
  for (Operation *dealloc : plan.deallocs)
    dealloc->erase();
  if (!plan.takesMemory)
    return;
  Value arena = function.getArguments().back();
  Value scratch = function.getArgument(function.getNumArguments() - 2);
  for (Buffer &buffer : plan.buffers) {
    OpBuilder builder(buffer.alloc);
    Value memory = buffer.region == Scratch ? scratch : arena;
    Value offset = bufferOffset(builder, function, buffer);
    Value view =
        memref::ViewOp::create(builder, buffer.alloc->getLoc(), buffer.type,
                               memory, offset, buffer.alloc->getOperands());
    buffer.alloc->getResult(0).replaceAllUsesWith(view);
    buffer.alloc->erase();
  }
  for (func::CallOp call : plan.calls) {
    if (!plans[rowKinds.getCallee(call)].takesMemory)
      continue;
    OpBuilder builder(call);
    Location loc = call.getLoc();
    Region last = plan.own.bytes[Outputs] ? Outputs : Tokens;
    Value start =
        frameOffset(builder, loc, function, last, plan.own.bytes[last]);
    Value all = memref::DimOp::create(builder, loc, arena, 0);
    Value rest = arith::SubIOp::create(builder, loc, all, start);
    Value behind = memref::ViewOp::create(
        builder, loc, cast<MemRefType>(arena.getType()), arena, start, rest);
    call.getOperandsMutable().append({scratch, behind});
  }
}

/// Leaves the entry's needs on it, for the description of the module.
void PlanMemoryPass::describe(func::FuncOp function) {
  const auto &bytes = plans[function].total.bytes;
  Builder builder(&getContext());
  function->setAttr(StemDialect::kFixedBytesAttr,
                    builder.getI64IntegerAttr(bytes[Fixed]));
  function->setAttr(StemDialect::kTokenBytesAttr,
                    builder.getI64IntegerAttr(bytes[Tokens]));
  function->setAttr(StemDialect::kOutputBytesAttr,
                    builder.getI64IntegerAttr(bytes[Outputs]));
  function->setAttr(StemDialect::kThreadBytesAttr,
                    builder.getI64IntegerAttr(bytes[Scratch]));
  remark::analysis(function.getLoc(), remark::RemarkOpts::name("PeakMemory")
                                          .category("stem-plan-memory")
                                          .function(function.getSymName()))
      << (Twine(bytes[Fixed]) + " + tokens * " + Twine(bytes[Tokens]) +
          " + outputs * " + Twine(bytes[Outputs]) + " + threads * " +
          Twine(bytes[Scratch]) + " bytes")
             .str();
}

} // namespace
