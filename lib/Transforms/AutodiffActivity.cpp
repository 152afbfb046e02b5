//===- AutodiffActivity.cpp - What depends on a weight --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AutodiffActivity.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace stem;

/// Integers, ids among them, and handles of caches have no derivative.
static bool mayVary(Type type) {
  return !getElementTypeOrSelf(type).isIntOrIndex() && !isa<KVCacheType>(type);
}

/// What an op in another's region does is not counted here.
static bool readsMemory(Operation *op) {
  return !isa<func::CallOp, TableRowsOp>(op) &&
         !op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() &&
         !isMemoryEffectFree(op);
}

/// `function` and what it calls, directly or through others.
llvm::SetVector<func::FuncOp>
Activity::reachableFrom(func::FuncOp function) const {
  llvm::SetVector<func::FuncOp> functions;
  functions.insert(function);
  for (size_t i = 0; i < functions.size(); ++i) {
    func::FuncOp caller = functions[i];
    caller.walk([&](func::CallOp call) {
      if (func::FuncOp callee = calleeOf(call))
        functions.insert(callee);
    });
  }
  return functions;
}

// Gradients are results of the root, so that is where weights are loaded.
LogicalResult Activity::verifyCallees() {
  for (func::FuncOp function : reachableFrom(root)) {
    if (function == root)
      continue;
    WalkResult result = function.walk([&](Operation *op) {
      if (!isa<ParamLoadOp, TableLoadOp>(op) || !isSource(op))
        return WalkResult::advance();
      op->emitError() << "loads a weight in '" << function.getName()
                      << "', which is called: load it in '" << root.getName()
                      << "' and pass it on, or give the symbol "
                      << StemDialect::kFrozenAttr;
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

/// Whether it is used, in called functions too, and always as data.
bool Activity::isData(BlockArgument argument) const {
  llvm::SetVector<Value> values;
  values.insert(argument);
  bool isTaken = false;
  for (size_t i = 0; i < values.size(); ++i)
    for (OpOperand &use : values[i].getUses()) {
      auto rule = dyn_cast<VjpOpInterface>(use.getOwner());
      if (rule && rule.isDataOperand(use.getOperandNumber())) {
        isTaken = true;
        continue;
      }
      auto call = dyn_cast<func::CallOp>(use.getOwner());
      func::FuncOp callee = call ? calleeOf(call) : func::FuncOp();
      if (!callee || callee.isExternal())
        return false;
      values.insert(callee.getArgument(use.getOperandNumber()));
    }
  return isTaken;
}

bool Activity::isSource(Operation *op) const {
  auto isDerived = [&](StringRef symbol) {
    Operation *state = symbols.lookup(symbol);
    return state && !state->hasAttr(StemDialect::kFrozenAttr);
  };
  if (auto load = dyn_cast<ParamLoadOp>(op))
    return hasCotangent(load.getType()) && isDerived(load.getParam());
  if (auto load = dyn_cast<TableLoadOp>(op))
    return isDerived(load.getTable());
  if (auto rows = dyn_cast<TableRowsOp>(op))
    if (auto load = rows.getTable().getDefiningOp<TableLoadOp>())
      return isDerived(load.getTable());
  return false;
}

bool Activity::callReadsMemory(func::CallOp call) {
  func::FuncOp callee = calleeOf(call);
  if (!callee)
    return false;
  auto [known, isNew] = memoryReaders.try_emplace(callee, false);
  if (isNew)
    known->second =
        llvm::any_of(reachableFrom(callee), [](func::FuncOp function) {
          return function.getBody()
              .walk([](Operation *op) {
                return readsMemory(op) ? WalkResult::interrupt()
                                       : WalkResult::advance();
              })
              .wasInterrupted();
        });
  return known->second;
}

/// Memory may hold what depends on a weight, and so may an unknown callee give
/// it.
bool Activity::mayDepend(Operation *op, const ValueSet &values) {
  return op
      ->walk([&](Operation *inner) {
        auto call = dyn_cast<func::CallOp>(inner);
        bool depends = isSource(inner) || readsMemory(inner) ||
                       (call && callReadsMemory(call)) ||
                       llvm::any_of(inner->getOperands(), [&](Value operand) {
                         return values.contains(operand);
                       });
        return depends ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

Activity::ValueSet Activity::variedValues(func::FuncOp function,
                                          const llvm::BitVector &arguments) {
  ValueSet values;
  for (unsigned index : arguments.set_bits())
    values.insert(function.getArgument(index));
  for (Operation &op : function.getBody().front())
    if (mayDepend(&op, values))
      for (Value result : op.getResults())
        if (mayVary(result.getType()))
          values.insert(result);
  return values;
}

void Activity::followCalls() {
  llvm::BitVector ofRoot(root.getNumArguments());
  for (unsigned i = 0; i < root.getNumArguments(); ++i) {
    // Arguments that results are built in are no inputs.
    BlockArgument argument = root.getArgument(i);
    ofRoot[i] = hasCotangent(argument.getType()) &&
                !root.getArgAttr(i, StemDialect::kOutputAttr) &&
                !isData(argument);
  }
  varied[root] = ofRoot;
  SmallVector<func::FuncOp> work = {root};
  while (!work.empty()) {
    func::FuncOp function = work.pop_back_val();
    ValueSet values = variedValues(function, varied[function]);
    for (auto call : function.getBody().front().getOps<func::CallOp>()) {
      func::FuncOp callee = calleeOf(call);
      llvm::BitVector seen(callee.getNumArguments());
      for (auto [i, operand] : llvm::enumerate(call.getOperands()))
        seen[i] = values.contains(operand);
      if (callee.isExternal() || seen.none())
        continue;
      auto [entry, isNew] = varied.try_emplace(callee, seen);
      if (!isNew && !seen.test(entry->second))
        continue;
      entry->second |= seen;
      work.push_back(callee);
    }
  }
}

LogicalResult Activity::analyze() {
  if (failed(verifyCallees()))
    return failure();
  followCalls();
  return success();
}
