//===- VectorizeLanes.h - How 16 iterations become lanes --------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The analysis half of stem-vectorize: decides, before any IR is written,
// which loop of a linalg op is cut into groups of 16 iterations and what each
// value of its body is in such a group.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_VECTORIZELANES_H
#define STEM_LIB_TRANSFORMS_VECTORIZELANES_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <optional>
#include <string>

namespace stem {

constexpr int64_t kVectorLanes = 16;

/// What a value is in 16 consecutive iterations.
enum class Lanes {
  Uniform,    ///< the same in all of them
  Contiguous, ///< an index, one more in each
  Varying,    ///< a vector
};

struct LanePlan {
  /// The loop cut into groups; it becomes the innermost one.
  unsigned dim;
  bool isReduction;
  /// Of the body's arguments and results; values from outside are uniform.
  llvm::DenseMap<mlir::Value, Lanes> lanes;
  /// For a reduction, the op that combines each output with its accumulator.
  llvm::SmallVector<mlir::Operation *> combiners;

  Lanes lookup(mlir::Value value) const {
    auto it = lanes.find(value);
    return it == lanes.end() ? Lanes::Uniform : it->second;
  }
};

/// The plan of the innermost loop that can be cut: the last iterator if
/// possible, else another parallel one. On failure `reason` says why the last
/// iterator cannot.
std::optional<LanePlan> planLanes(mlir::linalg::LinalgOp op,
                                  std::string &reason);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_VECTORIZELANES_H
