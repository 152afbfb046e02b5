//===- OpCosts.cpp - What ops of a phase cost -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpCosts.h"

#include "stem/Dialect/Stem/Count.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/CastInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace stem;

/// Arithmetic on floats; constants, casts and choices are none.
static bool isFloatArithmetic(Operation &op) {
  return isa_and_present<arith::ArithDialect, math::MathDialect>(
             op.getDialect()) &&
         !isa<CastOpInterface, arith::SelectOp>(op) &&
         !op.hasTrait<OpTrait::ConstantLike>() &&
         isa<FloatType>(op.getResult(0).getType());
}

/// An index is a machine word.
static int64_t elementBytes(Type type) {
  return type.isIntOrFloat() ? llvm::divideCeil(type.getIntOrFloatBitWidth(), 8)
                             : 8;
}

/// The body once for each point of the iteration space; operands are read
/// once, except those from which the body picks elements itself.
static OpCost linalgCost(linalg::LinalgOp op, int64_t tokens) {
  Count points = 1;
  for (int64_t size : op.getStaticLoopRanges())
    points *= ShapedType::isDynamic(size) ? tokens : size;
  Count flops, bytes;
  for (Operation &inner : *op.getBlock()) {
    if (isFloatArithmetic(inner))
      flops += points;
    if (isa<tensor::ExtractOp, memref::LoadOp>(inner))
      bytes += points * elementBytes(inner.getResult(0).getType());
  }
  for (OpOperand *input : op.getDpsInputOperands())
    bytes += countBytes(input->get().getType(), tokens);
  for (OpOperand &init : op.getDpsInitsMutable())
    bytes += Count(countBytes(init.get().getType(), tokens)) *
             (op.payloadUsesValueFromOperand(&init) ? 2 : 1);
  return {flops.get(), bytes.get(), 0};
}

std::optional<OpCost> stem::getOpCost(Operation *op, int64_t tokens) {
  if (auto costed = dyn_cast<CostOpInterface>(op))
    return costed.getCost(tokens);
  if (auto structured = dyn_cast<linalg::LinalgOp>(op))
    return linalgCost(structured, tokens);
  return std::nullopt;
}

static std::optional<int64_t>
evaluateDim(Value source, std::optional<int64_t> index, int64_t tokens) {
  auto type = cast<ShapedType>(source.getType());
  if (!index || *index < 0 || !type.hasRank() || *index >= type.getRank())
    return std::nullopt;
  int64_t size = type.getDimSize(*index);
  return ShapedType::isDynamic(size) ? tokens : size;
}

std::optional<int64_t> stem::evaluateIndex(OpFoldResult value, int64_t tokens,
                                           int depth) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return constant;
  Operation *op = cast<Value>(value).getDefiningOp();
  if (auto dim = dyn_cast_or_null<tensor::DimOp>(op))
    return evaluateDim(dim.getSource(), dim.getConstantIndex(), tokens);
  if (auto dim = dyn_cast_or_null<memref::DimOp>(op))
    return evaluateDim(dim.getSource(), dim.getConstantIndex(), tokens);
  if (!op || depth == 0 || op->getNumOperands() != 2 ||
      !isa<arith::ArithDialect>(op->getDialect()))
    return std::nullopt;
  auto a = evaluateIndex(op->getOperand(0), tokens, depth - 1);
  auto b = evaluateIndex(op->getOperand(1), tokens, depth - 1);
  if (!a || !b)
    return std::nullopt;
  int64_t result;
  if (isa<arith::AddIOp>(op))
    return llvm::AddOverflow(*a, *b, result) ? std::nullopt
                                             : std::optional(result);
  if (isa<arith::SubIOp>(op))
    return llvm::SubOverflow(*a, *b, result) ? std::nullopt
                                             : std::optional(result);
  if (isa<arith::MulIOp>(op))
    return llvm::MulOverflow(*a, *b, result) ? std::nullopt
                                             : std::optional(result);
  if (isa<arith::MinSIOp, arith::MinUIOp>(op))
    return std::min(*a, *b);
  if (isa<arith::MaxSIOp, arith::MaxUIOp>(op))
    return std::max(*a, *b);
  if (*a < 0 || *b < 1)
    return std::nullopt;
  // Rounded up: a tile that is not full costs what a full one does.
  if (isa<arith::DivUIOp, arith::DivSIOp, arith::CeilDivUIOp,
          arith::CeilDivSIOp>(op))
    return llvm::divideCeil(*a, *b);
  return std::nullopt;
}

int64_t stem::countRounds(Operation *op, int64_t tokens) {
  Count rounds = 1;
  for (auto loop = op->getParentOfType<LoopLikeOpInterface>(); loop;
       loop = loop->getParentOfType<LoopLikeOpInterface>()) {
    auto lower = loop.getLoopLowerBounds(), upper = loop.getLoopUpperBounds(),
         steps = loop.getLoopSteps();
    if (!lower || !upper || !steps)
      continue;
    for (auto [from, to, step] : llvm::zip_equal(*lower, *upper, *steps)) {
      auto first = evaluateIndex(from, tokens);
      auto last = evaluateIndex(to, tokens);
      auto width = evaluateIndex(step, tokens);
      int64_t length;
      if (!first || !last || !width || *width <= 0)
        continue;
      if (llvm::SubOverflow(*last, *first, length))
        length = Count::kTooMany;
      rounds *= llvm::divideCeil(std::max<int64_t>(length, 0), *width);
    }
  }
  return rounds.get();
}
