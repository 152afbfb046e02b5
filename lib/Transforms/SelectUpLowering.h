//===- SelectUpLowering.h - The tokens that keep the matrix ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_SELECTUPLOWERING_H
#define STEM_LIB_TRANSFORMS_SELECTUPLOWERING_H

#include "stem/Dialect/Stem/StemDialect.h"

namespace stem {

/// Gives x * weight^T in `acc`, f32 `[T, N]`.
using MultiplyInto = llvm::function_ref<mlir::Value(
    mlir::OpBuilder &, mlir::Location, mlir::Value x, mlir::Value weight,
    mlir::Value acc)>;

/// The result of `op`: the selected tokens are found and gathered, `multiply`
/// gets them alone, and their products take the places of their rows.
mlir::Value buildSelectUp(mlir::OpBuilder &builder, SelectUpOp op,
                          MultiplyInto multiply);

/// The rows of the tokens that `op` keeps, zeros for the others.
mlir::Value buildKeepSelected(mlir::OpBuilder &builder, KeepSelectedOp op);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_SELECTUPLOWERING_H
