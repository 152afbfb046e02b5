//===- AdamStep.h - One step of one element ---------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRAINING_ADAMSTEP_H
#define STEM_LIB_TRAINING_ADAMSTEP_H

#include "stem/Training/AdamW.h"

#include <cmath>
#include <string_view>
#include <xmmintrin.h>

/// The least that the runtime's contexts accept. Elements are independent, so
/// wider vectors would give the same bits.
#define STEM_TARGET __attribute__((target("avx2,fma")))
#define STEM_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

namespace stem {

/// Errors that name the setting and `name`.
void checkOptions(std::string_view name, const AdamWOptions &options);
/// What changes from step to step; `steps` were taken before.
void checkStep(std::string_view name, const AdamWOptions &options,
               int64_t steps, double learningRate, double gradientScale);

/// The scalars of a step.
struct AdamStep {
  AdamStep(const AdamWOptions &options, int64_t step, double learningRate,
           double gradientScale);

  float gradientScale;
  float firstRest;  ///< 1 - beta1
  float secondRest; ///< 1 - beta2
  float rate;       ///< lr / (1 - beta1^t)
  float rootScale;  ///< 1 / sqrt(1 - beta2^t)
  float epsilon;
  float decay; ///< lr decay
};

// Multiply-adds are fused by name: stem.adamw has the same bits, which must not
// depend on how this is compiled.

/// A moment after a step. The mean of a constant is that constant whatever the
/// rounding of 1 - beta.
STEM_INLINE float moved(float moment, float to, float rest) {
  return std::fma(rest, to - moment, moment);
}

STEM_INLINE float denominator(const AdamStep &step, float v) {
  return std::fma(std::sqrt(v), step.rootScale, step.epsilon);
}

/// The weight less its decay and lr m^ / denominator, rounded once.
STEM_INLINE float stepped(const AdamStep &step, float w, float move) {
  return w - std::fma(step.decay, w, move);
}

/// While it lives, its thread takes subnormal numbers for 0. Moments without
/// gradients would end among them, where arithmetic is ten times as slow; they
/// are far below what epsilon lets show.
class FlushSubnormals {
public:
  FlushSubnormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
  FlushSubnormals(const FlushSubnormals &) = delete;
  FlushSubnormals &operator=(const FlushSubnormals &) = delete;
  ~FlushSubnormals() { _mm_setcsr(before); }

private:
  unsigned before;
};

} // namespace stem

#endif // STEM_LIB_TRAINING_ADAMSTEP_H
