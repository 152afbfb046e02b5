//===- Machine.h - State of one interpreted run -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Reference. Each family of ops has one file with one function
// that evaluates an op of the family, or gives nothing for an op that it does
// not know.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_REFERENCE_MACHINE_H
#define STEM_LIB_REFERENCE_MACHINE_H

#include "stem/Reference/Interpreter.h"

#include "mlir/IR/AffineMap.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <functional>
#include <optional>

namespace stem::reference {

/// Number from numbers; nothing where the operation has no result, as a
/// division of integers by zero.
using ScalarFunction =
    std::function<std::optional<double>(llvm::ArrayRef<double>)>;

/// Values of the function that is being executed, the cache and the budget.
/// Every value conforms to its IR type, so an evaluator may rely on ranks and
/// static sizes; sizes that are dynamic it has to compare itself.
class Machine {
public:
  Machine(mlir::ModuleOp module, const Interpreter &interpreter,
          ReferenceCache &cache, const InterpreterOptions &options)
      : module(module), interpreter(interpreter), cache(cache),
        options(options) {}

  mlir::ModuleOp module;
  const Interpreter &interpreter;
  ReferenceCache &cache;
  /// Where the innermost linalg op is in its iteration space.
  llvm::SmallVector<int64_t> iteration;

  using Values = llvm::SmallVector<ReferenceValue>;

  mlir::FailureOr<Values> call(mlir::func::FuncOp function,
                               llvm::ArrayRef<ReferenceValue> arguments,
                               mlir::Operation *site);
  /// Runs a block up to its terminator and gives the terminator's operands.
  mlir::FailureOr<Values> runBlock(mlir::Block &block,
                                   llvm::ArrayRef<ReferenceValue> arguments);

  const ReferenceValue &get(mlir::Value value) const;
  double number(mlir::Value value) const { return get(value).number; }
  int64_t integer(mlir::Value value) const;
  int64_t integer(mlir::OpFoldResult value) const;
  llvm::SmallVector<int64_t>
  integers(llvm::ArrayRef<mlir::OpFoldResult> values) const;
  const ReferenceTensor &tensor(mlir::Value value) const {
    return *get(value).tensor;
  }

  /// Stores a value, after a check that it conforms to the type of `value`.
  mlir::LogicalResult set(mlir::Operation *op, mlir::Value value,
                          ReferenceValue newValue);
  /// A tensor of zeros, if it is within the budget.
  mlir::FailureOr<ReferenceTensor> allocate(mlir::Operation *op,
                                            llvm::ArrayRef<int64_t> shape,
                                            double fill = 0.0) const;
  /// Takes `count` steps out of the budget.
  mlir::LogicalResult spend(mlir::Operation *op, int64_t count);

  /// The function of an elementwise op, made once for each op.
  const ScalarFunction *scalarFunction(mlir::Operation *op);

private:
  mlir::LogicalResult evaluate(mlir::Operation *op);

  const InterpreterOptions &options;
  int64_t steps = 0;
  int64_t depth = 0;
  llvm::DenseMap<mlir::Value, ReferenceValue> frame;
  llvm::DenseMap<mlir::Operation *, std::optional<ScalarFunction>> functions;
};

using Evaluated = std::optional<mlir::LogicalResult>;

Evaluated evaluateTransformerOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateTableOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateGradientOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateStepOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateOptimizerOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateScheduleOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateScalarOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateTensorOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateLinalgOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateControlFlowOp(Machine &machine, mlir::Operation *op);
Evaluated evaluateTosaOp(Machine &machine, mlir::Operation *op);

/// An elementwise op of arith, math or index, of an affine or tosa op.
std::optional<ScalarFunction> makeScalarFunction(mlir::Operation *op);
std::optional<ScalarFunction> makeTosaFunction(mlir::Operation *op);

/// Nothing for an expression that divides by a number below one.
std::optional<int64_t> evaluateAffine(mlir::AffineExpr expr,
                                      llvm::ArrayRef<int64_t> dims,
                                      llvm::ArrayRef<int64_t> symbols = {});

/// The elements of a constant, exact.
mlir::FailureOr<ReferenceTensor> readElements(const Machine &machine,
                                              mlir::Operation *op,
                                              mlir::Attribute attribute);

/// A double as an integer: NaN is 0, what is too large the nearest.
int64_t toInteger(double value);

/// Fails with "<what> is <seen>, expected <wanted>" when they differ.
mlir::LogicalResult expectSize(mlir::Operation *op, const char *what,
                               int64_t seen, int64_t wanted);

/// Counts through all indices of `shape` in row-major order. `visit` gets the
/// index; stops and fails when it fails.
mlir::LogicalResult forEachIndex(
    llvm::ArrayRef<int64_t> shape,
    llvm::function_ref<mlir::LogicalResult(llvm::ArrayRef<int64_t>)> visit);

/// Row-major place of `index`, or nothing when it lies outside of `shape`.
std::optional<int64_t> linearIndex(llvm::ArrayRef<int64_t> shape,
                                   llvm::ArrayRef<int64_t> index);

/// A weight as `[outputs, inputs]`, whether it is a tensor or packed.
class WeightView {
public:
  WeightView(const Machine &machine, mlir::Value weight);

  int64_t inputs, outputs;
  double at(int64_t output, int64_t input) const {
    return isPacked ? tensor.at(input, output) : tensor.at(output, input);
  }

private:
  const ReferenceTensor &tensor;
  bool isPacked;
};

/// The id of token `t`, which must be a row of a matrix of so many rows.
mlir::FailureOr<int64_t> readId(mlir::Operation *op, const ReferenceTensor &ids,
                                int64_t t, int64_t rows);

/// The label of token `t`; nothing for one that is ignored.
mlir::FailureOr<std::optional<int64_t>> readLabel(mlir::Operation *op,
                                                  const ReferenceTensor &labels,
                                                  int64_t t,
                                                  int64_t vocabulary);

/// The ids of stem.select_up, which must rise.
mlir::FailureOr<llvm::DenseSet<int64_t>>
readSelected(mlir::Operation *op, const ReferenceTensor &selected);

/// A token sees the positions of its sequence from this one to its own. Without
/// a window (0) that is all of them.
int64_t firstVisible(int64_t position, int64_t window);

/// Scores, one at least, become probabilities.
void softmax(llvm::MutableArrayRef<double> scores);

double silu(double x);

/// `result[t, n] = sum_k x[t, k] weight[n, k] + bias[n]`; `bias` may be null.
mlir::FailureOr<ReferenceTensor> linear(Machine &machine, mlir::Operation *op,
                                        const ReferenceTensor &x,
                                        const WeightView &weight,
                                        mlir::Value bias);

/// `down(silu(gate(x)) * up) + bias`, the part common to all gated FFNs.
mlir::LogicalResult finishFFN(Machine &machine, mlir::Operation *op,
                              ReferenceTensor gate, const ReferenceTensor &up,
                              mlir::Value down, mlir::Value downBias);

} // namespace stem::reference

#endif // STEM_LIB_REFERENCE_MACHINE_H
