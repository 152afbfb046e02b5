//===- StemVjp.h - Derivatives of ops of other dialects ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_STEMVJP_H
#define STEM_DIALECT_STEM_STEMVJP_H

#include "mlir/IR/Value.h"

namespace mlir {
class DialectRegistry;
class Location;
class OpBuilder;
} // namespace mlir

namespace stem {

/// Attaches VjpOpInterface to the arith ops that stand between stem ops: addf,
/// subf, mulf, negf, extf and truncf, on tensors.
void registerVjpModels(mlir::DialectRegistry &registry);

/// A cotangent in the element type of `type`: f32 and f64 become each other.
mlir::Value convertCotangent(mlir::OpBuilder &builder, mlir::Location loc,
                             mlir::Value cotangent, mlir::Type type);

} // namespace stem

#endif // STEM_DIALECT_STEM_STEMVJP_H
