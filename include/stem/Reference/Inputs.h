//===- Inputs.h - Seeded arguments of a function ----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_REFERENCE_INPUTS_H
#define STEM_REFERENCE_INPUTS_H

#include "stem/Reference/Interpreter.h"

namespace stem {

inline constexpr int64_t kDefaultTokens = -1;

struct InputOptions {
  uint64_t seed = 0;
  /// Size of every dynamic dimension; `kDefaultTokens` is eight, rounded up to
  /// the function's tile.
  int64_t tokens = kDefaultTokens;
  /// The tokens are cut into this many sequences of consecutive positions.
  int64_t sequences = 1;
  /// Position of the first token of each sequence.
  int64_t past = 0;
  /// Ids lie in [0, idBound) where neither an attribute nor a use says more.
  int64_t idBound = 16;
};

/// Reports an option of an interpreting pass that is outside of its range.
mlir::LogicalResult checkOptions(mlir::MLIRContext *context,
                                 const InputOptions &options, int64_t maxSteps);

/// The parameter or table that an argument holds, by its attribute
/// `stem.param = @symbol` or `stem.table = @symbol`; null where it has none.
mlir::FlatSymbolRefAttr getBoundSymbol(mlir::func::FuncOp function,
                                       unsigned argument);

/// Whether a caller gives the argument, rather than a pass added it: bound to a
/// symbol, or a scratch cache.
bool isGivenArgument(mlir::func::FuncOp function, unsigned argument);

/// One value for each argument. An argument that is bound to a parameter or a
/// table gets its value. The others are taken from `given` in order, or seeded
/// where it is null.
mlir::FailureOr<llvm::SmallVector<ReferenceValue>>
makeInputs(mlir::func::FuncOp function, const Interpreter &interpreter,
           const InputOptions &options,
           const llvm::SmallVector<ReferenceValue> *given = nullptr);

} // namespace stem

#endif // STEM_REFERENCE_INPUTS_H
