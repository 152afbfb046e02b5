//===- TableOps.cpp - Parameters, tables and the STEM FFN -----------------===//
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

static LogicalResult evaluate(Machine &machine, ParamLoadOp op) {
  auto param =
      SymbolTable::lookupNearestSymbolFrom<ParamOp>(op, op.getParamAttr());
  if (!param)
    return op.emitError() << "'" << op.getParam() << "' is not a stem.param";
  ArrayRef<int64_t> shape = param.getTensorType().getShape();
  if (failed(machine.allocate(op, shape)))
    return failure();
  ReferenceTensor value =
      machine.interpreter.getParameter(param.getKey(), param.getTensorType());
  if (isa<PackedType>(op.getType()) != op.getTransposed() && value.rank() == 2)
    value = transposed(value);
  return machine.set(op, op.getResult(), std::move(value));
}

static LogicalResult evaluate(Machine &machine, TableLoadOp op) {
  auto table =
      SymbolTable::lookupNearestSymbolFrom<TableOp>(op, op.getTableAttr());
  if (!table)
    return op.emitError() << "'" << op.getTable() << "' is not a stem.table";
  SmallVector<int64_t> shape{table.getTableType().getRows(),
                             table.getTableType().getColumns()};
  if (failed(machine.allocate(op, shape)))
    return failure();
  return machine.set(
      op, op.getResult(),
      machine.interpreter.getParameter(table.getKey(), table.getTableType()));
}

/// `result[t] = rows[index[t]]`.
static FailureOr<ReferenceTensor> gather(Machine &machine, Operation *op,
                                         const ReferenceTensor &rows,
                                         const ReferenceTensor &index) {
  int64_t columns = rows.shape[1];
  auto result = machine.allocate(op, {index.size(), columns});
  if (failed(result))
    return failure();
  for (int64_t t = 0; t < index.size(); ++t) {
    int64_t row = toInteger(index.values[t]);
    if (row < 0 || row >= rows.shape[0])
      return op->emitError() << "index " << row << " at token " << t
                             << " is outside of " << rows.shape[0] << " rows";
    for (int64_t j = 0; j < columns; ++j)
      result->at(t, j) = rows.at(row, j);
  }
  return result;
}

// As a resident table: all rows, and the ids as they are.
static LogicalResult evaluate(Machine &machine, TableRowsOp op) {
  if (failed(machine.set(op, op.getRows(), machine.get(op.getTable()))))
    return failure();
  return machine.set(op, op.getIndex(), machine.get(op.getIds()));
}

static LogicalResult evaluate(Machine &machine, PlanRowsOp op) {
  if (!isa<RankedTensorType>(op.getIds().getType()))
    return op.emitError("the interpreter runs this op on tensors only");
  return machine.set(op, op.getPlan(), machine.get(op.getIds()));
}

// The ids stand for the ticket too: await finds the table by itself.
static LogicalResult evaluate(Machine &machine, PrefetchOp op) {
  return machine.set(op, op.getTicket(), machine.get(op.getPlan()));
}

static LogicalResult evaluate(Machine &machine, AwaitOp op) {
  if (!isa<RankedTensorType>(op.getRows().getType()))
    return op.emitError("the interpreter runs this op on tensors only");
  PrefetchOp prefetch = op.getPrefetch();
  if (!prefetch)
    return op.emitError("the interpreter knows a ticket only where the "
                        "stem.prefetch that gives it stands");
  if (failed(machine.set(op, op.getRows(), machine.get(prefetch.getTable()))))
    return failure();
  return machine.set(op, op.getIndex(), machine.get(op.getTicket()));
}

static LogicalResult evaluate(Machine &, ReleaseOp) { return success(); }

static LogicalResult evaluate(Machine &machine, LookupOp op) {
  auto result = gather(machine, op, machine.tensor(op.getRows()),
                       machine.tensor(op.getIndex()));
  if (failed(result))
    return failure();
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, GatedFFNOp op) {
  auto gate = linear(machine, op, machine.tensor(op.getX()),
                     WeightView(machine, op.getGate()), op.getGateBias());
  if (failed(gate))
    return failure();
  return finishFFN(machine, op, std::move(*gate), machine.tensor(op.getUp()),
                   op.getDown(), op.getDownBias());
}

static LogicalResult evaluate(Machine &machine, FusedFFNOp op) {
  auto gate = linear(machine, op, machine.tensor(op.getX()),
                     WeightView(machine, op.getGate()), op.getGateBias());
  if (failed(gate))
    return failure();
  auto up = gather(machine, op, machine.tensor(op.getRows()),
                   machine.tensor(op.getIndex()));
  if (failed(up))
    return failure();
  return finishFFN(machine, op, std::move(*gate), *up, op.getDown(),
                   op.getDownBias());
}

static LogicalResult evaluate(Machine &machine, MapIdsOp op) {
  ReferenceTensor ids = machine.tensor(op.getIds());
  const ReferenceTensor &map = machine.tensor(op.getMap());
  double unknown = static_cast<int32_t>(op.getUnknown());
  for (double &id : ids.values) {
    int64_t place = toInteger(id);
    bool isInside = place >= 0 && place < map.size();
    id = isInside && map.values[place] >= 0.0 ? map.values[place] : unknown;
  }
  return machine.set(op, op.getResult(), std::move(ids));
}

static LogicalResult evaluate(Machine &machine, MixOp op) {
  ReferenceTensor up = machine.tensor(op.getUp());
  auto inner = linear(machine, op, machine.tensor(op.getX()),
                      WeightView(machine, op.getB()), Value());
  if (failed(inner))
    return failure();
  auto outer =
      linear(machine, op, *inner, WeightView(machine, op.getA()), Value());
  if (failed(outer) ||
      failed(expectSize(op, "rows of x", outer->shape[0], up.shape[0])) ||
      failed(expectSize(op, "outputs of a", outer->shape[1], up.shape[1])))
    return failure();
  for (int64_t i = 0; i < up.size(); ++i)
    up.values[i] += outer->values[i];
  return machine.set(op, op.getResult(), std::move(up));
}

FailureOr<llvm::DenseSet<int64_t>>
reference::readSelected(Operation *op, const ReferenceTensor &selected) {
  llvm::DenseSet<int64_t> ids;
  int64_t last = std::numeric_limits<int64_t>::min();
  for (double value : selected.values) {
    int64_t id = toInteger(value);
    if (id <= last)
      return op->emitError()
             << "the selected ids must rise, but " << id << " follows " << last;
    ids.insert(id);
    last = id;
  }
  return ids;
}

static LogicalResult evaluate(Machine &machine, SelectUpOp op) {
  ReferenceTensor up = machine.tensor(op.getUp());
  const ReferenceTensor &ids = machine.tensor(op.getIds());
  auto projected = linear(machine, op, machine.tensor(op.getX()),
                          WeightView(machine, op.getWeight()), op.getBias());
  if (failed(projected) ||
      failed(expectSize(op, "rows of x", projected->shape[0], up.shape[0])) ||
      failed(expectSize(op, "outputs of the weight", projected->shape[1],
                        up.shape[1])) ||
      failed(expectSize(op, "length of ids", ids.size(), up.shape[0])))
    return failure();
  auto selected = readSelected(op, machine.tensor(op.getSelected()));
  if (failed(selected))
    return failure();
  for (int64_t t = 0; t < up.shape[0]; ++t)
    if (selected->contains(toInteger(ids.values[t])))
      for (int64_t j = 0; j < up.shape[1]; ++j)
        up.at(t, j) = projected->at(t, j);
  return machine.set(op, op.getResult(), std::move(up));
}

Evaluated reference::evaluateTableOp(Machine &machine, Operation *op) {
  if (auto load = dyn_cast<ParamLoadOp>(op))
    return evaluate(machine, load);
  if (auto load = dyn_cast<TableLoadOp>(op))
    return evaluate(machine, load);
  if (auto rows = dyn_cast<TableRowsOp>(op))
    return evaluate(machine, rows);
  if (auto plan = dyn_cast<PlanRowsOp>(op))
    return evaluate(machine, plan);
  if (auto prefetch = dyn_cast<PrefetchOp>(op))
    return evaluate(machine, prefetch);
  if (auto await = dyn_cast<AwaitOp>(op))
    return evaluate(machine, await);
  if (auto release = dyn_cast<ReleaseOp>(op))
    return evaluate(machine, release);
  if (auto lookup = dyn_cast<LookupOp>(op))
    return evaluate(machine, lookup);
  if (auto ffn = dyn_cast<GatedFFNOp>(op))
    return evaluate(machine, ffn);
  if (auto ffn = dyn_cast<FusedFFNOp>(op))
    return evaluate(machine, ffn);
  if (auto map = dyn_cast<MapIdsOp>(op))
    return evaluate(machine, map);
  if (auto mix = dyn_cast<MixOp>(op))
    return evaluate(machine, mix);
  if (auto select = dyn_cast<SelectUpOp>(op))
    return evaluate(machine, select);
  return std::nullopt;
}
