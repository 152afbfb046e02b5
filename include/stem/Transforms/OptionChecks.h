//===- OptionChecks.h - Ranges of the numbers among pass options *- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_OPTIONCHECKS_H
#define STEM_TRANSFORMS_OPTIONCHECKS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <cstdint>
#include <limits>

namespace stem {

/// What an option may be.
struct OptionRange {
  int64_t least;
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t multiple = 1;
};

/// Reports a number outside of its range. For `initialize` of a pass: one
/// message, before any pass of the pipeline runs.
inline llvm::LogicalResult checkOption(mlir::MLIRContext *context,
                                       llvm::StringRef name, int64_t value,
                                       OptionRange range) {
  if (value >= range.least && value <= range.most &&
      value % range.multiple == 0)
    return llvm::success();
  auto diag = mlir::emitError(mlir::UnknownLoc::get(context))
              << name << " is " << value << "; wanted ";
  if (range.multiple > 1)
    diag << "a multiple of " << range.multiple << ", ";
  diag << "at least " << range.least;
  if (range.most != std::numeric_limits<int64_t>::max())
    diag << " and at most " << range.most;
  return diag;
}

template <typename OptionT>
llvm::LogicalResult checkOption(mlir::MLIRContext *context,
                                const OptionT &option, OptionRange range) {
  return checkOption(context, option.ArgStr, option.getValue(), range);
}

} // namespace stem

#endif // STEM_TRANSFORMS_OPTIONCHECKS_H
