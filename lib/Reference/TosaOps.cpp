//===- TosaOps.cpp - What exporters write with TOSA -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"
#include "OpTable.h"
#include "Slices.h"

#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

using Reals = ArrayRef<double>;
using Result = std::optional<double>;

static ScalarFunction unary(double (*function)(double)) {
  return [function](Reals x) -> Result { return function(x[0]); };
}
static ScalarFunction binary(double (*function)(double, double)) {
  return [function](Reals x) -> Result { return function(x[0], x[1]); };
}

/// A float that is cast to an integer is rounded to the nearest even.
static ScalarFunction makeCast(tosa::CastOp op) {
  bool toInteger = isa<FloatType>(op.getInput().getType().getElementType()) &&
                   isa<IntegerType>(op.getType().getElementType());
  return [toInteger](Reals x) -> Result {
    return toInteger ? std::nearbyint(x[0]) : x[0];
  };
}

using Functions = OpTable<ScalarFunction>;

static Functions functionsOfOne() {
  return Functions()
      .add<tosa::SigmoidOp>(
          unary([](double a) { return 1.0 / (1.0 + std::exp(-a)); }))
      .add<tosa::TanhOp>(unary(std::tanh))
      .add<tosa::ExpOp>(unary(std::exp))
      .add<tosa::LogOp>(unary(std::log))
      .add<tosa::ErfOp>(unary(std::erf))
      .add<tosa::SinOp>(unary(std::sin))
      .add<tosa::CosOp>(unary(std::cos))
      .add<tosa::AbsOp>(unary(std::fabs))
      .add<tosa::RsqrtOp>(unary([](double a) { return 1.0 / std::sqrt(a); }))
      .add<tosa::ReciprocalOp>(unary([](double a) { return 1.0 / a; }))
      .add<tosa::IdentityOp>(unary([](double a) { return a; }))
      // The other operands are zero points.
      .add<tosa::NegateOp>(
          [](Reals x) -> Result { return x[2] - (x[0] - x[1]); });
}

static Functions functionsOfMore() {
  return Functions()
      .add<tosa::AddOp>(binary([](double a, double b) { return a + b; }))
      .add<tosa::SubOp>(binary([](double a, double b) { return a - b; }))
      // The last operand is a shift that floats do not have.
      .add<tosa::MulOp>([](Reals x) -> Result {
        return x[2] == 0.0 ? Result(x[0] * x[1]) : std::nullopt;
      })
      .add<tosa::MaximumOp>(binary(std::fmax))
      .add<tosa::MinimumOp>(binary(std::fmin))
      .add<tosa::PowOp>(binary(std::pow))
      .add<tosa::GreaterOp>(
          binary([](double a, double b) -> double { return a > b; }))
      .add<tosa::GreaterEqualOp>(
          binary([](double a, double b) -> double { return a >= b; }))
      .add<tosa::EqualOp>(
          binary([](double a, double b) -> double { return a == b; }))
      .add<tosa::SelectOp>(
          [](Reals x) -> Result { return x[0] != 0.0 ? x[1] : x[2]; });
}

std::optional<ScalarFunction> reference::makeTosaFunction(Operation *op) {
  static const Functions tables[] = {functionsOfOne(), functionsOfMore()};
  for (const Functions &functions : tables)
    if (auto *function = functions.find(op))
      return *function;
  if (auto cast = dyn_cast<tosa::CastOp>(op))
    return makeCast(cast);
  return std::nullopt;
}

/// Sizes of one stretch to the others; a tensor of one element to any rank.
static LogicalResult applyBroadcasting(Machine &machine, Operation *op,
                                       const ScalarFunction &function) {
  SmallVector<const ReferenceTensor *> inputs;
  SmallVector<int64_t> shape;
  for (Value operand : op->getOperands())
    inputs.push_back(&machine.tensor(operand));
  for (const ReferenceTensor *input : inputs)
    if (input->rank() > static_cast<int64_t>(shape.size()))
      shape.assign(input->shape.size(), 1);
  for (auto [number, input] : llvm::enumerate(inputs)) {
    if (input->size() == 1)
      continue;
    if (input->shape.size() != shape.size())
      return op->emitError()
             << "operand " << number << " has rank " << input->rank()
             << ", another one rank " << shape.size()
             << "; only a tensor of one element goes with any rank";
    for (auto [axis, size, seen] : llvm::enumerate(shape, input->shape)) {
      if (size != 1 && seen != 1 && size != seen)
        return op->emitError() << "operand " << number << " has size " << seen
                               << " in dimension " << axis << ", one before it "
                               << size << "; sizes that differ must be 1";
      size = size == 1 ? seen : size;
    }
  }
  auto result = machine.allocate(op, shape);
  if (failed(result) || failed(machine.spend(op, result->size())))
    return failure();
  SmallVector<double> elements(inputs.size());
  int64_t next = 0;
  auto visit = [&](ArrayRef<int64_t> index) -> LogicalResult {
    for (auto [element, input] : llvm::zip_equal(elements, inputs)) {
      int64_t place = 0;
      if (input->size() != 1)
        for (auto [i, size] : llvm::zip_equal(index, input->shape))
          place = place * size + (size == 1 ? 0 : i);
      element = input->values[place];
    }
    Result value = function(elements);
    if (!value)
      return op->emitError() << "has a shift of " << toInteger(elements.back())
                             << "; the interpreter knows 0 only";
    result->values[next++] = *value;
    return success();
  };
  if (failed(forEachIndex(shape, visit)))
    return failure();
  return machine.set(op, op->getResult(0), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, tosa::MatMulOp op) {
  const ReferenceTensor &a = machine.tensor(op.getA());
  const ReferenceTensor &b = machine.tensor(op.getB());
  int64_t batches = a.shape[0], rows = a.shape[1], depth = a.shape[2];
  int64_t columns = b.shape[2];
  if (failed(expectSize(op, "batches of b", b.shape[0], batches)) ||
      failed(expectSize(op, "rows of b", b.shape[1], depth)))
    return failure();
  const ReferenceTensor &zeroA = machine.tensor(op.getAZp());
  const ReferenceTensor &zeroB = machine.tensor(op.getBZp());
  if (failed(expectSize(op, "elements of a_zp", zeroA.size(), 1)) ||
      failed(expectSize(op, "elements of b_zp", zeroB.size(), 1)))
    return failure();
  auto result = machine.allocate(op, {batches, rows, columns});
  if (failed(result) || failed(machine.spend(op, result->size() * depth)))
    return failure();
  int64_t next = 0;
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0.0;
        for (int64_t k = 0; k < depth; ++k)
          sum +=
              (a.values[(batch * rows + i) * depth + k] - zeroA.values[0]) *
              (b.values[(batch * depth + k) * columns + j] - zeroB.values[0]);
        result->values[next++] = sum;
      }
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, tosa::TransposeOp op) {
  const ReferenceTensor &input = machine.tensor(op.getInput1());
  ArrayRef<int32_t> order = op.getPerms();
  SmallVector<int64_t> shape;
  for (int32_t axis : order) {
    if (axis < 0 || axis >= input.rank())
      return op.emitError() << "perms name the dimension " << axis;
    shape.push_back(input.shape[axis]);
  }
  auto result = machine.allocate(op, shape);
  if (failed(result) || failed(expectSize(op, "number of elements",
                                          result->size(), input.size())))
    return failure();
  SmallVector<int64_t> place(shape.size(), 0);
  int64_t next = 0;
  auto visit = [&](ArrayRef<int64_t> index) -> LogicalResult {
    for (auto [i, axis] : llvm::zip_equal(index, order))
      place[axis] = i;
    std::optional<int64_t> linear = linearIndex(input.shape, place);
    if (!linear) {
      auto diag = op.emitError() << "perms [";
      llvm::interleaveComma(order, diag);
      return LogicalResult(diag << "] is not a permutation of the "
                                << input.rank() << " dimensions");
    }
    result->values[next++] = input.values[*linear];
    return success();
  };
  if (failed(forEachIndex(shape, visit)))
    return failure();
  return machine.set(op, op.getResult(), std::move(*result));
}

/// Reduces one axis, which stays with size one.
static LogicalResult reduce(Machine &machine, Operation *op, int64_t axis,
                            double start, double (*combine)(double, double)) {
  const ReferenceTensor &input = machine.tensor(op->getOperand(0));
  if (axis < 0 || axis >= input.rank())
    return op->emitError() << "axis " << axis << " of a tensor of rank "
                           << input.rank();
  SmallVector<int64_t> shape(input.shape);
  shape[axis] = 1;
  auto result = machine.allocate(op, shape, start);
  if (failed(result) || failed(machine.spend(op, input.size())))
    return failure();
  int64_t next = 0;
  auto visit = [&](ArrayRef<int64_t> index) -> LogicalResult {
    SmallVector<int64_t> place(index);
    place[axis] = 0;
    double &value = result->values[*linearIndex(shape, place)];
    value = combine(value, input.values[next++]);
    return success();
  };
  if (failed(forEachIndex(input.shape, visit)))
    return failure();
  return machine.set(op, op->getResult(0), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, tosa::ReshapeOp op) {
  ReferenceTensor value = machine.tensor(op.getInput1());
  SmallVector<int64_t> shape;
  int64_t known = 1, inferred = -1;
  for (double size : machine.tensor(op.getShape()).values) {
    if (size == -1.0 && inferred < 0)
      inferred = shape.size();
    else if (size < 0.0 || llvm::MulOverflow(known, toInteger(size), known))
      return op.emitError()
             << "the new shape has size " << toInteger(size) << " in dimension "
             << shape.size()
             << "; wanted sizes of at least 0, one -1 at most, whose product "
                "fits in 64 bits";
    shape.push_back(toInteger(size));
  }
  if (inferred >= 0) {
    shape[inferred] = known > 0 ? value.size() / known : 0;
    known *= shape[inferred];
  }
  if (failed(expectSize(op, "number of elements", value.size(), known)))
    return failure();
  value.shape.assign(shape.begin(), shape.end());
  return machine.set(op, op.getResult(), std::move(value));
}

static LogicalResult evaluate(Machine &machine, tosa::ClampOp op) {
  auto bound = [](Attribute attribute) {
    if (auto real = dyn_cast<FloatAttr>(attribute))
      return real.getValueAsDouble();
    return cast<IntegerAttr>(attribute).getValue().roundToDouble(true);
  };
  double low = bound(op.getMinVal()), high = bound(op.getMaxVal());
  ReferenceTensor value = machine.tensor(op.getInput());
  for (double &element : value.values)
    element = element < low ? low : element > high ? high : element;
  return machine.set(op, op.getResult(), std::move(value));
}

static LogicalResult evaluateConstant(Machine &machine, Operation *op,
                                      Attribute attribute) {
  auto elements = readElements(machine, op, attribute);
  if (failed(elements))
    return failure();
  return machine.set(op, op->getResult(0), std::move(*elements));
}

Evaluated reference::evaluateTosaOp(Machine &machine, Operation *op) {
  if (op->getName().getDialectNamespace() != "tosa")
    return std::nullopt;
  if (auto constant = dyn_cast<tosa::ConstOp>(op))
    return evaluateConstant(machine, op, constant.getValues());
  if (auto constant = dyn_cast<tosa::ConstShapeOp>(op))
    return evaluateConstant(machine, op, constant.getValues());
  if (auto matmul = dyn_cast<tosa::MatMulOp>(op))
    return evaluate(machine, matmul);
  if (auto transpose = dyn_cast<tosa::TransposeOp>(op))
    return evaluate(machine, transpose);
  if (auto reshape = dyn_cast<tosa::ReshapeOp>(op))
    return evaluate(machine, reshape);
  if (auto clamp = dyn_cast<tosa::ClampOp>(op))
    return evaluate(machine, clamp);
  if (auto sum = dyn_cast<tosa::ReduceSumOp>(op))
    return reduce(machine, op, sum.getAxis(), 0.0,
                  [](double a, double b) { return a + b; });
  if (auto maximum = dyn_cast<tosa::ReduceMaxOp>(op))
    return reduce(machine, op, maximum.getAxis(), -INFINITY, std::fmax);
  if (const ScalarFunction *function = machine.scalarFunction(op))
    return applyBroadcasting(machine, op, *function);
  return std::nullopt;
}
