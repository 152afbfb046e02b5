//===- ScalarOps.cpp - Elementwise ops and constants ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"
#include "OpTable.h"

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

using Functions = OpTable<ScalarFunction>;

static Functions arithFunctions() {
  return Functions()
      .add<arith::AddFOp>(binary([](Real a, Real b) { return a + b; }))
      .add<arith::SubFOp>(binary([](Real a, Real b) { return a - b; }))
      .add<arith::MulFOp>(binary([](Real a, Real b) { return a * b; }))
      .add<arith::DivFOp>(binary([](Real a, Real b) { return a / b; }))
      .add<arith::RemFOp>(binary(std::fmod))
      .add<arith::NegFOp>(unary([](Real a) { return -a; }))
      .add<arith::MaximumFOp>(binary(maxPropagating))
      .add<arith::MinimumFOp>(binary(minPropagating))
      .add<arith::MaxNumFOp>(binary(std::fmax))
      .add<arith::MinNumFOp>(binary(std::fmin))
      .add<arith::ExtFOp, arith::TruncFOp>(unary([](Real a) { return a; }))
      .add<arith::SelectOp>(
          [](Reals x) -> Result { return x[0] != 0.0 ? x[1] : x[2]; });
}

static Functions mathFunctions() {
  return Functions()
      .add<math::ExpOp>(unary(std::exp))
      .add<math::Exp2Op>(unary(std::exp2))
      .add<math::ExpM1Op>(unary(std::expm1))
      .add<math::LogOp>(unary(std::log))
      .add<math::Log2Op>(unary(std::log2))
      .add<math::Log1pOp>(unary(std::log1p))
      .add<math::SinOp>(unary(std::sin))
      .add<math::CosOp>(unary(std::cos))
      .add<math::TanhOp>(unary(std::tanh))
      .add<math::ErfOp>(unary(std::erf))
      .add<math::SqrtOp>(unary(std::sqrt))
      .add<math::RsqrtOp>(unary([](Real a) { return 1.0 / std::sqrt(a); }))
      .add<math::AbsFOp>(unary(std::fabs))
      .add<math::FloorOp>(unary(std::floor))
      .add<math::CeilOp>(unary(std::ceil))
      .add<math::RoundOp>(unary(std::round))
      .add<math::RoundEvenOp>(unary(std::nearbyint))
      .add<math::PowFOp>(binary(std::pow))
      .add<math::CopySignOp>(binary(std::copysign))
      .add<math::FmaOp>([](Reals x) -> Result { return x[0] * x[1] + x[2]; });
}

static std::optional<ScalarFunction> makeComparison(Operation *op) {
  using Optional = std::optional<ScalarFunction>;
  return TypeSwitch<Operation *, Optional>(op)
      .Case([](arith::CmpFOp cmp) {
        return [predicate = cmp.getPredicate()](Reals x) -> Result {
          return compareFloats(predicate, x[0], x[1]);
        };
      })
      .Case([](arith::CmpIOp cmp) {
        return [width = widthOf(cmp.getLhs().getType()),
                predicate = cmp.getPredicate()](Reals x) -> Result {
          return compareIntegers(predicate, width, x[0], x[1]);
        };
      })
      .Case([](index::CmpOp cmp) {
        return [width = widthOf(cmp.getLhs().getType()),
                predicate = toArith(cmp.getPred())](Reals x) -> Result {
          return compareIntegers(predicate, width, x[0], x[1]);
        };
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

using UnsignedFunctions = OpTable<OptionalU (*)(U, U)>;
using SignedFunctions = OpTable<OptionalS (*)(S, S)>;

static UnsignedFunctions unsignedFunctions() {
  return UnsignedFunctions()
      .add<arith::AddIOp, index::AddOp>(addBits)
      .add<arith::SubIOp, index::SubOp>(subtractBits)
      .add<arith::MulIOp, index::MulOp>(multiplyBits)
      .add<arith::DivUIOp, index::DivUOp>(divideUnsigned)
      .add<arith::RemUIOp, index::RemUOp>(remainderUnsigned)
      .add<arith::CeilDivUIOp, index::CeilDivUOp>(divideCeilUnsigned)
      .add<arith::AndIOp, index::AndOp>(andBits)
      .add<arith::OrIOp, index::OrOp>(orBits)
      .add<arith::XOrIOp, index::XOrOp>(xorBits)
      .add<arith::ShLIOp, index::ShlOp>(shiftLeft)
      .add<arith::ShRUIOp, index::ShrUOp>(shiftRight)
      .add<arith::MinUIOp, index::MinUOp>(minUnsigned)
      .add<arith::MaxUIOp, index::MaxUOp>(maxUnsigned);
}

static SignedFunctions signedFunctions() {
  return SignedFunctions()
      .add<arith::DivSIOp, index::DivSOp>(divideSigned)
      .add<arith::RemSIOp, index::RemSOp>(remainderSigned)
      .add<arith::CeilDivSIOp, index::CeilDivSOp>(divideCeil)
      .add<arith::FloorDivSIOp, index::FloorDivSOp>(divideFloor)
      .add<arith::ShRSIOp, index::ShrSOp>(shiftRightSigned)
      .add<arith::MinSIOp, index::MinSOp>(minSigned)
      .add<arith::MaxSIOp, index::MaxSOp>(maxSigned);
}

static std::optional<ScalarFunction> makeIntegerFunction(Operation *op) {
  static const UnsignedFunctions onBits = unsignedFunctions();
  static const SignedFunctions onNumbers = signedFunctions();
  if (auto *function = onBits.find(op))
    return onUnsigned(widthOf(op->getOperand(0).getType()), *function);
  if (auto *function = onNumbers.find(op))
    return onSigned(widthOf(op->getOperand(0).getType()), *function);
  return std::nullopt;
}

std::optional<ScalarFunction> reference::makeScalarFunction(Operation *op) {
  static const Functions onFloats[] = {arithFunctions(), mathFunctions()};
  for (const Functions &functions : onFloats)
    if (auto *function = functions.find(op))
      return *function;
  for (auto *make : {makeComparison, makeConversion, makeIntegerFunction})
    if (auto function = make(op))
      return function;
  return std::nullopt;
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
