//===- TensorOps.cpp - The tensor dialect ---------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"
#include "Slices.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

/// Calls `visit` with the place in a tensor of `shape` of each element of the
/// slice, in row-major order.
static LogicalResult forEachInSlice(Operation *op, ArrayRef<int64_t> shape,
                                    const Slice &slice,
                                    function_ref<void(int64_t)> visit) {
  if (slice.offsets.size() != shape.size())
    return op->emitError() << "has a slice of rank " << slice.offsets.size()
                           << " of a tensor of rank " << shape.size();
  SmallVector<int64_t> place(shape.size());
  return forEachIndex(slice.sizes, [&](ArrayRef<int64_t> index) {
    for (size_t i = 0; i < place.size(); ++i)
      if (llvm::MulOverflow(index[i], slice.strides[i], place[i]) ||
          llvm::AddOverflow(slice.offsets[i], place[i], place[i]))
        place[i] = -1;
    std::optional<int64_t> linear = linearIndex(shape, place);
    if (!linear) {
      auto diag = op->emitError() << "the slice leaves its tensor at [";
      llvm::interleaveComma(place, diag);
      return LogicalResult(diag << "]");
    }
    visit(*linear);
    return success();
  });
}

LogicalResult reference::insertSlice(Machine &machine, Operation *op,
                                     const ReferenceTensor &source,
                                     const Slice &slice,
                                     ReferenceTensor &target) {
  int64_t count = 1;
  for (int64_t size : slice.sizes)
    if (size < 0 || llvm::MulOverflow(count, size, count))
      return op->emitError() << "a slice cannot have the size " << size;
  if (failed(expectSize(op, "number of elements of the source", source.size(),
                        count)) ||
      failed(machine.spend(op, count)))
    return failure();
  int64_t next = 0;
  return forEachInSlice(op, target.shape, slice, [&](int64_t place) {
    target.values[place] = source.values[next++];
  });
}

static LogicalResult evaluate(Machine &machine, tensor::ExtractSliceOp op) {
  const ReferenceTensor &source = machine.tensor(op.getSource());
  Slice slice = readSlice(machine, op);
  llvm::SmallBitVector dropped = op.getDroppedDims();
  SmallVector<int64_t> shape;
  for (auto [i, size] : llvm::enumerate(slice.sizes))
    if (!dropped.test(i))
      shape.push_back(size);
  auto result = machine.allocate(op, shape);
  if (failed(result) || failed(machine.spend(op, result->size())))
    return failure();
  int64_t next = 0;
  if (failed(forEachInSlice(op, source.shape, slice, [&](int64_t place) {
        if (next < result->size())
          result->values[next] = source.values[place];
        ++next;
      })))
    return failure();
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, tensor::InsertSliceOp op) {
  ReferenceTensor target = machine.tensor(op.getDest());
  if (failed(insertSlice(machine, op, machine.tensor(op.getSource()),
                         readSlice(machine, op), target)))
    return failure();
  return machine.set(op, op.getResult(), std::move(target));
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

static FailureOr<int64_t> findElement(Machine &machine, Operation *op,
                                      const ReferenceTensor &tensor,
                                      OperandRange indices) {
  SmallVector<int64_t> index = llvm::map_to_vector(
      indices, [&](Value value) { return machine.integer(value); });
  std::optional<int64_t> place = linearIndex(tensor.shape, index);
  if (place)
    return *place;
  auto diag = op->emitError() << "the index [";
  llvm::interleaveComma(index, diag);
  diag << "] lies outside of a tensor of shape [";
  llvm::interleaveComma(tensor.shape, diag);
  return diag << "]";
}

static LogicalResult evaluate(Machine &machine, tensor::ExtractOp op) {
  const ReferenceTensor &source = machine.tensor(op.getTensor());
  auto place = findElement(machine, op, source, op.getIndices());
  if (failed(place))
    return failure();
  return machine.set(op, op.getResult(), source.values[*place]);
}

static LogicalResult evaluate(Machine &machine, tensor::InsertOp op) {
  ReferenceTensor target = machine.tensor(op.getDest());
  auto place = findElement(machine, op, target, op.getIndices());
  if (failed(place))
    return failure();
  target.values[*place] = machine.number(op.getScalar());
  return machine.set(op, op.getResult(), std::move(target));
}

//===----------------------------------------------------------------------===//
// Making and reshaping
//===----------------------------------------------------------------------===//

/// The shape of a type whose dynamic sizes are the given values, in order.
static FailureOr<SmallVector<int64_t>>
fillShape(Machine &machine, Operation *op, Type type, ValueRange sizes) {
  SmallVector<int64_t> shape =
      llvm::to_vector(cast<ShapedType>(type).getShape());
  unsigned next = 0;
  for (int64_t &size : shape)
    if (ShapedType::isDynamic(size)) {
      if (next == sizes.size())
        return op->emitError()
               << "has " << sizes.size() << " dynamic sizes, but " << type
               << " has more dynamic dimensions";
      size = machine.integer(sizes[next++]);
    }
  return shape;
}

static LogicalResult makeFilled(Machine &machine, Operation *op,
                                ValueRange sizes, double fill) {
  auto shape = fillShape(machine, op, op->getResult(0).getType(), sizes);
  if (failed(shape))
    return failure();
  auto result = machine.allocate(op, *shape, fill);
  if (failed(result) || failed(machine.spend(op, result->size())))
    return failure();
  return machine.set(op, op->getResult(0), std::move(*result));
}

/// Sets each element to what the region gives for its index, or, where
/// `keep` says so, leaves it.
static LogicalResult
generate(Machine &machine, Operation *op, Region &body, ReferenceTensor result,
         function_ref<bool(ArrayRef<int64_t>, double &)> keep) {
  int64_t next = 0;
  auto visit = [&](ArrayRef<int64_t> index) -> LogicalResult {
    double &element = result.values[next++];
    if (keep && keep(index, element))
      return success();
    SmallVector<ReferenceValue> arguments;
    for (int64_t i : index)
      arguments.push_back(static_cast<double>(i));
    auto yielded = machine.runBlock(body.front(), arguments);
    if (failed(yielded))
      return failure();
    element = yielded->front().number;
    return success();
  };
  SmallVector<int64_t> shape(result.shape);
  if (failed(forEachIndex(shape, visit)))
    return failure();
  return machine.set(op, op->getResult(0), std::move(result));
}

static LogicalResult evaluate(Machine &machine, tensor::GenerateOp op) {
  auto shape = fillShape(machine, op, op.getType(), op.getDynamicExtents());
  if (failed(shape))
    return failure();
  auto result = machine.allocate(op, *shape);
  if (failed(result))
    return failure();
  return generate(machine, op, op.getBody(), std::move(*result), nullptr);
}

static LogicalResult evaluate(Machine &machine, tensor::PadOp op) {
  const ReferenceTensor &source = machine.tensor(op.getSource());
  SmallVector<int64_t> low = machine.integers(op.getMixedLowPad());
  SmallVector<int64_t> high = machine.integers(op.getMixedHighPad());
  SmallVector<int64_t> shape(source.shape);
  for (size_t i = 0; i < shape.size(); ++i)
    if (low[i] < 0 || high[i] < 0 ||
        llvm::AddOverflow(shape[i], low[i], shape[i]) ||
        llvm::AddOverflow(shape[i], high[i], shape[i]))
      return op.emitError()
             << "pads dimension " << i << " of size " << source.shape[i]
             << " by " << low[i] << " and " << high[i]
             << "; wanted at least 0, and a sum that fits in 64 bits";
  auto result = machine.allocate(op, shape);
  if (failed(result))
    return failure();
  SmallVector<int64_t> place(shape.size());
  auto copyInside = [&](ArrayRef<int64_t> index, double &element) {
    for (size_t i = 0; i < place.size(); ++i)
      place[i] = index[i] - low[i];
    std::optional<int64_t> linear = linearIndex(source.shape, place);
    if (linear)
      element = source.values[*linear];
    return linear.has_value();
  };
  return generate(machine, op, op.getRegion(), std::move(*result), copyInside);
}

static LogicalResult failShape(Operation *op, ArrayRef<int64_t> shape) {
  auto diag = op->emitError() << "the new shape [";
  llvm::interleaveComma(shape, diag);
  return LogicalResult(diag << "] is not valid; wanted sizes of at least 0 "
                               "whose product fits in 64 bits");
}

/// The same elements in order; a dynamic size of the type follows from the
/// others where there is one, or is given.
static LogicalResult reshape(Machine &machine, Operation *op, Value source,
                             ArrayRef<int64_t> shape) {
  ReferenceTensor result = machine.tensor(source);
  int64_t count = 1;
  for (int64_t size : shape)
    if (size < 0 || llvm::MulOverflow(count, size, count))
      return failShape(op, shape);
  if (failed(expectSize(op, "number of elements", result.size(), count)) ||
      failed(machine.spend(op, count)))
    return failure();
  result.shape.assign(shape.begin(), shape.end());
  return machine.set(op, op->getResult(0), std::move(result));
}

static LogicalResult evaluate(Machine &machine, tensor::CollapseShapeOp op) {
  const ReferenceTensor &source = machine.tensor(op.getSrc());
  SmallVector<int64_t> shape;
  for (const ReassociationIndices &group : op.getReassociationIndices()) {
    int64_t size = 1;
    for (int64_t axis : group)
      if (llvm::MulOverflow(size, source.shape[axis], size))
        return op.emitError()
               << "the sizes of dimensions " << group.front() << " to "
               << group.back() << " have a product beyond 64 bits";
    shape.push_back(size);
  }
  return reshape(machine, op, op.getSrc(), shape);
}

static LogicalResult evaluate(Machine &machine, tensor::ReshapeOp op) {
  SmallVector<int64_t> shape;
  for (double size : machine.tensor(op.getShape()).values)
    shape.push_back(toInteger(size));
  return reshape(machine, op, op.getSource(), shape);
}

static LogicalResult evaluate(Machine &machine, tensor::DimOp op) {
  const ReferenceTensor &source = machine.tensor(op.getSource());
  int64_t axis = machine.integer(op.getIndex());
  if (axis < 0 || axis >= source.rank())
    return op.emitError() << "dimension " << axis << " of a tensor of rank "
                          << source.rank();
  return machine.set(op, op.getResult(),
                     static_cast<double>(source.shape[axis]));
}

static LogicalResult evaluate(Machine &machine, tensor::FromElementsOp op) {
  auto result = machine.allocate(op, op.getType().getShape());
  if (failed(result))
    return failure();
  for (auto [element, operand] :
       llvm::zip_equal(result->values, op.getElements()))
    element = machine.number(operand);
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, tensor::ConcatOp op) {
  int64_t axis = op.getDim();
  SmallVector<int64_t> shape(machine.tensor(op.getInputs().front()).shape);
  shape[axis] = 0;
  for (Value input : op.getInputs())
    shape[axis] += machine.tensor(input).shape[axis];
  auto result = machine.allocate(op, shape);
  if (failed(result))
    return failure();
  Slice slice;
  slice.offsets.assign(shape.size(), 0);
  slice.strides.assign(shape.size(), 1);
  for (Value input : op.getInputs()) {
    const ReferenceTensor &part = machine.tensor(input);
    slice.sizes.assign(part.shape.begin(), part.shape.end());
    if (failed(insertSlice(machine, op, part, slice, *result)))
      return failure();
    slice.offsets[axis] += part.shape[axis];
  }
  return machine.set(op, op.getResult(), std::move(*result));
}

// An empty tensor holds NaN, so that a read of what nobody wrote shows.
Evaluated reference::evaluateTensorOp(Machine &machine, Operation *op) {
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return evaluate(machine, extract);
  if (auto insert = dyn_cast<tensor::InsertOp>(op))
    return evaluate(machine, insert);
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return makeFilled(machine, op, empty.getDynamicSizes(), NAN);
  if (auto splat = dyn_cast<tensor::SplatOp>(op))
    return makeFilled(machine, op, splat.getDynamicSizes(),
                      machine.number(splat.getInput()));
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return evaluate(machine, slice);
  if (auto slice = dyn_cast<tensor::InsertSliceOp>(op))
    return evaluate(machine, slice);
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    return evaluate(machine, collapse);
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return reshape(machine, op, expand.getSrc(),
                   machine.integers(expand.getMixedOutputShape()));
  if (auto reshapeOp = dyn_cast<tensor::ReshapeOp>(op))
    return evaluate(machine, reshapeOp);
  if (auto dim = dyn_cast<tensor::DimOp>(op))
    return evaluate(machine, dim);
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    return machine.set(op, cast.getDest(), machine.get(cast.getSource()));
  if (auto generate = dyn_cast<tensor::GenerateOp>(op))
    return evaluate(machine, generate);
  if (auto pad = dyn_cast<tensor::PadOp>(op))
    return evaluate(machine, pad);
  if (auto elements = dyn_cast<tensor::FromElementsOp>(op))
    return evaluate(machine, elements);
  if (auto concat = dyn_cast<tensor::ConcatOp>(op))
    return evaluate(machine, concat);
  return std::nullopt;
}
