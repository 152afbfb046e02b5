//===- StepOps.cpp - The pieces of gradients ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientOps.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include <cmath>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

static LogicalResult evaluate(Machine &machine, RMSNormInputVjpOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const ReferenceTensor &weight = machine.tensor(op.getWeight());
  const ReferenceTensor &cotangent = machine.tensor(op.getCotangent());
  if (failed(expectCotangent(op, cotangent, x)))
    return failure();
  int64_t group = weight.size();
  ReferenceTensor dx = x;
  for (int64_t start = 0; start + group <= x.size(); start += group) {
    const double *xs = x.values.data() + start;
    const double *cs = cotangent.values.data() + start;
    double squares = 0.0, product = 0.0;
    for (int64_t j = 0; j < group; ++j) {
      squares += xs[j] * xs[j];
      product += weight.values[j] * cs[j] * xs[j];
    }
    double r = 1.0 / std::sqrt(squares / group + op.getEps().convertToDouble());
    for (int64_t j = 0; j < group; ++j)
      dx.values[start + j] =
          r * weight.values[j] * cs[j] - xs[j] * r * r * r * product / group;
  }
  return machine.set(op, op.getResult(), std::move(dx));
}

static LogicalResult evaluate(Machine &machine, GateVjpOp op) {
  const ReferenceTensor &gate = machine.tensor(op.getGate());
  const ReferenceTensor &up = machine.tensor(op.getUp());
  const ReferenceTensor &cotangent = machine.tensor(op.getCotangent());
  if (failed(expectCotangent(op, cotangent, gate)) ||
      failed(expectCotangent(op, up, gate)))
    return failure();
  ReferenceTensor dgate = gate, dup = gate, product = gate;
  for (int64_t i = 0; i < gate.size(); ++i) {
    double g = gate.values[i], u = up.values[i], c = cotangent.values[i];
    dgate.values[i] = siluDerivative(g) * u * c;
    dup.values[i] = silu(g) * c;
    product.values[i] = silu(g) * u;
  }
  if (failed(machine.set(op, op.getDgate(), std::move(dgate))) ||
      failed(machine.set(op, op.getDup(), std::move(dup))))
    return failure();
  return machine.set(op, op.getProduct(), std::move(product));
}

/// Rows of a result that no type and no operand tells: as many as there are
/// numbers.
static int64_t rowsOf(SumRowsOp op, const ReferenceTensor &index) {
  int64_t rows = op.getType().getDimSize(0);
  if (!ShapedType::isDynamic(rows))
    return rows;
  double last = -1;
  for (double number : index.values)
    last = std::max(last, number);
  return toInteger(last) + 1;
}

static LogicalResult evaluate(Machine &machine, SumRowsOp op) {
  const ReferenceTensor &index = machine.tensor(op.getIndex());
  const ReferenceTensor &x = machine.tensor(op.getX());
  int64_t rows = op.getInitial() ? machine.tensor(op.getInitial()).shape[0]
                                 : rowsOf(op, index);
  auto result = machine.allocate(op, {rows, x.shape[1]});
  if (failed(result) ||
      failed(expectSize(op, "rows of x", x.shape[0], index.size())))
    return failure();
  if (op.getInitial())
    *result = machine.tensor(op.getInitial());
  for (int64_t t = 0; t < index.size(); ++t) {
    FailureOr<int64_t> row = readId(op, index, t, rows);
    if (failed(row))
      return failure();
    if (op.getPaddingId() == static_cast<uint64_t>(*row))
      continue;
    for (int64_t j = 0; j < x.shape[1]; ++j)
      result->at(*row, j) += x.at(t, j);
  }
  return machine.set(op, op.getResult(), std::move(*result));
}

static LogicalResult evaluate(Machine &machine, CrossEntropyStepOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const WeightView head(machine, op.getHead());
  auto logits = linear(machine, op, x, head, Value());
  if (failed(logits))
    return failure();
  auto nll = differentiateLoss(op, *logits, machine.tensor(op.getLabels()),
                               machine.tensor(op.getCotangent()));
  if (failed(nll) || failed(machine.set(op, op.getNll(), std::move(*nll))) ||
      failed(setResult(machine, op, op.getDx(),
                       inputVjp(machine, op, *logits, head))))
    return failure();
  return setResult(machine, op, op.getDhead(),
                   weightVjp(machine, op, x, *logits));
}

static LogicalResult evaluate(Machine &machine, DistillationStepOp op) {
  const ReferenceTensor &x = machine.tensor(op.getX());
  const WeightView head(machine, op.getHead());
  auto logits = linear(machine, op, x, head, Value());
  auto teacher = linear(machine, op, machine.tensor(op.getTeacher()),
                        WeightView(machine, op.getTeacherHead()), Value());
  if (failed(logits) || failed(teacher))
    return failure();
  auto losses = differentiateDistillation(op, *logits, *teacher,
                                          machine.tensor(op.getLabels()),
                                          machine.tensor(op.getNllCotangent()),
                                          machine.tensor(op.getKlCotangent()));
  if (failed(losses) ||
      failed(machine.set(op, op.getNll(), std::move(losses->nll))) ||
      failed(machine.set(op, op.getKl(), std::move(losses->kl))) ||
      failed(setResult(machine, op, op.getDx(),
                       inputVjp(machine, op, *logits, head))))
    return failure();
  return setResult(machine, op, op.getDhead(),
                   weightVjp(machine, op, x, *logits));
}

Evaluated reference::evaluateStepOp(Machine &machine, Operation *op) {
  return llvm::TypeSwitch<Operation *, Evaluated>(op)
      .Case<RMSNormInputVjpOp, GateVjpOp, SumRowsOp, CrossEntropyStepOp,
            DistillationStepOp>(
          [&](auto known) { return evaluate(machine, known); })
      .Default([](Operation *) { return std::nullopt; });
}
