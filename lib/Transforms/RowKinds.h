//===- RowKinds.h - What a dynamic size counts ------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_ROWKINDS_H
#define STEM_LIB_TRANSFORMS_ROWKINDS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"

namespace stem {

/// What the rows of a buffer stand for.
enum class RowKind { Unknown, Tokens, Outputs };

/// The call graph of a module and, for each function, what the leading size of
/// its arguments counts. An argument attribute `stem.rows` says so; else a
/// function has what its callers agree on, and the tokens if it has none and
/// is no entry.
class RowKinds {
public:
  /// Reports recursion, unknown callees and bad attributes.
  mlir::LogicalResult run(mlir::ModuleOp module);

  llvm::ArrayRef<mlir::func::FuncOp> getCallersFirst() const {
    return callersFirst;
  }
  mlir::func::FuncOp getCallee(mlir::func::CallOp call) const {
    return callees.lookup(call);
  }

  /// What the value of a size, an index, counts.
  RowKind ofSize(mlir::Value size) const;
  /// What size `dim` of a buffer counts.
  RowKind ofDim(mlir::Value buffer, int64_t dim) const;
  /// An argument whose leading size counts `kind`; null if there is none.
  mlir::Value findArgument(mlir::func::FuncOp function, RowKind kind) const;

private:
  mlir::LogicalResult findCalls(mlir::ModuleOp module);
  RowKind ofArgument(mlir::func::FuncOp function, unsigned number,
                     llvm::ArrayRef<mlir::func::CallOp> callers) const;
  mlir::LogicalResult readAttributes(mlir::func::FuncOp function);
  mlir::LogicalResult visit(mlir::func::FuncOp function);

  llvm::DenseMap<mlir::Operation *, mlir::func::FuncOp> callees;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::func::CallOp>>
      calls;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<RowKind>> kinds;
  llvm::DenseMap<mlir::Operation *, bool> finished;
  llvm::SmallVector<mlir::func::FuncOp> callersFirst;
};

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_ROWKINDS_H
