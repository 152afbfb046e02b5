//===- AutodiffActivity.h - What depends on a weight ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Part of stem-autodiff.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_AUTODIFFACTIVITY_H
#define STEM_LIB_TRANSFORMS_AUTODIFFACTIVITY_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace stem {

/// Which values of a function and of those that it calls may depend on a
/// weight that is not frozen, or on an argument.
class Activity {
public:
  using ValueSet = llvm::DenseSet<mlir::Value>;

  Activity(mlir::func::FuncOp root, const mlir::SymbolTable &symbols)
      : root(root), symbols(symbols) {}

  /// Reports what a called function may not do, and follows the calls.
  mlir::LogicalResult analyze();

  /// A load of what has a gradient, or the rows of such a table.
  bool isSource(mlir::Operation *op) const;
  /// The arguments that vary at some call.
  llvm::BitVector variedArguments(mlir::func::FuncOp function) const {
    return varied.lookup(function);
  }
  /// The values of a function or its clone that vary where these arguments do.
  ValueSet variedValues(mlir::func::FuncOp function,
                        const llvm::BitVector &arguments);
  /// Null in a nested module.
  mlir::func::FuncOp calleeOf(mlir::func::CallOp call) const {
    return symbols.lookup<mlir::func::FuncOp>(call.getCallee());
  }

private:
  llvm::SetVector<mlir::func::FuncOp>
  reachableFrom(mlir::func::FuncOp function) const;
  mlir::LogicalResult verifyCallees();
  void followCalls();
  bool isData(mlir::BlockArgument argument) const;
  bool callReadsMemory(mlir::func::CallOp call);
  bool mayDepend(mlir::Operation *op, const ValueSet &values);

  mlir::func::FuncOp root;
  const mlir::SymbolTable &symbols;
  llvm::MapVector<mlir::Operation *, llvm::BitVector> varied;
  /// Whether a function or one that it calls reads memory.
  llvm::DenseMap<mlir::Operation *, bool> memoryReaders;
};

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_AUTODIFFACTIVITY_H
