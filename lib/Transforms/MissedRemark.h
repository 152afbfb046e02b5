//===- MissedRemark.h - Why something stays slow ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_MISSEDREMARK_H
#define STEM_LIB_TRANSFORMS_MISSEDREMARK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"

namespace stem {

/// Says with a remark that an optimisation was missed at `op`, and why. `name`
/// and `category` are what filters of remarks take.
inline void remarkMissed(mlir::Operation *op, llvm::StringRef name,
                         llvm::StringRef category, llvm::StringRef reason) {
  auto function = op->getParentOfType<mlir::func::FuncOp>();
  mlir::remark::missed(
      op->getLoc(),
      mlir::remark::RemarkOpts::name(name).category(category).function(
          function ? function.getName() : llvm::StringRef()))
      << mlir::remark::reason("{0}", reason);
}

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_MISSEDREMARK_H
