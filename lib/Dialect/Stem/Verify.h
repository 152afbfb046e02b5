//===- Verify.h - What verifiers have in common -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_DIALECT_STEM_VERIFY_H
#define STEM_LIB_DIALECT_STEM_VERIFY_H

#include "mlir/IR/Operation.h"

#include <optional>

namespace stem::verify {

int64_t dim(mlir::Value value, unsigned index);

/// Fails with "<what> must be <why>, which is <wanted>, got <seen>" when the
/// two differ and both are known.
mlir::LogicalResult expectSize(mlir::Operation *op, const char *what,
                               int64_t seen, int64_t wanted, const char *why);

mlir::LogicalResult expectShapeOf(mlir::Operation *op, const char *what,
                                  mlir::Value seen, mlir::Value wanted,
                                  const char *of);

mlir::LogicalResult expectBias(mlir::Operation *op, mlir::Value bias,
                               int64_t outputs, const char *what);

/// An RMS norm over groups of as many columns of `x` as `weight` has elements,
/// with a positive `eps`.
mlir::LogicalResult expectNorm(mlir::Operation *op, mlir::Value x,
                               mlir::Value weight, const llvm::APFloat &eps);

/// `id` is null or one of `rows`.
mlir::LogicalResult expectPaddingId(mlir::Operation *op,
                                    std::optional<uint64_t> id, int64_t rows);

/// `[T, H]` for queries `q`, whose head_dim divides their columns.
mlir::LogicalResult expectLogSumExp(mlir::Operation *op, const char *what,
                                    mlir::Value seen, mlir::Value q,
                                    int64_t headDim);

/// Constraints C1 to C3 of stem.attention.
mlir::LogicalResult expectHeads(mlir::Operation *op, mlir::Value q,
                                mlir::Value k, mlir::Value v, int64_t headDim);

/// One result of the type of the destination on tensors, none on buffers.
mlir::LogicalResult verifyDestination(mlir::Operation *op, mlir::Value input,
                                      mlir::Value destination,
                                      const char *name);

} // namespace stem::verify

#endif // STEM_LIB_DIALECT_STEM_VERIFY_H
