//===- VectorizeLanes.cpp - How 16 iterations become lanes ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VectorizeLanes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace stem;

namespace {

/// Element types whose vectors lie in memory as their scalars do. A vector of
/// i1 does not: it is packed.
bool isStoredType(Type type) {
  return type.isIndex() || (type.isIntOrFloat() &&
                            llvm::is_contained({8u, 16u, 32u, 64u},
                                               type.getIntOrFloatBitWidth()));
}

class LaneAnalysis {
public:
  LaneAnalysis(linalg::LinalgOp op, unsigned dim, std::string &reason)
      : op(op), reason(reason) {
    plan.dim = dim;
    plan.isReduction =
        op.getIteratorTypesArray()[dim] == utils::IteratorType::reduction;
  }

  std::optional<LanePlan> run() {
    if (failed(visit()))
      return std::nullopt;
    return std::move(plan);
  }

private:
  LogicalResult visit() {
    int64_t size = op.getStaticLoopRanges()[plan.dim];
    if (ShapedType::isStatic(size) && size < kVectorLanes)
      return refuse("the loop has fewer than 16 iterations");
    if (plan.isReduction && failed(matchCombiners()))
      return failure();
    for (OpOperand &operand : op->getOpOperands())
      if (failed(visitOperand(operand)))
        return failure();
    for (Operation &bodyOp : op.getBlock()->without_terminator())
      if (failed(visitBodyOp(bodyOp)))
        return failure();
    return success();
  }

  LogicalResult refuse(const Twine &why) {
    reason = why.str();
    return failure();
  }

  /// Each output must be `combine(accumulator, x)`, where nothing else reads
  /// the accumulator and nothing but the yield reads the result.
  LogicalResult matchCombiners() {
    Operation *yield = op.getBlock()->getTerminator();
    for (auto [argument, value] :
         llvm::zip_equal(op.getRegionOutputArgs(), yield->getOperands())) {
      Operation *combiner = value.getDefiningOp();
      if (!combiner || combiner->getBlock() != op.getBlock() ||
          !combiner->hasOneUse() || !argument.hasOneUse() ||
          *argument.user_begin() != combiner)
        return refuse("an output of the reduction is not one combining op");
      bool isFma =
          isa<math::FmaOp>(combiner) && combiner->getOperand(2) == argument;
      if (!isFma && (combiner->getNumOperands() != 2 ||
                     !arith::getNeutralElement(combiner)))
        return refuse("'" + combiner->getName().getStringRef() +
                      "' is not a known reduction");
      plan.combiners.push_back(combiner);
    }
    return success();
  }

  /// The address of an operand moves by one element per iteration, or not at
  /// all; an output's must move unless it is reduced.
  LogicalResult visitOperand(OpOperand &operand) {
    Value argument = op.getMatchingBlockArgument(&operand);
    auto type = dyn_cast<MemRefType>(operand.get().getType());
    if (!type) // a scalar input
      return success();
    bool isOutput = op.isDpsInit(&operand);
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (!map.isFunctionOfDim(plan.dim)) {
      if (isOutput && !plan.isReduction)
        return refuse("an output does not depend on the loop");
      if (isOutput)
        plan.lanes[argument] = Lanes::Varying;
      return success();
    }
    if (isOutput && plan.isReduction)
      return refuse("an output depends on the reduced loop");
    if (!movesByOne(map) || !type.isLastDimUnitStride())
      return refuse(
          llvm::formatv("operand {0} is not contiguous along the loop",
                        operand.getOperandNumber()));
    if (!isStoredType(type.getElementType()))
      return refuse(llvm::formatv("operand {0} has elements of type {1}",
                                  operand.getOperandNumber(),
                                  type.getElementType()));
    plan.lanes[argument] = Lanes::Varying;
    return success();
  }

  bool movesByOne(AffineMap map) const {
    AffineExpr last = map.getResults().back();
    AffineExpr rest =
        simplifyAffineExpr(last - getAffineDimExpr(plan.dim, map.getContext()),
                           map.getNumDims(), map.getNumSymbols());
    return !rest.isFunctionOfDim(plan.dim) &&
           llvm::none_of(map.getResults().drop_back(), [&](AffineExpr expr) {
             return expr.isFunctionOfDim(plan.dim);
           });
  }

  LogicalResult visitBodyOp(Operation &bodyOp) {
    if (auto index = dyn_cast<linalg::IndexOp>(bodyOp)) {
      if (index.getDim() == plan.dim)
        plan.lanes[index] = Lanes::Contiguous;
      return success();
    }
    if (bodyOp.getNumRegions() != 0)
      return refuse("'" + bodyOp.getName().getStringRef() +
                    "' in the body has a region");
    if (auto load = dyn_cast<memref::LoadOp>(bodyOp))
      return visitLoad(load);
    if (!isMemoryEffectFree(&bodyOp))
      return refuse("'" + bodyOp.getName().getStringRef() +
                    "' in the body has side effects");
    if (llvm::all_of(bodyOp.getOperands(), [&](Value operand) {
          return plan.lookup(operand) == Lanes::Uniform;
        }))
      return success();
    if (isOffsetOfContiguous(bodyOp)) {
      plan.lanes[bodyOp.getResult(0)] = Lanes::Contiguous;
      return success();
    }
    if (!OpTrait::hasElementwiseMappableTraits(&bodyOp))
      return refuse("'" + bodyOp.getName().getStringRef() +
                    "' in the body has no vector form");
    for (Value value :
         llvm::concat<Value>(llvm::to_vector(bodyOp.getOperands()),
                             llvm::to_vector_of<Value>(bodyOp.getResults())))
      if (!VectorType::isValidElementType(value.getType()))
        return refuse(
            llvm::formatv("the body computes with {0}", value.getType()));
    for (Value result : bodyOp.getResults())
      plan.lanes[result] = Lanes::Varying;
    return success();
  }

  LogicalResult visitLoad(memref::LoadOp load) {
    auto isUniform = [&](Value index) {
      return plan.lookup(index) == Lanes::Uniform;
    };
    if (llvm::all_of(load.getIndices(), isUniform))
      return success();
    if (plan.lookup(load.getIndices().back()) != Lanes::Contiguous ||
        !llvm::all_of(load.getIndices().drop_back(), isUniform) ||
        !load.getMemRefType().isLastDimUnitStride() ||
        !isStoredType(load.getMemRefType().getElementType()))
      return refuse("a load in the body is not contiguous along the loop");
    plan.lanes[load] = Lanes::Varying;
    return success();
  }

  /// `contiguous + uniform` and `contiguous - uniform`.
  bool isOffsetOfContiguous(Operation &bodyOp) const {
    if (!isa<arith::AddIOp, arith::SubIOp>(bodyOp))
      return false;
    Lanes lhs = plan.lookup(bodyOp.getOperand(0));
    Lanes rhs = plan.lookup(bodyOp.getOperand(1));
    return (lhs == Lanes::Contiguous && rhs == Lanes::Uniform) ||
           (isa<arith::AddIOp>(bodyOp) && lhs == Lanes::Uniform &&
            rhs == Lanes::Contiguous);
  }

  linalg::LinalgOp op;
  std::string &reason;
  LanePlan plan;
};

} // namespace

std::optional<LanePlan> stem::planLanes(linalg::LinalgOp op,
                                        std::string &reason) {
  unsigned numLoops = op.getNumLoops();
  if (numLoops == 0) {
    reason = "the op has no loop";
    return std::nullopt;
  }
  if (auto plan = LaneAnalysis(op, numLoops - 1, reason).run())
    return plan;
  // A parallel loop may move to the innermost place: every output element
  // still sees its reduced iterations in the same order.
  for (unsigned dim = numLoops - 1; dim-- > 0;) {
    std::string ignored;
    if (op.getIteratorTypesArray()[dim] != utils::IteratorType::parallel)
      continue;
    if (auto plan = LaneAnalysis(op, dim, ignored).run())
      return plan;
  }
  return std::nullopt;
}
