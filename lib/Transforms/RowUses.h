//===- RowUses.h - What reads the rows of a lookup --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_ROWUSES_H
#define STEM_LIB_TRANSFORMS_ROWUSES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

namespace stem {

/// Finds what reads rows that are the table store's, or anything that may lie
/// in their memory once tensors are buffers. What it cannot follow counts as
/// such.
class RowUses {
public:
  /// The ops of the value's block that read it, themselves or in their regions,
  /// in the block's order.
  llvm::SmallVector<mlir::Operation *> readers(mlir::Value value);

private:
  using Values = llvm::SetVector<mlir::Value>;

  Values views(mlir::Value value);
  bool isView(mlir::OpOperand &use, mlir::Operation *op, unsigned result);
  const llvm::BitVector &returned(mlir::func::FuncOp function,
                                  unsigned argument);

  mlir::SymbolTableCollection symbols;
  /// The results in which a function may return an argument.
  llvm::DenseMap<std::pair<mlir::Operation *, unsigned>, llvm::BitVector>
      results;
};

/// Reports every ticket that is not awaited before its rows are read and
/// released once, behind their last use, on every path.
mlir::LogicalResult verifyTables(mlir::ModuleOp module);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_ROWUSES_H
