//===- Phases.h - What ends a phase -----------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_PHASES_H
#define STEM_TRANSFORMS_PHASES_H

#include "mlir/IR/BuiltinOps.h"

namespace stem {

/// Reports every op inside the module that `isLegal` refuses, then fails if
/// there was one. `phase` names the phase in the message. Bodies of linalg ops
/// are not looked into.
mlir::LogicalResult
verifyPhase(mlir::ModuleOp module, llvm::StringRef phase,
            llvm::function_ref<bool(mlir::Operation *)> isLegal);

/// An op of the dialect that the structured phase or a later one makes:
/// StemScheduleOps.td.
bool isStructuredStemOp(mlir::Operation *op);

/// An op of the dialect that later phases do not make themselves: what the
/// import and the graph phase may hold.
bool isGraphStemOp(mlir::Operation *op);

/// What exporters leave around the ops that Stem recognises and every later
/// phase lowers as it is: reshapes and casts of tensors, linalg ops whose loops
/// are all parallel, and numbers that leave a tensor or become one.
bool isElementwiseOrReshape(mlir::Operation *op);

} // namespace stem

#endif // STEM_TRANSFORMS_PHASES_H
