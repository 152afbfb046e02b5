//===- OpTable.h - A function for each kind of op ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_REFERENCE_OPTABLE_H
#define STEM_LIB_REFERENCE_OPTABLE_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace stem::reference {

template <typename FunctionT> class OpTable {
public:
  /// Ops of several dialects may do the same.
  template <typename... Ops> OpTable &add(FunctionT function) {
    (functions.try_emplace(mlir::TypeID::get<Ops>(), function), ...);
    return *this;
  }

  /// Null for an op that is not in the table.
  const FunctionT *find(mlir::Operation *op) const {
    auto found = functions.find(op->getName().getTypeID());
    return found == functions.end() ? nullptr : &found->second;
  }

private:
  llvm::DenseMap<mlir::TypeID, FunctionT> functions;
};

} // namespace stem::reference

#endif // STEM_LIB_REFERENCE_OPTABLE_H
