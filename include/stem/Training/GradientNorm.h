//===- GradientNorm.h - The norm over all gradients -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRAINING_GRADIENTNORM_H
#define STEM_TRAINING_GRADIENTNORM_H

#include "stem-c/Runtime.h"

#include <cstdint>
#include <span>
#include <string>

namespace stem {

/// The gradient of a parameter, or the rows of a table's gradient with each id
/// once: two rows of one id would count as |a|^2 + |b|^2 instead of |a + b|^2.
struct NamedGradient {
  std::string name;
  std::span<const float> values;
  /// Of a table's rows; empty for a parameter. For messages.
  std::span<const int32_t> ids = {};
  /// What a message calls the row with an id; empty: by the id.
  std::span<const int32_t> names = {};
};

struct GradientNorm {
  double norm = 0; ///< NaN or infinity where `fault` is not empty
  /// The first tensor, in the order given, with NaN or infinity, and where it
  /// holds it: "lm_head.weight has nan in element 5".
  std::string fault;
};

/// The root of the sum of squares of all values, in f64. The order of the sum
/// depends on the sizes alone.
GradientNorm globalNorm(stem_context *context,
                        std::span<const NamedGradient> gradients);

/// What gradients are multiplied by so that their norm is at most `limit`.
/// Throws an Error for a limit that is not above 0, and for a norm that is not
/// finite.
double clipScale(double norm, double limit);

/// sum += gradient, for the micro-batches of a step.
void addGradient(stem_context *context, std::span<const float> gradient,
                 std::span<float> sum);

} // namespace stem

#endif // STEM_TRAINING_GRADIENTNORM_H
