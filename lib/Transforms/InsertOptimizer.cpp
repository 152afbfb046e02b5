//===- InsertOptimizer.cpp - Updates where gradients are complete ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TilingUtils.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"

namespace stem {
#define GEN_PASS_DEF_STEMINSERTOPTIMIZERPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// A result that is a gradient, of a parameter or of a table's rows.
struct Gradient {
  unsigned result;
  FlatSymbolRefAttr of;
  Value value;
  bool isDense;
  int64_t place = 0; ///< among the norms
  Value sum;         ///< of squares
  /// Of a parameter: the weight in f32 and its moments, before and after.
  SmallVector<Value, 3> state, updated;
};

struct InsertOptimizerPass
    : public stem::impl::StemInsertOptimizerPassBase<InsertOptimizerPass> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    auto check = [&](StringRef name, double value, bool holds,
                     StringRef wanted) {
      if (!holds)
        emitError(UnknownLoc::get(context))
            << name << " is " << value << "; wanted " << wanted;
      return holds;
    };
    constexpr StringLiteral betas = "0 or more, less than 1";
    return success(check("stem-beta1", beta1, isBeta(beta1), betas) &&
                   check("stem-beta2", beta2, isBeta(beta2), betas) &&
                   check("stem-epsilon", epsilon, isEpsilon(epsilon),
                         "1e-12 to 1, for moments are kept in f32"));
  }

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    auto step = symbols.lookup<func::FuncOp>(function.getValue());
    if (!step || step.isExternal()) {
      getOperation().emitError()
          << "stem-function is '" << function.getValue()
          << "', and the module has no function of that name with a body";
      return signalPassFailure();
    }
    SmallVector<Gradient> gradients;
    if (failed(collect(step, symbols, gradients)))
      return signalPassFailure();
    if (llvm::none_of(gradients, [](const Gradient &g) { return g.isDense; }))
      return;
    if (failed(verifyPlaces(step, gradients)))
      return signalPassFailure();
    rewrite(step, gradients);
  }

private:
  LogicalResult collect(func::FuncOp step, SymbolTable &symbols,
                        SmallVectorImpl<Gradient> &gradients);
  LogicalResult verifyDense(func::FuncOp step, const Gradient &gradient);
  LogicalResult verifyPlaces(func::FuncOp step, ArrayRef<Gradient> gradients);
  void rewrite(func::FuncOp step, MutableArrayRef<Gradient> gradients);
  void addState(func::FuncOp step, Gradient &gradient);
  Operation *addSum(Gradient &gradient, Operation *last);
  void update(OpBuilder &builder, Gradient &gradient, Value scale);
  Value normsOf(OpBuilder &builder, Location loc, ArrayRef<Gradient> gradients);
  BlockArgument addArgument(func::FuncOp step, Type type, const Twine &name,
                            bool isOutput, FlatSymbolRefAttr stateOf = {});
  void replaceResults(func::FuncOp step, ArrayRef<Gradient> gradients,
                      Value norms);

  /// `optimizer_step`.
  Value scalars;
  /// Of the squares of all gradients so far, a number: in one tensor,
  /// bufferization would compare each sum with each read of those before.
  Value total;
};

Operation *terminatorOf(func::FuncOp function) {
  return function.getBody().front().getTerminator();
}

//===----------------------------------------------------------------------===//
// What there is to update
//===----------------------------------------------------------------------===//

/// Dense ones first, then those of tables, each in the order of the results.
LogicalResult
InsertOptimizerPass::collect(func::FuncOp step, SymbolTable &symbols,
                             SmallVectorImpl<Gradient> &gradients) {
  if (!step.getBody().hasOneBlock())
    return step.emitOpError("has more than one block: gradients are complete "
                            "in an order that is known");
  for (unsigned i = 0; i < step.getNumResults(); ++i) {
    auto of = step.getResultAttrOfType<FlatSymbolRefAttr>(
        i, StemDialect::kGradientOfAttr);
    if (!of)
      continue;
    Operation *symbol = symbols.lookup(of.getValue());
    if (!isa_and_present<ParamOp, TableOp>(symbol))
      return step.emitOpError()
             << "result " << i << " is the gradient of '" << of.getValue()
             << "', which is neither a stem.param nor a stem.table";
    Gradient &gradient = gradients.emplace_back();
    gradient.result = i;
    gradient.of = of;
    gradient.value = terminatorOf(step)->getOperand(i);
    gradient.isDense = isa<ParamOp>(symbol);
    if (failed(verifyDense(step, gradient)))
      return failure();
  }
  llvm::sort(gradients, [](const Gradient &a, const Gradient &b) {
    return std::pair(!a.isDense, a.result) < std::pair(!b.isDense, b.result);
  });
  for (auto [place, gradient] : llvm::enumerate(gradients))
    gradient.place = place;
  return success();
}

LogicalResult InsertOptimizerPass::verifyDense(func::FuncOp step,
                                               const Gradient &gradient) {
  auto type = dyn_cast<RankedTensorType>(gradient.value.getType());
  bool fits = type && type.getElementType().isF32() &&
              (type.getRank() == 1 || type.getRank() == 2);
  if (fits && gradient.isDense)
    fits = type.hasStaticShape();
  if (fits)
    return success();
  return step.emitOpError()
         << "result " << gradient.result << ", the gradient of '"
         << gradient.of.getValue() << "', is " << gradient.value.getType()
         << "; wanted a "
         << (gradient.isDense ? "vector or matrix of f32 with static sizes"
                              : "matrix of f32 rows: run "
                                "stem-unpair-row-gradients before");
}

LogicalResult InsertOptimizerPass::verifyPlaces(func::FuncOp step,
                                                ArrayRef<Gradient> gradients) {
  if (!SymbolTable::symbolKnownUseEmpty(step, getOperation()))
    return step.emitOpError("is called: only an entry that nothing calls can "
                            "get the arguments of an optimizer");
  for (unsigned i = 0; i < step.getNumArguments(); ++i)
    if (auto of = step.getArgAttrOfType<FlatSymbolRefAttr>(
            i, StemDialect::kStateOfAttr))
      return step.emitOpError()
             << "updates '" << of.getValue() << "' already: argument " << i
             << " has '" << StemDialect::kStateOfAttr << "'";
  unsigned outputs = countOutputs(step);
  for (const Gradient &gradient : gradients)
    if (gradient.result < outputs)
      return step.emitOpError()
             << "result " << gradient.result << ", the gradient of '"
             << gradient.of.getValue()
             << "', is built in an argument already; run stem-insert-optimizer "
                "before stem-results-to-arguments";
  return success();
}

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

BlockArgument InsertOptimizerPass::addArgument(func::FuncOp step, Type type,
                                               const Twine &name, bool isOutput,
                                               FlatSymbolRefAttr stateOf) {
  Builder builder(&getContext());
  SmallVector<NamedAttribute> attributes = {builder.getNamedAttr(
      StemDialect::kNameAttr, builder.getStringAttr(name))};
  if (isOutput)
    attributes.push_back(
        builder.getNamedAttr(StemDialect::kOutputAttr, builder.getUnitAttr()));
  if (stateOf)
    attributes.push_back(
        builder.getNamedAttr(StemDialect::kStateOfAttr, stateOf));
  unsigned index = step.getNumArguments();
  (void)step.insertArgument(index, type, builder.getDictionaryAttr(attributes),
                            step.getLoc());
  return step.getArgument(index);
}

void InsertOptimizerPass::addState(func::FuncOp step, Gradient &gradient) {
  for (const char *what : {"weight", "first moment", "second moment"})
    gradient.state.push_back(
        addArgument(step, gradient.value.getType(),
                    Twine(what) + " of " + gradient.of.getValue(),
                    /*isOutput=*/true, gradient.of));
}

/// Results: what is built in arguments so far, the states, `norms`, the rest.
void InsertOptimizerPass::replaceResults(func::FuncOp step,
                                         ArrayRef<Gradient> gradients,
                                         Value norms) {
  // Before the new arguments of states and norms.
  unsigned outputs = countOutputs(step) - 1;
  for (const Gradient &gradient : gradients)
    outputs -= gradient.state.size();
  Operation *terminator = terminatorOf(step);
  SmallVector<Value> values;
  SmallVector<DictionaryAttr> attributes;
  auto keep = [&](unsigned i) {
    values.push_back(terminator->getOperand(i));
    DictionaryAttr own = step.getResultAttrDict(i);
    attributes.push_back(own ? own : DictionaryAttr::get(&getContext()));
  };
  auto add = [&](ArrayRef<Value> added) {
    llvm::append_range(values, added);
    attributes.resize(values.size(), DictionaryAttr::get(&getContext()));
  };
  for (unsigned i = 0; i < outputs; ++i)
    keep(i);
  for (const Gradient &gradient : gradients)
    add(gradient.updated);
  add(norms);
  for (unsigned i = outputs; i < step.getNumResults(); ++i)
    if (llvm::none_of(gradients, [&](const Gradient &gradient) {
          return gradient.isDense && gradient.result == i;
        }))
      keep(i);
  terminator->setOperands(values);
  step.setFunctionType(
      FunctionType::get(&getContext(), step.getArgumentTypes(),
                        llvm::to_vector(ValueRange(values).getTypes())));
  step.setAllResultAttrs(attributes);
}

//===----------------------------------------------------------------------===//
// Sums and updates
//===----------------------------------------------------------------------===//

/// Behind the gradient, and behind `last`, the last op that was inserted so
/// far. Gives the last one then.
Operation *InsertOptimizerPass::addSum(Gradient &gradient, Operation *last) {
  Location loc = gradient.value.getLoc();
  OpBuilder builder(&getContext());
  builder.setInsertionPointAfterValue(gradient.value);
  if (last && !last->isBeforeInBlock(&*builder.getInsertionPoint()))
    builder.setInsertionPointAfter(last);
  Value zero = arith::ConstantOp::create(
      builder, loc,
      DenseElementsAttr::get(RankedTensorType::get({1}, builder.getF64Type()),
                             0.0));
  Value sum = SumSquaresOp::create(builder, loc, gradient.value, zero, 0);
  gradient.sum = tensor::ExtractOp::create(
      builder, loc, sum,
      ValueRange{arith::ConstantIndexOp::create(builder, loc, 0)});
  total = total ? arith::AddFOp::create(builder, loc, total, gradient.sum)
                : gradient.sum;
  return total.getDefiningOp();
}

void InsertOptimizerPass::update(OpBuilder &builder, Gradient &gradient,
                                 Value scale) {
  auto type = cast<RankedTensorType>(gradient.value.getType());
  auto op = AdamWOp::create(
      builder, gradient.value.getLoc(), gradient.value, gradient.state[0],
      gradient.state[1], gradient.state[2], scalars, scale,
      builder.getF64FloatAttr(beta1), builder.getF64FloatAttr(beta2),
      builder.getF64FloatAttr(epsilon),
      type.getRank() > 1 ? builder.getUnitAttr() : UnitAttr());
  llvm::append_range(gradient.updated, op.getResults());
}

Value InsertOptimizerPass::normsOf(OpBuilder &builder, Location loc,
                                   ArrayRef<Gradient> gradients) {
  SmallVector<Value> sums;
  for (const Gradient &gradient : gradients)
    sums.push_back(gradient.sum);
  Value all = tensor::FromElementsOp::create(builder, loc, sums);
  Value norms = math::SqrtOp::create(builder, loc, all);
  auto type = cast<RankedTensorType>(all.getType());
  return arith::TruncFOp::create(builder, loc, type.clone(builder.getF32Type()),
                                 norms);
}

void InsertOptimizerPass::rewrite(func::FuncOp step,
                                  MutableArrayRef<Gradient> gradients) {
  Location loc = step.getLoc();
  OpBuilder builder(&getContext());
  scalars = addArgument(step, RankedTensorType::get({3}, builder.getF32Type()),
                        "optimizer_step", /*isOutput=*/false);
  total = {};
  SmallVector<Gradient *> byCompletion;
  for (Gradient &gradient : gradients) {
    if (gradient.isDense)
      addState(step, gradient);
    byCompletion.push_back(&gradient);
  }
  llvm::sort(byCompletion, [](const Gradient *a, const Gradient *b) {
    Operation *first = a->value.getDefiningOp();
    Operation *second = b->value.getDefiningOp();
    if (first == second)
      return a->place < b->place;
    return second && (!first || first->isBeforeInBlock(second));
  });

  Operation *last = nullptr;
  for (Gradient *gradient : byCompletion) {
    last = addSum(*gradient, last);
    if (!gradient->isDense)
      continue;
    builder.setInsertionPointAfter(last);
    Value sums = tensor::FromElementsOp::create(builder, loc, total);
    update(builder, *gradient, GradientScaleOp::create(builder, loc, sums));
    last = gradient->updated.front().getDefiningOp();
  }
  builder.setInsertionPoint(terminatorOf(step));
  Value norms = normsOf(builder, loc, gradients);
  addArgument(step, norms.getType(), "gradient_norms", /*isOutput=*/true);
  replaceResults(step, gradients, norms);
}

} // namespace
