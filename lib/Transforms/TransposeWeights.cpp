//===- TransposeWeights.cpp - Weights for products backwards --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MissedRemark.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FormatVariadic.h"

namespace stem {
#define GEN_PASS_DEF_STEMTRANSPOSEWEIGHTSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

struct TransposeWeightsPass
    : public stem::impl::StemTransposeWeightsPassBase<TransposeWeightsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    calls.clear();
    transposed.clear();
    changed.clear();
    collectCalls(module);
    SmallVector<Operation *> readers;
    module.walk([&](Operation *op) {
      if (isa<LinearInputVjpOp, CrossEntropyStepOp, DistillationStepOp>(op))
        readers.push_back(op);
    });
    for (Operation *op : readers) {
      if (auto vjp = dyn_cast<LinearInputVjpOp>(op))
        rewrite(vjp);
      else if (auto step = dyn_cast<CrossEntropyStepOp>(op))
        addTransposed(step);
      else
        addTransposed(cast<DistillationStepOp>(op));
    }
    // What a callee takes no more its callers need not pass on.
    for (bool removed = true; removed;) {
      removed = false;
      for (func::FuncOp function : changed)
        removed |= eraseUnusedArguments(function);
    }
    // Loads that nothing reads any more.
    module.walk([](ParamLoadOp load) {
      if (load->use_empty())
        load.erase();
    });
  }

private:
  /// Of private functions whose uses are all calls.
  void collectCalls(ModuleOp module) {
    for (auto function : module.getOps<func::FuncOp>()) {
      auto users = SymbolTable::getSymbolUses(function, module);
      if (function.isExternal() || !function.isPrivate() || !users ||
          users->empty())
        continue;
      SmallVector<func::CallOp> callers;
      for (const SymbolTable::SymbolUse &use : *users)
        callers.push_back(dyn_cast<func::CallOp>(use.getUser()));
      if (!llvm::is_contained(callers, func::CallOp()))
        calls[function] = callers;
    }
  }

  static RankedTensorType transposedType(Type type) {
    auto matrix = dyn_cast<RankedTensorType>(type);
    if (!matrix || matrix.getRank() != 2)
      return {};
    return matrix.clone({matrix.getDimSize(1), matrix.getDimSize(0)});
  }

  /// Null when `weight` is neither a parameter nor passed on from one;
  /// `reason` says then why.
  Value transposeOf(Value weight) {
    RankedTensorType type = transposedType(weight.getType());
    if (!type) {
      reason = llvm::formatv("{0} is no matrix to transpose: run "
                             "stem-transpose-weights before stem-pack-weights",
                             weight.getType())
                   .str();
      return {};
    }
    if (Value known = transposed.lookup(weight))
      return known;
    if (auto load = weight.getDefiningOp<ParamLoadOp>()) {
      OpBuilder builder(&getContext());
      builder.setInsertionPointAfter(load);
      Value result =
          ParamLoadOp::create(builder, load.getLoc(), type, load.getParam(),
                              /*transposed=*/!load.getTransposed());
      return transposed[weight] = result;
    }
    return transposeOfArgument(weight, type);
  }

  Value transposeOfArgument(Value weight, RankedTensorType type) {
    auto argument = dyn_cast<BlockArgument>(weight);
    auto function =
        argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp())
                 : func::FuncOp();
    if (!function) {
      reason = "the weight is no parameter, nor an argument that is given one";
      return {};
    }
    if (!calls.contains(function)) {
      reason = llvm::formatv("the weight is an argument of @{0}, whose callers "
                             "are not all known: the function is public, or "
                             "something other than a call refers to it",
                             function.getSymName())
                   .str();
      return {};
    }
    // A function that calls itself passes on what is asked for already.
    if (!visiting.insert(weight).second) {
      reason = llvm::formatv("the weight is an argument that @{0} passes to "
                             "itself",
                             function.getSymName())
                   .str();
      return {};
    }
    llvm::scope_exit leave([&] { visiting.erase(weight); });
    SmallVector<Value> passed;
    for (func::CallOp call : calls[function]) {
      passed.push_back(transposeOf(call.getOperand(argument.getArgNumber())));
      if (!passed.back())
        return {};
    }
    unsigned position = function.getNumArguments();
    (void)function.insertArgument(position, type, {}, weight.getLoc());
    for (auto [call, value] : llvm::zip_equal(calls[function], passed))
      call.getOperandsMutable().append(value);
    changed.insert(function);
    return transposed[weight] = function.getArgument(position);
  }

  // Pattern: linear_input_vjp(c, w) -> linear(c, transposed w)
  void rewrite(LinearInputVjpOp op) {
    Value weight = transposeOf(op.getWeight());
    if (!weight)
      return explain(op);
    OpBuilder builder(op);
    Value result =
        LinearOp::create(builder, op.getLoc(), op.getType(), op.getCotangent(),
                         weight, /*bias=*/Value());
    op.getResult().replaceAllUsesWith(result);
    op.erase();
  }

  template <typename Op> void addTransposed(Op op) {
    if (op.getTransposed())
      return;
    Value head = transposeOf(op.getHead());
    if (!head)
      return explain(op);
    op.getTransposedMutable().assign(head);
  }

  void explain(Operation *op) {
    remarkMissed(op, "NotTransposed", "stem-transpose-weights", reason);
  }

  /// Whether there were any.
  bool eraseUnusedArguments(func::FuncOp function) {
    llvm::BitVector unused(function.getNumArguments());
    for (BlockArgument argument : function.getArguments())
      if (argument.use_empty())
        unused.set(argument.getArgNumber());
    if (unused.none() || failed(function.eraseArguments(unused)))
      return false;
    for (func::CallOp call : calls[function])
      call->eraseOperands(unused);
    return true;
  }

  llvm::MapVector<func::FuncOp, SmallVector<func::CallOp>> calls;
  llvm::DenseMap<Value, Value> transposed;
  llvm::DenseSet<Value> visiting;
  llvm::SetVector<func::FuncOp> changed;
  /// Why the last transposeOf() gave nothing.
  std::string reason;
};

} // namespace
