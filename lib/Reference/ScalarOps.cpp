//===- ScalarOps.cpp - Elementwise ops and constants ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Index/IR/IndexOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

//===----------------------------------------------------------------------===//
// Integers of a width
//===----------------------------------------------------------------------===//

static unsigned widthOf(Type type) {
  type = getElementTypeOrSelf(type);
  return type.isIndex() ? 64
                        : std::clamp(type.getIntOrFloatBitWidth(), 1u, 64u);
}

/// Wraps to `width` bits, signed; one bit is 0 or 1.
static double wrap(uint64_t value, unsigned width) {
  if (width == 1)
    return value & 1;
  return static_cast<double>(llvm::SignExtend64(value, width));
}

static uint64_t asUnsigned(double value, unsigned width) {
  return static_cast<uint64_t>(toInteger(value)) &
         llvm::maskTrailingOnes<uint64_t>(width);
}

/// One bit is -1 or 0 when it is read as signed.
static int64_t asSigned(double value, unsigned width) {
  return llvm::SignExtend64(static_cast<uint64_t>(toInteger(value)), width);
}

using Real = double;
using Reals = ArrayRef<double>;
using Result = std::optional<double>;

static ScalarFunction unary(Real (*function)(Real)) {
  return [function](Reals x) -> Result { return function(x[0]); };
}
static ScalarFunction binary(Real (*function)(Real, Real)) {
  return [function](Reals x) -> Result { return function(x[0], x[1]); };
}

/// On the bits of two integers; nothing where the function gives nothing.
static ScalarFunction
onUnsigned(unsigned width,
           std::optional<uint64_t> (*function)(uint64_t, uint64_t)) {
  return [=](Reals x) -> Result {
    auto bits = function(asUnsigned(x[0], width), asUnsigned(x[1], width));
    return bits ? Result(wrap(*bits, width)) : std::nullopt;
  };
}
static ScalarFunction
onSigned(unsigned width, std::optional<int64_t> (*function)(int64_t, int64_t)) {
  return [=](Reals x) -> Result {
    auto value = function(asSigned(x[0], width), asSigned(x[1], width));
    return value ? Result(wrap(static_cast<uint64_t>(*value), width))
                 : std::nullopt;
  };
}

using U = uint64_t;
using S = int64_t;
using OptionalU = std::optional<uint64_t>;
using OptionalS = std::optional<int64_t>;

static bool dividesBadly(S a, S b) {
  return b == 0 || (a == std::numeric_limits<S>::min() && b == -1);
}
static OptionalS divideSigned(S a, S b) {
  return dividesBadly(a, b) ? OptionalS() : a / b;
}
static OptionalS remainderSigned(S a, S b) {
  return dividesBadly(a, b) ? OptionalS() : a % b;
}
static OptionalS divideFloor(S a, S b) {
  return dividesBadly(a, b) ? OptionalS() : llvm::divideFloorSigned(a, b);
}
static OptionalS divideCeil(S a, S b) {
  return dividesBadly(a, b) ? OptionalS() : llvm::divideCeilSigned(a, b);
}
static OptionalU divideUnsigned(U a, U b) {
  return b == 0 ? OptionalU() : a / b;
}
static OptionalU remainderUnsigned(U a, U b) {
  return b == 0 ? OptionalU() : a % b;
}
static OptionalU divideCeilUnsigned(U a, U b) {
  return b == 0 ? OptionalU() : a / b + (a % b != 0);
}
static OptionalU addBits(U a, U b) { return a + b; }
static OptionalU subtractBits(U a, U b) { return a - b; }
static OptionalU multiplyBits(U a, U b) { return a * b; }
static OptionalU andBits(U a, U b) { return a & b; }
static OptionalU orBits(U a, U b) { return a | b; }
static OptionalU xorBits(U a, U b) { return a ^ b; }
static OptionalU shiftLeft(U a, U b) { return b > 63 ? OptionalU() : a << b; }
static OptionalU shiftRight(U a, U b) { return b > 63 ? OptionalU() : a >> b; }
static OptionalS shiftRightSigned(S a, S b) {
  return b < 0 || b > 63 ? OptionalS() : a >> b;
}
static OptionalU minUnsigned(U a, U b) { return std::min(a, b); }
static OptionalU maxUnsigned(U a, U b) { return std::max(a, b); }
static OptionalS minSigned(S a, S b) { return std::min(a, b); }
static OptionalS maxSigned(S a, S b) { return std::max(a, b); }

static Real minPropagating(Real a, Real b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
}
static Real maxPropagating(Real a, Real b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
}

//===----------------------------------------------------------------------===//
// Comparisons and conversions
//===----------------------------------------------------------------------===//

static bool compareFloats(arith::CmpFPredicate predicate, Real a, Real b) {
  using P = arith::CmpFPredicate;
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) {
  case P::AlwaysFalse:
    return false;
  case P::OEQ:
    return !unordered && a == b;
  case P::OGT:
    return !unordered && a > b;
  case P::OGE:
    return !unordered && a >= b;
  case P::OLT:
    return !unordered && a < b;
  case P::OLE:
    return !unordered && a <= b;
  case P::ONE:
    return !unordered && a != b;
  case P::ORD:
    return !unordered;
  case P::UEQ:
    return unordered || a == b;
  case P::UGT:
    return unordered || a > b;
  case P::UGE:
    return unordered || a >= b;
  case P::ULT:
    return unordered || a < b;
  case P::ULE:
    return unordered || a <= b;
  case P::UNE:
    return unordered || a != b;
  case P::UNO:
    return unordered;
  case P::AlwaysTrue:
    return true;
  }
  return false;
}

static bool compareIntegers(arith::CmpIPredicate predicate, unsigned width,
                            Real x, Real y) {
  using P = arith::CmpIPredicate;
  int64_t a = asSigned(x, width), b = asSigned(y, width);
  uint64_t ua = asUnsigned(x, width), ub = asUnsigned(y, width);
  switch (predicate) {
  case P::eq:
    return ua == ub;
  case P::ne:
    return ua != ub;
  case P::slt:
    return a < b;
  case P::sle:
    return a <= b;
  case P::sgt:
    return a > b;
  case P::sge:
    return a >= b;
  case P::ult:
    return ua < ub;
  case P::ule:
    return ua <= ub;
  case P::ugt:
    return ua > ub;
  case P::uge:
    return ua >= ub;
  }
  return false;
}

/// index.cmp has the predicates of arith.cmpi under other numbers.
static arith::CmpIPredicate toArith(index::IndexCmpPredicate predicate) {
  return *arith::symbolizeCmpIPredicate(
      index::stringifyIndexCmpPredicate(predicate));
}

static ScalarFunction convertSigned(Type from, Type to) {
  unsigned fromWidth = widthOf(from), toWidth = widthOf(to);
  return [=](Reals x) -> Result {
    return wrap(static_cast<uint64_t>(asSigned(x[0], fromWidth)), toWidth);
  };
}

static ScalarFunction convertUnsigned(Type from, Type to) {
  unsigned fromWidth = widthOf(from), toWidth = widthOf(to);
  return [=](Reals x) -> Result {
    return wrap(asUnsigned(x[0], fromWidth), toWidth);
  };
}

//===----------------------------------------------------------------------===//
// Functions of ops
//===----------------------------------------------------------------------===//

static std::optional<ScalarFunction> makeFloatFunction(Operation *op) {
  using Optional = std::optional<ScalarFunction>;
  return TypeSwitch<Operation *, Optional>(op)
      .Case<arith::AddFOp>(
          [](auto) { return binary([](Real a, Real b) { return a + b; }); })
      .Case<arith::SubFOp>(
          [](auto) { return binary([](Real a, Real b) { return a - b; }); })
      .Case<arith::MulFOp>(
          [](auto) { return binary([](Real a, Real b) { return a * b; }); })
      .Case<arith::DivFOp>(
          [](auto) { return binary([](Real a, Real b) { return a / b; }); })
      .Case<arith::RemFOp>([](auto) { return binary(std::fmod); })
      .Case<arith::NegFOp>(
          [](auto) { return unary([](Real a) { return -a; }); })
      .Case<arith::MaximumFOp>([](auto) { return binary(maxPropagating); })
      .Case<arith::MinimumFOp>([](auto) { return binary(minPropagating); })
      .Case<arith::MaxNumFOp>([](auto) { return binary(std::fmax); })
      .Case<arith::MinNumFOp>([](auto) { return binary(std::fmin); })
      .Case<arith::ExtFOp, arith::TruncFOp>(
          [](auto) { return unary([](Real a) { return a; }); })
      .Case<arith::CmpFOp>([](arith::CmpFOp cmp) {
        return [predicate = cmp.getPredicate()](Reals x) -> Result {
          return compareFloats(predicate, x[0], x[1]);
        };
      })
      .Case<math::ExpOp>([](auto) { return unary(std::exp); })
      .Case<math::Exp2Op>([](auto) { return unary(std::exp2); })
      .Case<math::ExpM1Op>([](auto) { return unary(std::expm1); })
      .Case<math::LogOp>([](auto) { return unary(std::log); })
      .Case<math::Log2Op>([](auto) { return unary(std::log2); })
      .Case<math::Log1pOp>([](auto) { return unary(std::log1p); })
      .Case<math::SinOp>([](auto) { return unary(std::sin); })
      .Case<math::CosOp>([](auto) { return unary(std::cos); })
      .Case<math::TanhOp>([](auto) { return unary(std::tanh); })
      .Case<math::ErfOp>([](auto) { return unary(std::erf); })
      .Case<math::SqrtOp>([](auto) { return unary(std::sqrt); })
      .Case<math::RsqrtOp>(
          [](auto) { return unary([](Real a) { return 1.0 / std::sqrt(a); }); })
      .Case<math::AbsFOp>([](auto) { return unary(std::fabs); })
      .Case<math::FloorOp>([](auto) { return unary(std::floor); })
      .Case<math::CeilOp>([](auto) { return unary(std::ceil); })
      .Case<math::RoundOp>([](auto) { return unary(std::round); })
      .Case<math::RoundEvenOp>([](auto) { return unary(std::nearbyint); })
      .Case<math::PowFOp>([](auto) { return binary(std::pow); })
      .Case<math::CopySignOp>([](auto) { return binary(std::copysign); })
      .Case<math::FmaOp>([](auto) {
        return [](Reals x) -> Result { return x[0] * x[1] + x[2]; };
      })
      .Default([](Operation *) { return std::nullopt; });
}

static std::optional<ScalarFunction> makeConversion(Operation *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return std::nullopt;
  Type from = op->getOperand(0).getType(), to = op->getResult(0).getType();
  using Optional = std::optional<ScalarFunction>;
  return TypeSwitch<Operation *, Optional>(op)
      .Case<arith::ExtSIOp, arith::IndexCastOp, index::CastSOp,
            arith::TruncIOp>([&](auto) { return convertSigned(from, to); })
      .Case<arith::ExtUIOp, arith::IndexCastUIOp, index::CastUOp>(
          [&](auto) { return convertUnsigned(from, to); })
      .Case<arith::SIToFPOp>([&](auto) {
        return [width = widthOf(from)](Reals x) -> Result {
          return static_cast<double>(asSigned(x[0], width));
        };
      })
      .Case<arith::UIToFPOp>([&](auto) {
        return [width = widthOf(from)](Reals x) -> Result {
          return static_cast<double>(asUnsigned(x[0], width));
        };
      })
      .Case<arith::FPToSIOp, arith::FPToUIOp>([&](auto) {
        return [width = widthOf(to)](Reals x) -> Result {
          return wrap(static_cast<uint64_t>(toInteger(x[0])), width);
        };
      })
      .Default([](Operation *) { return std::nullopt; });
}

static std::optional<ScalarFunction> makeIntegerFunction(Operation *op) {
  if (op->getNumOperands() == 0 ||
      !getElementTypeOrSelf(op->getOperand(0).getType()).isIntOrIndex())
    return std::nullopt;
  unsigned width = widthOf(op->getOperand(0).getType());
  using Optional = std::optional<ScalarFunction>;
  return TypeSwitch<Operation *, Optional>(op)
      .Case<arith::AddIOp, index::AddOp>(
          [&](auto) { return onUnsigned(width, addBits); })
      .Case<arith::SubIOp, index::SubOp>(
          [&](auto) { return onUnsigned(width, subtractBits); })
      .Case<arith::MulIOp, index::MulOp>(
          [&](auto) { return onUnsigned(width, multiplyBits); })
      .Case<arith::DivSIOp, index::DivSOp>(
          [&](auto) { return onSigned(width, divideSigned); })
      .Case<arith::DivUIOp, index::DivUOp>(
          [&](auto) { return onUnsigned(width, divideUnsigned); })
      .Case<arith::RemSIOp, index::RemSOp>(
          [&](auto) { return onSigned(width, remainderSigned); })
      .Case<arith::RemUIOp, index::RemUOp>(
          [&](auto) { return onUnsigned(width, remainderUnsigned); })
      .Case<arith::CeilDivSIOp, index::CeilDivSOp>(
          [&](auto) { return onSigned(width, divideCeil); })
      .Case<arith::CeilDivUIOp, index::CeilDivUOp>(
          [&](auto) { return onUnsigned(width, divideCeilUnsigned); })
      .Case<arith::FloorDivSIOp, index::FloorDivSOp>(
          [&](auto) { return onSigned(width, divideFloor); })
      .Case<arith::AndIOp, index::AndOp>(
          [&](auto) { return onUnsigned(width, andBits); })
      .Case<arith::OrIOp, index::OrOp>(
          [&](auto) { return onUnsigned(width, orBits); })
      .Case<arith::XOrIOp, index::XOrOp>(
          [&](auto) { return onUnsigned(width, xorBits); })
      .Case<arith::ShLIOp, index::ShlOp>(
          [&](auto) { return onUnsigned(width, shiftLeft); })
      .Case<arith::ShRUIOp, index::ShrUOp>(
          [&](auto) { return onUnsigned(width, shiftRight); })
      .Case<arith::ShRSIOp, index::ShrSOp>(
          [&](auto) { return onSigned(width, shiftRightSigned); })
      .Case<arith::MinSIOp, index::MinSOp>(
          [&](auto) { return onSigned(width, minSigned); })
      .Case<arith::MaxSIOp, index::MaxSOp>(
          [&](auto) { return onSigned(width, maxSigned); })
      .Case<arith::MinUIOp, index::MinUOp>(
          [&](auto) { return onUnsigned(width, minUnsigned); })
      .Case<arith::MaxUIOp, index::MaxUOp>(
          [&](auto) { return onUnsigned(width, maxUnsigned); })
      .Case<arith::CmpIOp>([&](arith::CmpIOp cmp) {
        return [width, predicate = cmp.getPredicate()](Reals x) -> Result {
          return compareIntegers(predicate, width, x[0], x[1]);
        };
      })
      .Case<index::CmpOp>([&](index::CmpOp cmp) {
        return [width, predicate = toArith(cmp.getPred())](Reals x) -> Result {
          return compareIntegers(predicate, width, x[0], x[1]);
        };
      })
      .Default([](Operation *) { return std::nullopt; });
}

std::optional<ScalarFunction> reference::makeScalarFunction(Operation *op) {
  if (isa<arith::SelectOp>(op))
    return [](Reals x) -> Result { return x[0] != 0.0 ? x[1] : x[2]; };
  if (auto function = makeFloatFunction(op))
    return function;
  if (auto function = makeConversion(op))
    return function;
  return makeIntegerFunction(op);
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

static LogicalResult failUndefined(Operation *op) {
  return op->emitError("the result is undefined: division by zero, overflow "
                       "or too large a shift");
}

/// Applies the function to each element; numbers go with every element.
static LogicalResult applyElementwise(Machine &machine, Operation *op,
                                      const ScalarFunction &function) {
  SmallVector<const ReferenceTensor *, 4> tensors;
  SmallVector<double, 4> inputs;
  const ReferenceTensor *first = nullptr;
  for (Value operand : op->getOperands()) {
    const ReferenceValue &value = machine.get(operand);
    tensors.push_back(value.tensor.get());
    inputs.push_back(value.number);
    if (!first)
      first = value.tensor.get();
    else if (value.tensor && value.tensor->shape != first->shape)
      return op->emitError("tensors of different shapes");
  }
  if (!first) {
    Result result = function(inputs);
    if (!result)
      return failUndefined(op);
    return machine.set(op, op->getResult(0), *result);
  }
  if (failed(machine.spend(op, first->size())))
    return failure();
  auto result = machine.allocate(op, first->shape);
  if (failed(result))
    return failure();
  for (int64_t i = 0, e = first->size(); i < e; ++i) {
    for (auto [input, tensor] : llvm::zip_equal(inputs, tensors))
      if (tensor)
        input = tensor->values[i];
    Result element = function(inputs);
    if (!element)
      return failUndefined(op);
    result->values[i] = *element;
  }
  return machine.set(op, op->getResult(0), std::move(*result));
}

static LogicalResult evaluateConstant(Machine &machine, Operation *op,
                                      Attribute value) {
  if (auto number = dyn_cast<FloatAttr>(value))
    return machine.set(op, op->getResult(0), number.getValueAsDouble());
  if (auto number = dyn_cast<IntegerAttr>(value)) {
    bool isBool = number.getType().isInteger(1);
    return machine.set(op, op->getResult(0),
                       isBool ? static_cast<double>(!number.getValue().isZero())
                              : number.getValue().roundToDouble(true));
  }
  auto elements = readElements(machine, op, value);
  if (failed(elements))
    return failure();
  return machine.set(op, op->getResult(0), std::move(*elements));
}

/// The results of an affine map on the operands of `op`.
static FailureOr<SmallVector<int64_t>> applyMap(Machine &machine, Operation *op,
                                                AffineMap map) {
  SmallVector<int64_t> inputs, results;
  for (Value operand : op->getOperands())
    inputs.push_back(machine.integer(operand));
  ArrayRef<int64_t> dims = ArrayRef(inputs).take_front(map.getNumDims());
  ArrayRef<int64_t> symbols = ArrayRef(inputs).drop_front(map.getNumDims());
  for (AffineExpr expr : map.getResults()) {
    auto value = evaluateAffine(expr, dims, symbols);
    if (!value)
      return failUndefined(op);
    results.push_back(*value);
  }
  return results;
}

static LogicalResult evaluateAffineOp(Machine &machine, Operation *op,
                                      AffineMap map, bool takeMax) {
  auto results = applyMap(machine, op, map);
  if (failed(results))
    return failure();
  if (results->empty())
    return op->emitError("the map has no results");
  int64_t value =
      takeMax ? *llvm::max_element(*results) : *llvm::min_element(*results);
  return machine.set(op, op->getResult(0), static_cast<double>(value));
}

Evaluated reference::evaluateScalarOp(Machine &machine, Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return evaluateConstant(machine, op, constant.getValue());
  if (auto constant = dyn_cast<index::ConstantOp>(op))
    return evaluateConstant(machine, op, constant.getValueAttr());
  if (auto constant = dyn_cast<index::BoolConstantOp>(op))
    return evaluateConstant(machine, op, constant.getValueAttr());
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op))
    return evaluateAffineOp(machine, op, apply.getAffineMap(), false);
  if (auto minimum = dyn_cast<affine::AffineMinOp>(op))
    return evaluateAffineOp(machine, op, minimum.getAffineMap(), false);
  if (auto maximum = dyn_cast<affine::AffineMaxOp>(op))
    return evaluateAffineOp(machine, op, maximum.getAffineMap(), true);
  if (op->getName().getDialectNamespace() == "tosa")
    return std::nullopt;
  if (const ScalarFunction *function = machine.scalarFunction(op))
    return applyElementwise(machine, op, *function);
  return std::nullopt;
}
