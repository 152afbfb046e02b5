//===- ControlFlowOps.cpp - Calls and structured control flow -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"
#include "Slices.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace stem;
using namespace stem::reference;

static LogicalResult setResults(Machine &machine, Operation *op,
                                ArrayRef<ReferenceValue> values) {
  if (values.size() != op->getNumResults())
    return op->emitError() << "the interpreter got " << values.size()
                           << " results, expected " << op->getNumResults();
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
    if (failed(machine.set(op, result, value)))
      return failure();
  return success();
}

static LogicalResult evaluate(Machine &machine, func::CallOp op) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      op, op.getCalleeAttr());
  if (!callee)
    return op.emitError() << "'" << op.getCallee() << "' is not a function";
  SmallVector<ReferenceValue> arguments;
  for (Value operand : op.getOperands())
    arguments.push_back(machine.get(operand));
  auto results = machine.call(callee, arguments, op);
  if (failed(results))
    return failure();
  return setResults(machine, op, *results);
}

static LogicalResult evaluate(Machine &machine, scf::ForOp op) {
  int64_t lower = machine.integer(op.getLowerBound());
  int64_t upper = machine.integer(op.getUpperBound());
  int64_t step = machine.integer(op.getStep());
  if (step <= 0)
    return op.emitError() << "the step must be positive, got " << step;
  SmallVector<ReferenceValue> carried;
  for (Value init : op.getInitArgs())
    carried.push_back(machine.get(init));
  for (int64_t i = lower; i < upper;) {
    SmallVector<ReferenceValue> arguments{static_cast<double>(i)};
    llvm::append_range(arguments, carried);
    auto yielded = machine.runBlock(*op.getBody(), arguments);
    if (failed(yielded) || failed(machine.spend(op, 1)))
      return failure();
    carried = std::move(*yielded);
    if (llvm::AddOverflow(i, step, i))
      break;
  }
  return setResults(machine, op, carried);
}

static LogicalResult evaluate(Machine &machine, scf::IfOp op) {
  bool condition = machine.number(op.getCondition()) != 0.0;
  Region &region = condition ? op.getThenRegion() : op.getElseRegion();
  if (region.empty())
    return success();
  auto yielded = machine.runBlock(region.front(), {});
  if (failed(yielded))
    return failure();
  return setResults(machine, op, *yielded);
}

/// Puts the slices of one iteration into the results.
static LogicalResult insertShares(Machine &machine, scf::ForallOp op,
                                  MutableArrayRef<ReferenceTensor> results) {
  for (Operation &share : op.getTerminator().getYieldingOps()) {
    auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(share);
    if (!insert)
      return share.emitError() << "the interpreter does not know the op '"
                               << share.getName() << "'";
    auto shared = cast<BlockArgument>(insert.getDest());
    if (failed(insertSlice(machine, insert, machine.tensor(insert.getSource()),
                           readSlice(machine, insert),
                           results[shared.getArgNumber() - op.getRank()])))
      return failure();
  }
  return success();
}

// Iterations are independent: each reads the shared tensors as they were
// before the loop.
static LogicalResult evaluate(Machine &machine, scf::ForallOp op) {
  SmallVector<int64_t> lower = machine.integers(op.getMixedLowerBound());
  SmallVector<int64_t> upper = machine.integers(op.getMixedUpperBound());
  SmallVector<int64_t> step = machine.integers(op.getMixedStep());
  SmallVector<int64_t> counts;
  for (auto [from, to, by] : llvm::zip_equal(lower, upper, step)) {
    if (by <= 0)
      return op.emitError() << "the step must be positive, got " << by;
    int64_t length;
    if (llvm::SubOverflow(to, from, length))
      return op.emitError()
             << "the bounds " << from << " and " << to
             << " are too far apart; wanted a difference that fits in 64 bits";
    counts.push_back(length <= 0 ? 0 : (length - 1) / by + 1);
  }
  SmallVector<ReferenceValue> shared;
  SmallVector<ReferenceTensor> results;
  for (Value output : op.getOutputs()) {
    shared.push_back(machine.get(output));
    results.push_back(machine.tensor(output));
  }
  auto visit = [&](ArrayRef<int64_t> index) -> LogicalResult {
    SmallVector<ReferenceValue> arguments;
    for (auto [i, from, by] : llvm::zip_equal(index, lower, step))
      arguments.push_back(static_cast<double>(from + i * by));
    llvm::append_range(arguments, shared);
    if (failed(machine.runBlock(*op.getBody(), arguments)) ||
        failed(machine.spend(op, 1)))
      return failure();
    return insertShares(machine, op, results);
  };
  if (failed(forEachIndex(counts, visit)))
    return failure();
  return setResults(
      machine, op, SmallVector<ReferenceValue>(results.begin(), results.end()));
}

Evaluated reference::evaluateControlFlowOp(Machine &machine, Operation *op) {
  if (auto call = dyn_cast<func::CallOp>(op))
    return evaluate(machine, call);
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return evaluate(machine, loop);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return evaluate(machine, branch);
  if (auto loop = dyn_cast<scf::ForallOp>(op))
    return evaluate(machine, loop);
  return std::nullopt;
}
