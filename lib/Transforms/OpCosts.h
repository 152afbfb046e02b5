//===- OpCosts.h - What ops of a phase cost ---------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_OPCOSTS_H
#define STEM_LIB_TRANSFORMS_OPCOSTS_H

#include "stem/Dialect/Stem/StemDialect.h"

namespace stem {

/// The cost of an op with the cost interface or of a linalg op; nothing for
/// others. A dimension that is not known counts as `tokens`.
std::optional<OpCost> getOpCost(mlir::Operation *op, int64_t tokens);

/// How often `op` is executed in one call of its function: the product of the
/// rounds of the loops around it. Sizes of operands that are not known count
/// as `tokens`; a loop whose rounds depend on more than sizes counts once.
int64_t countRounds(mlir::Operation *op, int64_t tokens);

/// The value of an index that depends on sizes alone, by at most `depth` ops
/// one after another.
std::optional<int64_t> evaluateIndex(mlir::OpFoldResult value, int64_t tokens,
                                     int depth = 12);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_OPCOSTS_H
