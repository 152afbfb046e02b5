//===- GradientOps.h - What gradient ops share -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_REFERENCE_GRADIENTOPS_H
#define STEM_LIB_REFERENCE_GRADIENTOPS_H

#include "Machine.h"

namespace stem::reference {

/// `dx = cotangent W`.
mlir::FailureOr<ReferenceTensor> inputVjp(Machine &machine, mlir::Operation *op,
                                          const ReferenceTensor &cotangent,
                                          const WeightView &weight);

/// `dW = cotangent^T x`.
mlir::FailureOr<ReferenceTensor> weightVjp(Machine &machine,
                                           mlir::Operation *op,
                                           const ReferenceTensor &x,
                                           const ReferenceTensor &cotangent);

/// Makes the cotangent of `logits` in place: softmax less the label, times the
/// token's cotangent. Gives each token's loss.
mlir::FailureOr<ReferenceTensor>
differentiateLoss(mlir::Operation *op, ReferenceTensor &logits,
                  const ReferenceTensor &labels,
                  const ReferenceTensor &cotangent);

/// The losses of a head and of the teacher's distribution beside it.
struct DistillationLosses {
  ReferenceTensor nll, kl;
};

/// The same against labels and the distribution that `teacher` has logits of,
/// which becomes that distribution.
mlir::FailureOr<DistillationLosses> differentiateDistillation(
    mlir::Operation *op, ReferenceTensor &logits, ReferenceTensor &teacher,
    const ReferenceTensor &labels, const ReferenceTensor &nllCotangent,
    const ReferenceTensor &klCotangent);

double siluDerivative(double x);

/// Fails where the sizes of a cotangent are not those of its value.
mlir::LogicalResult expectCotangent(mlir::Operation *op,
                                    const ReferenceTensor &cotangent,
                                    const ReferenceTensor &x);

/// Sets a result, unless making it has failed.
mlir::LogicalResult setResult(Machine &machine, mlir::Operation *op,
                              mlir::Value result,
                              mlir::FailureOr<ReferenceTensor> value);

} // namespace stem::reference

#endif // STEM_LIB_REFERENCE_GRADIENTOPS_H
