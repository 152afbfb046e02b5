//===- NormalEquations.h - The refit of W_down ------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ridge regression from z (d_ff), what enters W_down, to a target (d), what the
// layer's output lacks: W_down += ((A + λI)⁻¹ B)ᵀ with A = Σ z zᵀ, B = Σ z
// targetᵀ and λ = ridge · mean(diag A) (docs/conversion.md).
//
//===----------------------------------------------------------------------===//

#ifndef STEM_CALIBRATION_NORMALEQUATIONS_H
#define STEM_CALIBRATION_NORMALEQUATIONS_H

#include "stem/Calibration/GramSums.h"

#include <string>

namespace stem {

/// The same bits for any pieces of the stream and any number of threads, see
/// GramSums.
class NormalEquations {
public:
  /// `name` stands in messages: "layer 3". `products` as of GramSums. The
  /// context outlives the object.
  NormalEquations(stem_context *context, int64_t ffn, int64_t hidden,
                  std::string name, stem_dtype products = STEM_F32);

  /// What an object holds, and what solving takes beside it.
  static int64_t bytes(int64_t ffn, int64_t hidden) {
    return GramSums::bytes(ffn, hidden);
  }
  static int64_t solveBytes(int64_t ffn, int threads);

  /// z: count x ffn, target: count x hidden.
  void add(const float *z, const float *target, int64_t count) {
    sums.add(z, target, count);
  }

  /// Writes the update of W_down, hidden x ffn. Ends the stream; each further
  /// ridge costs a factorisation. Fails when A is not finite or, with this
  /// ridge, not positive definite.
  void solve(double ridge, float *update);

  /// What an update (hidden x ffn) changes in the squared error over the
  /// positions of these sums: Σ ‖target − update z‖² − Σ ‖target‖². Asked of
  /// sums over held-back positions it chooses a ridge. Ends the stream.
  double errorChange(const float *update);

  int64_t positions() const { return sums.positions(); }

private:
  void finish();

  stem_context *context;
  int64_t ffn, hidden;
  std::string name;
  GramSums sums;
};

} // namespace stem

#endif // STEM_CALIBRATION_NORMALEQUATIONS_H
