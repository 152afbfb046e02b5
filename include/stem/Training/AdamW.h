//===- AdamW.h - AdamW on dense parameters ----------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Step t, with g the gradient:
//
//   m <- beta1 m + (1 - beta1) g          m^ = m / (1 - beta1^t)
//   v <- beta2 v + (1 - beta2) g^2        v^ = v / (1 - beta2^t)
//   w <- w - lr decay w - lr m^ / (sqrt(v^) + epsilon)
//
// In f32, with scalars that are computed in f64. Numbers below the normal range
// of f32 count as 0.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRAINING_ADAMW_H
#define STEM_TRAINING_ADAMW_H

#include "stem-c/Runtime.h"
#include "stem/Model/Safetensors.h"
#include "stem/Runtime/Arena.h"
#include "stem/Support/AdamWSettings.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stem {

struct AdamWOptions {
  double beta1 = kDefaultBeta1;
  double beta2 = kDefaultBeta2;
  double epsilon = kDefaultEpsilon;
  double decay = kDefaultWeightDecay;
};

/// The decay of a tensor where nobody asked for another: `decay` for matrices
/// and tables, 0 for tensors of one dimension (norms, biases).
inline double decayOfRank(double decay, size_t rank) {
  return rank < 2 ? 0 : decay;
}

/// What a step of AdamW multiplies by, rounded from f64.
struct AdamWScalars {
  float rate;  ///< lr / (1 - beta1^t)
  float root;  ///< 1 / sqrt(1 - beta2^t)
  float decay; ///< lr decay
};

/// One parameter with its moments, 8 bytes an element. Every element is
/// computed alone: the bits depend on no number of threads.
class AdamW {
public:
  /// Views of weights that outlive the object, as does the context. `name`
  /// stands in messages and before the names of the state's tensors.
  AdamW(stem_context *context, std::string name, std::span<float> weights,
        const AdamWOptions &options);

  /// One step with gradient · gradientScale; every argument is checked before
  /// anything changes. NaN and infinity in the gradient are the caller's to
  /// find (globalNorm).
  void update(std::span<const float> gradient, double learningRate,
              double gradientScale = 1);

  /// \name A step that other code takes, on the weights and these moments
  /// @{
  /// What it needs, checked like the arguments of update.
  AdamWScalars nextStep(double learningRate) const;
  float *firstMoments() { return static_cast<float *>(firstMoment.data()); }
  float *secondMoments() { return static_cast<float *>(secondMoment.data()); }
  /// Counts it, once it is taken.
  void finishStep() { ++stepCount; }
  /// @}

  int64_t steps() const { return stepCount; }

  /// Views of NAME.w, NAME.m, NAME.v (F32) and NAME.steps (I64), which a
  /// checkpoint holds.
  std::vector<TensorView> state() const;
  /// Takes the same out of `tensors`, among others. An Error names what is
  /// missing or of another shape, and changes nothing.
  void restore(std::span<const TensorView> tensors);

private:
  stem_context *context;
  std::string name;
  std::span<float> weights;
  AdamWOptions options;
  Arena firstMoment, secondMoment;
  int64_t stepCount = 0;
};

} // namespace stem

#endif // STEM_TRAINING_ADAMW_H
