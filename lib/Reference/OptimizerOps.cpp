//===- OptimizerOps.cpp - Updates of parameters ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"
#include "stem/Dialect/Stem/StemDialect.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace stem;
using namespace stem::reference;

static LogicalResult evaluate(Machine &machine, SumSquaresOp op) {
  ReferenceTensor sums = machine.tensor(op.getSums());
  double &sum = sums.values[op.getPlace()] = 0.0;
  for (double value : machine.tensor(op.getX()).values)
    sum += value * value;
  return machine.set(op, op.getResult(), std::move(sums));
}

static LogicalResult evaluate(Machine &machine, GradientScaleOp op) {
  double total = 0.0;
  for (double sum : machine.tensor(op.getSums()).values)
    total += sum;
  double scale = std::isfinite(total) ? 1.0 : std::nan("");
  return machine.set(op, op.getResult(), ReferenceTensor{{1}, {scale}});
}

static LogicalResult evaluate(Machine &machine, AdamWOp op) {
  const ReferenceTensor &gradient = machine.tensor(op.getGradient());
  const std::vector<double> &step = machine.tensor(op.getStep()).values;
  double scale = machine.tensor(op.getScale()).values[0];
  double firstRest = 1.0 - op.getBeta1().convertToDouble();
  double secondRest = 1.0 - op.getBeta2().convertToDouble();
  double decay = op.getDecays() ? step[2] : 0.0;
  ReferenceTensor weight = machine.tensor(op.getWeight());
  ReferenceTensor first = machine.tensor(op.getFirst());
  ReferenceTensor second = machine.tensor(op.getSecond());
  for (int64_t i = 0; i < weight.size() && !std::isnan(scale); ++i) {
    double g = gradient.values[i] * scale;
    double &w = weight.values[i], &m = first.values[i], &v = second.values[i];
    m += firstRest * (g - m);
    v += secondRest * (g * g - v);
    w -= decay * w +
         step[0] * m /
             (std::sqrt(v) * step[1] + op.getEpsilon().convertToDouble());
  }
  if (failed(machine.set(op, op.getNewWeight(), std::move(weight))) ||
      failed(machine.set(op, op.getNewFirst(), std::move(first))))
    return failure();
  return machine.set(op, op.getNewSecond(), std::move(second));
}

Evaluated reference::evaluateOptimizerOp(Machine &machine, Operation *op) {
  return llvm::TypeSwitch<Operation *, Evaluated>(op)
      .Case<SumSquaresOp, GradientScaleOp, AdamWOp>(
          [&](auto known) { return evaluate(machine, known); })
      .Default([](Operation *) { return std::nullopt; });
}
