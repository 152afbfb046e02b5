//===- InterpretPass.cpp - Runs functions and prints their results --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Reference/Inputs.h"
#include "stem/Transforms/Passes.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

namespace stem {
#define GEN_PASS_DEF_STEMINTERPRETPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

// Values that a summary shows.
static constexpr int64_t kFirstValues = 4;

static void printValues(raw_ostream &os, ArrayRef<double> values) {
  llvm::interleave(
      values, os, [&](double value) { os << llvm::format("%.9g", value); },
      " ");
}

static void printSummary(raw_ostream &os, const ReferenceTensor &tensor) {
  double sum = 0.0, least = INFINITY, largest = -INFINITY;
  for (double value : tensor.values) {
    sum += value;
    least = std::fmin(least, value);
    largest = std::fmax(largest, value);
  }
  os << llvm::format(" sum %.9g min %.9g max %.9g first ", sum, least, largest);
  printValues(os, ArrayRef(tensor.values)
                      .take_front(std::min(kFirstValues, tensor.size())));
  os << "\n";
}

/// One line for each row.
static void printFull(raw_ostream &os, const ReferenceTensor &tensor) {
  os << "\n";
  int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  for (int64_t i = 0; i < tensor.size(); i += columns) {
    os << "    ";
    printValues(os, ArrayRef(tensor.values).slice(i, columns));
    os << "\n";
  }
}

static void printResults(raw_ostream &os, func::FuncOp function,
                         ArrayRef<ReferenceValue> results, bool full) {
  os << "@" << function.getName() << "\n";
  for (auto [i, result] : llvm::enumerate(results)) {
    os << "  result " << i;
    if (!result.tensor) {
      os << llvm::format(": %.9g\n", result.number);
      continue;
    }
    os << " [";
    llvm::interleave(result.tensor->shape, os, "x");
    os << "]:";
    if (full)
      printFull(os, *result.tensor);
    else
      printSummary(os, *result.tensor);
  }
}

namespace {

struct InterpretPass : public stem::impl::StemInterpretPassBase<InterpretPass> {
  using StemInterpretPassBase::StemInterpretPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return checkOptions(context, inputOptions(), maxSteps);
  }

  InputOptions inputOptions() const {
    return {seed, tokens, sequences, past, idBound};
  }

  LogicalResult interpret(func::FuncOp target) {
    InterpreterOptions limits;
    limits.seed = seed;
    limits.maxSteps = maxSteps;
    Interpreter interpreter(getOperation(), limits);
    interpreter.getCache().seedPast(seed, past);
    auto inputs = makeInputs(target, interpreter, inputOptions());
    if (failed(inputs))
      return failure();
    auto results = interpreter.run(target, *inputs);
    if (failed(results))
      return failure();
    printResults(llvm::outs(), target, *results, print == "full");
    return success();
  }

  LogicalResult interpretModule() {
    if (print != "full" && print != "summary")
      return emitError(getOperation().getLoc())
             << "stem-print must be summary or full, got '" << print << "'";
    if (!function.empty()) {
      auto target = getOperation().lookupSymbol<func::FuncOp>(function);
      if (!target)
        return emitError(getOperation().getLoc())
               << "there is no function '" << function << "' to interpret";
      return interpret(target);
    }
    bool isEmpty = true;
    for (auto target : getOperation().getOps<func::FuncOp>()) {
      if (!target.isPublic() || target.isExternal())
        continue;
      isEmpty = false;
      if (failed(interpret(target)))
        return failure();
    }
    if (isEmpty)
      return emitError(getOperation().getLoc(),
                       "there is no public function to interpret; name one "
                       "with stem-function");
    return success();
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (failed(interpretModule()))
      signalPassFailure();
  }
};

} // namespace
