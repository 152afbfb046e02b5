//===- RowUses.cpp - What reads the rows of a lookup ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowUses.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stem;

/// Whether a result of `op`, which holds `use` or is its owner, may lie in the
/// memory of what is used there.
bool RowUses::isView(OpOperand &use, Operation *op, unsigned result) {
  if (!isa<TensorType, BaseMemRefType>(op->getResult(result).getType()))
    return false;
  if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(
        call, call.getCalleeAttr());
    return !callee || returned(callee, use.getOperandNumber()).test(result);
  }
  // Of what its tiles read, a loop keeps nothing but what they write.
  if (isa<scf::ForallOp>(op))
    return use.getOwner() == op;
  // Two may become their first operand; every other op gives new values.
  return !isa_and_present<StemDialect>(op->getDialect()) ||
         isa<MixOp, SelectUpOp>(op);
}

RowUses::Values RowUses::views(Value value) {
  Block *block = value.getParentBlock();
  Values values;
  values.insert(value);
  for (size_t i = 0; i < values.size(); ++i)
    for (OpOperand &use : values[i].getUses()) {
      Operation *op = block->findAncestorOpInBlock(*use.getOwner());
      if (!op)
        continue;
      for (OpResult result : op->getResults())
        if (isView(use, op, result.getResultNumber()))
          values.insert(result);
    }
  return values;
}

const llvm::BitVector &RowUses::returned(func::FuncOp function,
                                         unsigned argument) {
  std::pair<Operation *, unsigned> key(function, argument);
  // All of them, until more is known: the function may call itself.
  auto [found, isNew] =
      results.try_emplace(key, llvm::BitVector(function.getNumResults(), true));
  if (!isNew || function.isExternal() || !function.getBody().hasOneBlock())
    return found->second;
  Operation *end = function.getBody().front().getTerminator();
  if (!isa<func::ReturnOp>(end))
    return found->second;
  llvm::BitVector seen(function.getNumResults());
  const Values values = views(function.getArgument(argument));
  for (OpOperand &operand : end->getOpOperands())
    if (values.contains(operand.get()))
      seen.set(operand.getOperandNumber());
  return results[key] = std::move(seen);
}

SmallVector<Operation *> RowUses::readers(Value value) {
  Block *block = value.getParentBlock();
  llvm::SetVector<Operation *> ops;
  for (Value view : views(value))
    for (Operation *user : view.getUsers())
      if (Operation *op = block->findAncestorOpInBlock(*user))
        ops.insert(op);
  SmallVector<Operation *> sorted = ops.takeVector();
  llvm::sort(sorted,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return sorted;
}
