//===- RaiseFFNBuilder.cpp - From IR to formulas --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RaiseFFN.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stem::raise;

using Kind = Expr::Kind;

static std::string opName(Operation *op) {
  return op->getName().getStringRef().str();
}

void ExprBuilder::noteType(const Expr *e, Type type) {
  if (e->hasProduct && isa<FloatType>(type) && !llvm::is_contained(types, type))
    types.push_back(type);
}

const Expr *ExprBuilder::build(Value value) {
  if (const Expr *known = memo.lookup(value))
    return known;
  Operation *op = value.getDefiningOp();
  if (!op)
    return memo[value] = pool.opaque(value, "an argument");
  if (budget == 0)
    return pool.opaque(value, "too many ops");
  --budget;
  const Expr *result = buildOp(op, value);
  if (result->hasProduct && !llvm::is_contained(dependents, op) &&
      isa<RankedTensorType>(value.getType())) {
    dependents.push_back(op);
    noteType(result, getElementTypeOrSelf(value.getType()));
  }
  return memo[value] = result;
}

const Expr *ExprBuilder::buildOp(Operation *op, Value value) {
  FloatAttr number;
  DenseFPElementsAttr elements;
  if (matchPattern(value, m_Constant(&number)))
    return pool.constant(number.getValueAsDouble());
  if (matchPattern(value, m_Constant(&elements)) && elements.isSplat())
    return pool.constant(
        elements.getSplatValue<FloatAttr>().getValueAsDouble());
  if (std::optional<Product> product = analyzeProduct(op)) {
    Value init = product->init;
    products.emplace(op, std::move(*product));
    const Expr *result = pool.product(value);
    return init ? pool.add(result, build(init)) : result;
  }
  if (Value source = getReshapeSource(op)) {
    const Expr *e = build(source);
    auto from = cast<RankedTensorType>(source.getType());
    auto to = cast<RankedTensorType>(value.getType());
    if (e->is(Kind::Constant) ||
        (from.getRank() > 0 && to.getRank() > 0 &&
         from.getShape().back() == to.getShape().back()))
      return e;
    return e->hasProduct
               ? pool.other(opName(op) + ", which changes the last dimension",
                            {e})
               : pool.opaque(value, opName(op));
  }
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return buildLinalg(linalgOp, value);
  if (op->getName().getDialectNamespace() == "tosa")
    return buildTosa(op);
  if (op->getNumResults() == 1 && op->getNumRegions() == 0 &&
      OpTrait::hasElementwiseMappableTraits(op)) {
    SmallVector<const Expr *> operands;
    for (Value operand : op->getOperands())
      operands.push_back(build(operand));
    return buildScalarOp(op, operands);
  }
  return pool.opaque(value, opName(op));
}

const Expr *ExprBuilder::buildScalarOp(Operation *op,
                                       ArrayRef<const Expr *> operands) {
  const Expr *result =
      llvm::TypeSwitch<Operation *, const Expr *>(op)
          .Case([&](arith::NegFOp) { return pool.neg(operands[0]); })
          .Case(
              [&](arith::AddFOp) { return pool.add(operands[0], operands[1]); })
          .Case([&](arith::SubFOp) {
            return pool.add(operands[0], pool.neg(operands[1]));
          })
          .Case(
              [&](arith::MulFOp) { return pool.mul(operands[0], operands[1]); })
          .Case(
              [&](arith::DivFOp) { return pool.div(operands[0], operands[1]); })
          .Case([&](math::ExpOp) { return pool.exp(operands[0]); })
          // Roundings are judged by their types.
          .Case<arith::ExtFOp, arith::TruncFOp>(
              [&](Operation *) { return operands[0]; })
          .Default([&](Operation *other) {
            return pool.other(opName(other), operands);
          });
  noteType(result, getElementTypeOrSelf(op->getResult(0).getType()));
  return result;
}

const Expr *
ExprBuilder::buildBody(Value scalar,
                       llvm::DenseMap<Value, const Expr *> &bodyValues) {
  if (const Expr *known = bodyValues.lookup(scalar))
    return known;
  FloatAttr number;
  if (matchPattern(scalar, m_Constant(&number)))
    return pool.constant(number.getValueAsDouble());
  Operation *op = scalar.getDefiningOp();
  if (!op || op->getNumRegions() != 0 || op->getNumResults() != 1 ||
      budget == 0)
    return pool.opaque(scalar, op ? opName(op) : "an argument");
  --budget;
  SmallVector<const Expr *> operands;
  for (Value operand : op->getOperands())
    operands.push_back(buildBody(operand, bodyValues));
  return bodyValues[scalar] = buildScalarOp(op, operands);
}

const Expr *ExprBuilder::buildLinalg(linalg::LinalgOp op, Value value) {
  if (!op.hasPureTensorSemantics() ||
      op.getNumLoops() != op.getNumParallelLoops() || op.getNumDpsInits() == 0)
    return pool.opaque(value, opName(op));
  AffineMap initMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  for (OpOperand &init : op.getDpsInitsMutable())
    if (op.getMatchingIndexingMap(&init) != initMap || !initMap.isPermutation())
      return pool.opaque(value, opName(op));
  Block *body = op.getBlock();
  llvm::DenseMap<Value, const Expr *> bodyValues;
  // linalg.map has no body argument for its init.
  for (auto [argument, operand] :
       llvm::zip(body->getArguments(), op->getOpOperands()))
    if (!argument.use_empty())
      bodyValues[argument] = buildLinalgOperand(op, operand);
  auto result = cast<OpResult>(value);
  return buildBody(body->getTerminator()->getOperand(result.getResultNumber()),
                   bodyValues);
}

namespace {
/// How an operand of an elementwise op is read.
enum class Access { Pointwise, Scalar, LastDim, Irregular };
} // namespace

static Access classify(linalg::LinalgOp op, OpOperand &operand) {
  AffineMap map = op.getMatchingIndexingMap(&operand);
  AffineMap out = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  ArrayRef<int64_t> sizes =
      cast<RankedTensorType>(op.getDpsInitOperand(0)->get().getType())
          .getShape();
  auto isZero = [](AffineExpr e) {
    auto number = dyn_cast<AffineConstantExpr>(e);
    return number && number.getValue() == 0;
  };
  bool pointwise = map.getNumResults() == out.getNumResults();
  for (unsigned i = 0; pointwise && i < map.getNumResults(); ++i)
    pointwise = map.getResult(i) == out.getResult(i) ||
                (isZero(map.getResult(i)) && sizes[i] == 1);
  if (pointwise)
    return Access::Pointwise;
  if (llvm::all_of(map.getResults(), isZero))
    return Access::Scalar;
  if (map.getResults().back() == out.getResults().back() &&
      llvm::all_of(map.getResults().drop_back(), isZero))
    return Access::LastDim;
  return Access::Irregular;
}

const Expr *ExprBuilder::asBias(const Expr *e, Value value) {
  return e->is(Kind::Constant) || e->is(Kind::Bias) ? e : pool.bias(value);
}

const Expr *ExprBuilder::asUnitRowBias(const Expr *e, Value value) {
  // With one token a bias and a row of activations have the same shape. Only
  // what is known to be a weight is read as a bias.
  if (!e->is(Kind::Opaque))
    return e;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() == 0 ||
      llvm::any_of(type.getShape().drop_back(),
                   [](int64_t size) { return size != 1; }))
    return e;
  Value root = value;
  for (unsigned step = 0; step < kMaxChain && root.getDefiningOp(); ++step) {
    Value source = getReshapeSource(root.getDefiningOp());
    if (!source)
      break;
    root = source;
  }
  Operation *op = root.getDefiningOp();
  if (op && (op->hasTrait<OpTrait::ConstantLike>() || isa<ParamLoadOp>(op)))
    return pool.bias(value);
  return e;
}

const Expr *ExprBuilder::buildLinalgOperand(linalg::LinalgOp op,
                                            OpOperand &operand) {
  Value value = operand.get();
  const Expr *e = build(value);
  if (!isa<RankedTensorType>(value.getType()) || e->is(Kind::Constant))
    return e;
  switch (classify(op, operand)) {
  case Access::Pointwise:
    return asUnitRowBias(e, value);
  case Access::LastDim:
    return asBias(e, value);
  case Access::Scalar:
    return pool.opaque(value, "a value that is not constant");
  case Access::Irregular:
    break;
  }
  return e->hasProduct
             ? pool.other(opName(op) + ", which permutes or repeats elements",
                          {e})
             : pool.opaque(value, opName(op));
}

const Expr *ExprBuilder::buildTosaOperand(Operation *op, Value operand) {
  const Expr *e = build(operand);
  auto type = dyn_cast<RankedTensorType>(operand.getType());
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type || !result || type.getRank() != result.getRank())
    return pool.opaque(operand, opName(op));
  if (e->is(Kind::Constant))
    return e;
  if (type.getShape() == result.getShape())
    return asUnitRowBias(e, operand);
  if (type.getRank() > 0 &&
      type.getShape().back() == result.getShape().back() &&
      llvm::all_of(type.getShape().drop_back(),
                   [](int64_t size) { return size == 1; }))
    return asBias(e, operand);
  return e->hasProduct
             ? pool.other(opName(op) + ", which repeats elements", {e})
             : pool.opaque(operand, opName(op));
}

const Expr *ExprBuilder::buildTosa(Operation *op) {
  if (!isa<RankedTensorType>(op->getResult(0).getType()) ||
      !isa<FloatType>(getElementTypeOrSelf(op->getResult(0).getType())))
    return pool.opaque(op->getResult(0), opName(op));
  auto operand = [&](unsigned index) {
    return buildTosaOperand(op, op->getOperand(index));
  };
  auto allOperands = [&] {
    SmallVector<const Expr *> operands;
    for (Value value : op->getOperands())
      operands.push_back(build(value));
    return operands;
  };
  return llvm::TypeSwitch<Operation *, const Expr *>(op)
      .Case([&](tosa::SigmoidOp) { return pool.sigmoid(operand(0)); })
      .Case([&](tosa::ExpOp) { return pool.exp(operand(0)); })
      .Case([&](tosa::ReciprocalOp) {
        return pool.div(pool.constant(1), operand(0));
      })
      .Case([&](tosa::AddOp) { return pool.add(operand(0), operand(1)); })
      .Case([&](tosa::SubOp) {
        return pool.add(operand(0), pool.neg(operand(1)));
      })
      .Case([&](tosa::MulOp) { return pool.mul(operand(0), operand(1)); })
      .Case([&](tosa::NegateOp negate) {
        if (!build(negate.getInput1Zp())->isConstant(0) ||
            !build(negate.getOutputZp())->isConstant(0))
          return pool.other("tosa.negate with a zero point", {operand(0)});
        return pool.neg(operand(0));
      })
      .Case([&](tosa::CastOp cast) {
        return isa<FloatType>(getElementTypeOrSelf(cast.getInput().getType()))
                   ? operand(0)
                   : pool.opaque(cast.getOutput(), opName(op));
      })
      .Default(
          [&](Operation *) { return pool.other(opName(op), allOperands()); });
}
