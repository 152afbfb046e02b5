//===- Vectorize.cpp - Loops of 16 lanes for linalg ops on buffers --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VectorizeLanes.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Remarks.h"

namespace stem {
#define GEN_PASS_DEF_STEMVECTORIZEPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// Writes the loops of one linalg op in front of it.
class NestEmitter {
public:
  NestEmitter(linalg::LinalgOp op, std::optional<LanePlan> plan)
      : b(op.getLoc(), op), op(op), plan(std::move(plan)) {}

  void emit() {
    for (Range range : op.createLoopRanges(b, op.getLoc()))
      sizes.push_back(
          getValueOrCreateConstantIndexOp(b, b.getLoc(), range.size));
    ivs.resize(sizes.size());
    zero = index(0);
    one = index(1);
    if (plan)
      groupSize = index(kVectorLanes);
    for (auto [dim, size] : llvm::enumerate(sizes)) {
      if (plan && plan->dim == dim)
        continue;
      auto loop = scf::ForOp::create(b, zero, size, one);
      ivs[dim] = loop.getInductionVar();
      b.setInsertionPointToStart(loop.getBody());
    }
    if (!plan)
      emitIteration(IRMapping());
    else if (plan->isReduction)
      emitReduction();
    else
      emitParallel();
  }

private:
  Value index(int64_t value) {
    return arith::ConstantIndexOp::create(b, value);
  }

  //===--------------------------------------------------------------------===//
  // One iteration
  //===--------------------------------------------------------------------===//

  SmallVector<Value> indicesOf(OpOperand &operand) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    return llvm::map_to_vector(map.getResults(), [&](AffineExpr expr) {
      return affine::expandAffineExpr(b, b.getLoc(), expr, ivs, {});
    });
  }

  static bool isMemRef(OpOperand &operand) {
    return isa<MemRefType>(operand.get().getType());
  }

  Value loadScalar(OpOperand &operand) {
    if (!isMemRef(operand))
      return operand.get();
    return memref::LoadOp::create(b, operand.get(), indicesOf(operand));
  }

  /// Maps the arguments and results of the body that `map` lacks.
  void emitScalarBody(IRMapping &map) {
    for (OpOperand &operand : op->getOpOperands()) {
      BlockArgument argument = op.getMatchingBlockArgument(&operand);
      if (!argument.use_empty() && !map.contains(argument))
        map.map(argument, loadScalar(operand));
    }
    for (Operation &bodyOp : op.getBlock()->without_terminator())
      if (bodyOp.getNumResults() == 0 || !map.contains(bodyOp.getResult(0)))
        cloneScalar(bodyOp, map);
  }

  void cloneScalar(Operation &bodyOp, IRMapping &map) {
    if (auto indexOp = dyn_cast<linalg::IndexOp>(bodyOp))
      map.map(indexOp.getResult(), ivs[indexOp.getDim()]);
    else
      b.clone(bodyOp, map);
  }

  void emitIteration(IRMapping map) {
    emitScalarBody(map);
    for (auto [init, value] :
         llvm::zip_equal(op.getDpsInitsMutable(),
                         op.getBlock()->getTerminator()->getOperands()))
      memref::StoreOp::create(b, map.lookupOrDefault(value), init.get(),
                              indicesOf(init));
  }

  //===--------------------------------------------------------------------===//
  // Sixteen iterations
  //===--------------------------------------------------------------------===//

  Value splitSize() { return sizes[plan->dim]; }

  /// What the innermost loops share is computed once, in front of them. With
  /// no iterations a load of the body may be out of bounds, so unless there
  /// is one for sure only what is safe to compute moves.
  IRMapping emitUniform() {
    IRMapping map;
    int64_t staticSize = op.getStaticLoopRanges()[plan->dim];
    bool runs = ShapedType::isStatic(staticSize) && staticSize > 0;
    for (OpOperand &operand : op->getOpOperands()) {
      BlockArgument argument = op.getMatchingBlockArgument(&operand);
      if (!argument.use_empty() && plan->lookup(argument) == Lanes::Uniform)
        map.map(argument, loadScalar(operand));
    }
    for (Operation &bodyOp : op.getBlock()->without_terminator()) {
      bool ready = llvm::all_of(bodyOp.getOperands(), [&](Value operand) {
        return map.contains(operand) ||
               operand.getParentBlock() != op.getBlock();
      });
      bool isUniform = bodyOp.getNumResults() != 0 &&
                       plan->lookup(bodyOp.getResult(0)) == Lanes::Uniform;
      if (ready && isUniform && (runs || isPure(&bodyOp)))
        cloneScalar(bodyOp, map);
    }
    return map;
  }

  static VectorType vectorOf(Type scalar) {
    return VectorType::get({kVectorLanes}, scalar);
  }

  Value asVector(Value value, const IRMapping &map) {
    Value mapped = map.lookupOrDefault(value);
    if (plan->lookup(value) == Lanes::Varying)
      return mapped;
    VectorType type = vectorOf(value.getType());
    Value splat = vector::BroadcastOp::create(b, type, mapped);
    if (plan->lookup(value) == Lanes::Uniform)
      return splat;
    Value iota = vector::StepOp::create(b, vectorOf(b.getIndexType()));
    return arith::AddIOp::create(b, splat, iota);
  }

  /// Maps varying values to vectors, contiguous ones to their first lane.
  void emitLanesBody(IRMapping &map) {
    for (OpOperand &operand : op->getOpOperands()) {
      BlockArgument argument = op.getMatchingBlockArgument(&operand);
      if (!argument.use_empty() && !map.contains(argument))
        map.map(argument,
                vector::LoadOp::create(b, vectorOf(argument.getType()),
                                       operand.get(), indicesOf(operand)));
    }
    for (Operation &bodyOp : op.getBlock()->without_terminator()) {
      if (map.contains(bodyOp.getResult(0)))
        continue;
      if (plan->lookup(bodyOp.getResult(0)) != Lanes::Varying)
        cloneScalar(bodyOp, map);
      else
        emitVector(bodyOp, map);
    }
  }

  void emitVector(Operation &bodyOp, IRMapping &map) {
    if (auto load = dyn_cast<memref::LoadOp>(bodyOp)) {
      SmallVector<Value> indices = llvm::map_to_vector(
          load.getIndices(), [&](Value i) { return map.lookupOrDefault(i); });
      map.map(load.getResult(),
              vector::LoadOp::create(b, vectorOf(load.getType()),
                                     map.lookupOrDefault(load.getMemRef()),
                                     indices));
      return;
    }
    OperationState state(bodyOp.getLoc(), bodyOp.getName());
    for (Value operand : bodyOp.getOperands())
      state.operands.push_back(asVector(operand, map));
    for (Type type : bodyOp.getResultTypes())
      state.types.push_back(vectorOf(type));
    state.addAttributes(bodyOp.getAttrs());
    map.map(bodyOp.getResults(), b.create(state)->getResults());
  }

  //===--------------------------------------------------------------------===//
  // The innermost loops
  //===--------------------------------------------------------------------===//

  /// The part of the loop that is whole groups; null without a remainder.
  Value wholeGroups() {
    int64_t size = op.getStaticLoopRanges()[plan->dim];
    if (ShapedType::isStatic(size))
      return size % kVectorLanes == 0 ? Value()
                                      : index(size - size % kVectorLanes);
    return arith::AndIOp::create(b, splitSize(), index(-kVectorLanes));
  }

  /// LLVM would cut the at most 15 iterations of a remainder again.
  void keepAsWritten(scf::ForOp loop) {
    MLIRContext *context = b.getContext();
    auto yes = BoolAttr::get(context, true);
    auto vectorize =
        LLVM::LoopVectorizeAttr::get(context, yes, {}, {}, {}, {}, {}, {});
    auto unroll =
        LLVM::LoopUnrollAttr::get(context, yes, {}, {}, {}, {}, {}, {});
    loop->setAttr("loop_annotation",
                  LLVM::LoopAnnotationAttr::get(
                      context, /*disableNonforced=*/{}, vectorize,
                      /*interleave=*/{}, unroll, /*unrollAndJam=*/{},
                      /*licm=*/{}, /*distribute=*/{}, /*pipeline=*/{},
                      /*peeled=*/{}, /*unswitch=*/{}, /*mustProgress=*/{},
                      /*isVectorized=*/{}, /*startLoc=*/{}, /*endLoc=*/{},
                      /*parallelAccesses=*/{}));
  }

  void emitParallel() {
    IRMapping uniform = emitUniform();
    Value split = wholeGroups();
    auto groups =
        scf::ForOp::create(b, zero, split ? split : splitSize(), groupSize);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(groups.getBody());
      ivs[plan->dim] = groups.getInductionVar();
      emitGroup(uniform);
    }
    if (!split)
      return;
    auto rest = scf::ForOp::create(b, split, splitSize(), one);
    keepAsWritten(rest);
    b.setInsertionPointToStart(rest.getBody());
    ivs[plan->dim] = rest.getInductionVar();
    emitIteration(uniform);
  }

  void emitGroup(IRMapping map) {
    emitLanesBody(map);
    for (auto [init, value] :
         llvm::zip_equal(op.getDpsInitsMutable(),
                         op.getBlock()->getTerminator()->getOperands()))
      vector::StoreOp::create(b, asVector(value, map), init.get(),
                              indicesOf(init));
  }

  /// Each output: 16 partial results, then the old value combined with their
  /// total, then the remainder one by one. The order depends on nothing but
  /// the size.
  void emitReduction() {
    SmallVector<Value> results;
    ivs[plan->dim] = zero; // no output depends on it
    for (OpOperand &init : op.getDpsInitsMutable())
      results.push_back(loadScalar(init));
    IRMapping uniform = emitUniform();
    Value split = wholeGroups();

    SmallVector<Value> partial =
        llvm::map_to_vector(plan->combiners, [&](Operation *combiner) {
          return neutral(combiner);
        });
    auto groups = scf::ForOp::create(b, zero, split ? split : splitSize(),
                                     groupSize, partial);
    emitReductionStep(groups, uniform, /*asLanes=*/true);
    for (auto [result, combiner, lanes] :
         llvm::zip_equal(results, plan->combiners, groups.getResults()))
      result = combine(combiner, result, total(combiner, lanes));
    if (split) {
      auto rest = scf::ForOp::create(b, split, splitSize(), one, results);
      keepAsWritten(rest);
      emitReductionStep(rest, uniform, /*asLanes=*/false);
      results = llvm::to_vector_of<Value>(rest.getResults());
    }
    ivs[plan->dim] = zero;
    for (auto [init, result] :
         llvm::zip_equal(op.getDpsInitsMutable(), results))
      memref::StoreOp::create(b, result, init.get(), indicesOf(init));
  }

  void emitReductionStep(scf::ForOp loop, IRMapping map, bool asLanes) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    ivs[plan->dim] = loop.getInductionVar();
    map.map(op.getRegionOutputArgs(), loop.getRegionIterArgs());
    if (asLanes)
      emitLanesBody(map);
    else
      emitScalarBody(map);
    SmallVector<Value> yielded =
        llvm::map_to_vector(plan->combiners, [&](Operation *combiner) {
          return map.lookup(combiner->getResult(0));
        });
    scf::YieldOp::create(b, yielded);
  }

  Value neutral(Operation *combiner) {
    Type type = combiner->getResult(0).getType();
    auto attr = isa<math::FmaOp>(combiner)
                    ? TypedAttr(b.getZeroAttr(type))
                    : *arith::getNeutralElement(combiner);
    return arith::ConstantOp::create(
        b, DenseElementsAttr::get(vectorOf(type), Attribute(attr)));
  }

  Value combine(Operation *combiner, Value lhs, Value rhs) {
    if (isa<math::FmaOp>(combiner))
      return arith::AddFOp::create(b, lhs, rhs);
    OperationState state(combiner->getLoc(), combiner->getName(), {lhs, rhs},
                         {lhs.getType()}, combiner->getAttrs());
    return b.create(state)->getResult(0);
  }

  /// Upper half onto lower half until one lane is left: a fixed tree, where
  /// vector.reduction leaves the order to the target.
  Value total(Operation *combiner, Value lanes) {
    for (int64_t half = kVectorLanes / 2; half > 0; half /= 2) {
      auto low = llvm::to_vector(llvm::seq<int64_t>(0, half));
      auto high = llvm::to_vector(llvm::seq<int64_t>(half, 2 * half));
      lanes = combine(combiner, vector::ShuffleOp::create(b, lanes, lanes, low),
                      vector::ShuffleOp::create(b, lanes, lanes, high));
    }
    return vector::ExtractOp::create(b, lanes, ArrayRef<int64_t>{0});
  }

  ImplicitLocOpBuilder b;
  linalg::LinalgOp op;
  std::optional<LanePlan> plan;
  Value zero, one, groupSize;
  SmallVector<Value> sizes;
  SmallVector<Value> ivs;
};

struct VectorizePass : public stem::impl::StemVectorizePassBase<VectorizePass> {
  void runOnOperation() override {
    copiesToLinalg();
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    for (linalg::LinalgOp op : ops)
      rewrite(op);
  }

  void miss(Operation *op, const std::string &reason) {
    remark::missed(op->getLoc(), remark::RemarkOpts::name("NotVectorized")
                                     .category("stem-vectorize")
                                     .function(getOperation().getName()))
        << remark::reason("{0}", reason);
  }

  void copiesToLinalg() {
    SmallVector<memref::CopyOp> copies;
    getOperation().walk([&](memref::CopyOp op) { copies.push_back(op); });
    for (memref::CopyOp op : copies) {
      if (!isa<MemRefType>(op.getSource().getType()) ||
          !isa<MemRefType>(op.getTarget().getType())) {
        miss(op, "the copy has no rank");
        continue;
      }
      OpBuilder b(op);
      linalg::CopyOp::create(b, op.getLoc(), op.getSource(), op.getTarget());
      op.erase();
    }
  }

  void rewrite(linalg::LinalgOp op) {
    if (!op.hasPureBufferSemantics())
      return miss(op, "the op is not on buffers");
    std::string reason;
    std::optional<LanePlan> plan = planLanes(op, reason);
    if (!plan)
      miss(op, reason + "; loops of scalars instead");
    NestEmitter(op, std::move(plan)).emit();
    op->erase();
  }
};

} // namespace
