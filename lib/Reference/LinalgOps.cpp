//===- LinalgOps.cpp - Every linalg op with a body ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Named and generic ops alike: walk the iteration space in order, read the
// operands where the indexing maps say, run the body, write what it yields.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace stem;
using namespace stem::reference;

namespace {

/// An operand that the body reads or, as an output, writes.
struct Access {
  AffineMap map;
  const ReferenceTensor *tensor; // Null for a number.
  double number;
  int64_t output; // Number of the output, or -1.
};

} // namespace

/// Size of each loop, from the operands whose dimension it is alone.
static FailureOr<SmallVector<int64_t>>
findLoopSizes(linalg::LinalgOp op, ArrayRef<Access> accesses) {
  SmallVector<int64_t> sizes = op.getStaticLoopRanges();
  for (const Access &access : accesses) {
    if (!access.tensor)
      continue;
    for (auto [expr, size] :
         llvm::zip_equal(access.map.getResults(), access.tensor->shape)) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (!dim)
        continue;
      int64_t &loop = sizes[dim.getPosition()];
      if (ShapedType::isDynamic(loop))
        loop = size;
      else if (loop != size)
        return op->emitError()
               << "operands disagree on the size of loop " << dim.getPosition()
               << ": " << loop << " and " << size;
    }
  }
  for (auto [loop, size] : llvm::enumerate(sizes))
    if (ShapedType::isDynamic(size))
      return op->emitError()
             << "the interpreter cannot tell the size of loop " << loop
             << ": no indexing map has d" << loop << " as a result by itself";
  return sizes;
}

static FailureOr<SmallVector<Access>> findAccesses(Machine &machine,
                                                   linalg::LinalgOp op) {
  SmallVector<Access> accesses;
  for (OpOperand &operand : op->getOpOperands()) {
    const ReferenceValue &value = machine.get(operand.get());
    AffineMap map = op.getMatchingIndexingMap(&operand);
    int64_t output = op.isDpsInit(&operand)
                         ? static_cast<int64_t>(operand.getOperandNumber()) -
                               op.getNumDpsInputs()
                         : -1;
    if (value.tensor &&
        map.getNumResults() != static_cast<unsigned>(value.tensor->rank()))
      return op->emitError()
             << "the indexing map of operand " << operand.getOperandNumber()
             << " has " << map.getNumResults() << " results, the operand rank "
             << value.tensor->rank();
    accesses.push_back({map, value.tensor.get(), value.number, output});
  }
  return accesses;
}

namespace {

/// One run of an op over its iteration space.
class Execution {
public:
  Execution(Machine &machine, linalg::LinalgOp op, ArrayRef<Access> accesses)
      : machine(machine), op(op), accesses(accesses) {
    for (Value init : op.getDpsInits())
      outputs.push_back(machine.tensor(init));
    for (OpOperand *operand : op.getOpOperandsMatchingBBargs())
      arguments.push_back(operand->getOperandNumber());
  }

  LogicalResult run(ArrayRef<int64_t> sizes) {
    SmallVector<int64_t> outerIteration = std::move(machine.iteration);
    LogicalResult walked = forEachIndex(
        sizes, [&](ArrayRef<int64_t> index) { return visit(index); });
    machine.iteration = std::move(outerIteration);
    if (failed(walked))
      return failure();
    for (auto [result, output] : llvm::zip_equal(op->getResults(), outputs))
      if (failed(machine.set(op, result, std::move(output))))
        return failure();
    return success();
  }

private:
  LogicalResult visit(ArrayRef<int64_t> index) {
    machine.iteration.assign(index.begin(), index.end());
    SmallVector<ReferenceValue> inputs;
    for (unsigned number : arguments) {
      auto input = read(accesses[number], index);
      if (failed(input))
        return failure();
      inputs.push_back(*input);
    }
    auto yielded = machine.runBlock(*op.getBlock(), inputs);
    if (failed(yielded) || failed(machine.spend(op, 1)))
      return failure();
    for (const Access &access : accesses) {
      if (access.output < 0)
        continue;
      auto place = findPlace(access, index);
      if (failed(place))
        return failure();
      outputs[access.output].values[*place] = (*yielded)[access.output].number;
    }
    return success();
  }

  FailureOr<double> read(const Access &access, ArrayRef<int64_t> index) {
    if (!access.tensor)
      return access.number;
    auto place = findPlace(access, index);
    if (failed(place))
      return failure();
    return access.output < 0 ? access.tensor->values[*place]
                             : outputs[access.output].values[*place];
  }

  FailureOr<int64_t> findPlace(const Access &access, ArrayRef<int64_t> index) {
    SmallVector<int64_t> place;
    for (AffineExpr expr : access.map.getResults())
      place.push_back(evaluateAffine(expr, index).value_or(-1));
    std::optional<int64_t> linear = linearIndex(access.tensor->shape, place);
    if (!linear)
      return op->emitError("an indexing map leaves its operand");
    return *linear;
  }

  Machine &machine;
  linalg::LinalgOp op;
  ArrayRef<Access> accesses;
  SmallVector<ReferenceTensor> outputs;
  /// Numbers of the operands that the body's arguments stand for.
  SmallVector<unsigned> arguments;
};

} // namespace

static LogicalResult evaluate(Machine &machine, linalg::LinalgOp op) {
  if (!op.hasPureTensorSemantics())
    return op->emitError("the interpreter runs linalg ops on tensors only");
  auto accesses = findAccesses(machine, op);
  if (failed(accesses))
    return failure();
  auto sizes = findLoopSizes(op, *accesses);
  if (failed(sizes))
    return failure();
  return Execution(machine, op, *accesses).run(*sizes);
}

Evaluated reference::evaluateLinalgOp(Machine &machine, Operation *op) {
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    if (index.getDim() >= machine.iteration.size())
      return op->emitError("linalg.index outside of a linalg op");
    return machine.set(op, index.getResult(),
                       static_cast<double>(machine.iteration[index.getDim()]));
  }
  if (auto structured = dyn_cast<linalg::LinalgOp>(op))
    return evaluate(machine, structured);
  return std::nullopt;
}
