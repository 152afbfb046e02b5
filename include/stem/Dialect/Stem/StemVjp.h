//===- StemVjp.h - Derivatives of ops of other dialects ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_STEMVJP_H
#define STEM_DIALECT_STEM_STEMVJP_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace stem {

/// Attaches VjpOpInterface to the arith ops that stand between stem ops: addf,
/// subf, mulf, negf, extf and truncf, on tensors.
void registerVjpModels(mlir::DialectRegistry &registry);

} // namespace stem

#endif // STEM_DIALECT_STEM_STEMVJP_H
