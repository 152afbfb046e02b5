//===- ScheduleOps.cpp - Packed products and pages ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"
#include "stem/Dialect/Stem/StemDialect.h"

using namespace mlir;
using namespace stem;
using namespace stem::reference;

static LogicalResult evaluate(Machine &machine, PackedMatmulOp op) {
  if (op.getResults().empty())
    return op.emitError("the interpreter runs this op on tensors only");
  const ReferenceTensor &a = machine.tensor(op.getA());
  const ReferenceTensor &b = machine.tensor(op.getB());
  ReferenceTensor acc = machine.tensor(op.getAcc());
  int64_t rows = acc.shape[0], columns = acc.shape[1], depth = a.shape[1];
  int64_t k0 = machine.integer(op.getKOffset());
  int64_t n0 = machine.integer(op.getNOffset());
  if (failed(expectSize(op, "rows of acc", rows, a.shape[0])))
    return failure();
  if (k0 < 0 || n0 < 0 || k0 > b.shape[0] - depth || n0 > b.shape[1] - columns)
    return op.emitError() << "block of " << depth << " x " << columns << " at ["
                          << k0 << ", " << n0 << "] does not fit into "
                          << op.getB().getType();
  if (failed(machine.spend(op, rows * columns * depth)))
    return failure();
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t n = 0; n < columns; ++n) {
      double sum = op.getAccumulate() ? acc.at(t, n) : 0.0;
      for (int64_t k = 0; k < depth; ++k)
        sum += a.at(t, k) * b.at(k0 + k, n0 + n);
      acc.at(t, n) = sum;
    }
  return machine.set(op, op.getResults().front(), std::move(acc));
}

static LogicalResult evaluate(Machine &machine, PackedGatherOp op) {
  if (op.getResults().empty())
    return op.emitError("the interpreter runs this op on tensors only");
  const ReferenceTensor &ids = machine.tensor(op.getIds());
  const ReferenceTensor &b = machine.tensor(op.getB());
  ReferenceTensor out = machine.tensor(op.getOut());
  if (failed(expectSize(op, "rows of out", out.shape[0], ids.size())))
    return failure();
  for (int64_t t = 0; t < ids.size(); ++t) {
    int64_t id = toInteger(ids.values[t]);
    if (id < 0 || id >= b.shape[1])
      return op.emitError()
             << "id " << id << " at token " << t
             << " is outside of a matrix of " << b.shape[1] << " columns";
    for (int64_t k = 0; k < b.shape[0]; ++k)
      out.at(t, k) = b.at(k, id);
  }
  return machine.set(op, op.getResults().front(), std::move(out));
}

// Positions and heads are i32 where they come from.
static constexpr int64_t kLargestIndex = int64_t{1} << 31;

static LogicalResult evaluate(Machine &machine, KVPageOp op) {
  PackedType type = op.getType();
  auto page = machine.allocate(op, {type.getRows(), type.getColumns()});
  if (failed(page))
    return failure();
  int64_t sequence = machine.integer(op.getSequence());
  int64_t handle = machine.integer(op.getCache());
  int64_t layer = machine.integer(op.getLayer());
  int64_t number = machine.integer(op.getPage());
  int64_t head = machine.integer(op.getHead());
  if (number < 0 || number > kLargestIndex || head < 0 || head > kLargestIndex)
    return op.emitError() << "there is no page " << number << " of head "
                          << head;
  int64_t first = number * KVPageOp::kPageTokens;
  int64_t headDim = op.getValues() ? type.getColumns() : type.getRows();
  int64_t column = head * headDim;
  if (sequence >= 0)
    for (int64_t i = 0; i < KVPageOp::kPageTokens; ++i)
      for (int64_t j = 0; j < headDim; ++j) {
        if (op.getValues())
          page->at(i, j) = machine.cache.value(handle, layer, sequence,
                                               first + i, column + j);
        else
          page->at(j, i) =
              machine.cache.key(handle, layer, sequence, first + i, column + j);
      }
  return machine.set(op, op.getResult(), std::move(*page));
}

Evaluated reference::evaluateScheduleOp(Machine &machine, Operation *op) {
  if (auto gather = dyn_cast<PackedGatherOp>(op))
    return evaluate(machine, gather);
  if (auto matmul = dyn_cast<PackedMatmulOp>(op))
    return evaluate(machine, matmul);
  if (auto page = dyn_cast<KVPageOp>(op))
    return evaluate(machine, page);
  if (auto thread = dyn_cast<ThreadIndexOp>(op))
    return machine.set(op, thread.getResult(), 0.0);
  return std::nullopt;
}
