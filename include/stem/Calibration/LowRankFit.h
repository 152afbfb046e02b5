//===- LowRankFit.h - The low-rank term beside the rows ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// up = U[t] + M h with M of rank R, h (d) the normed input of the FFN. With
// r = u − U[t] (leave-one-out rows), C = Σ h hᵀ + strength · (mean diagonal),
// E = Σ r hᵀ and the weights w_i = E[g_i²] · ‖W_down[:, i]‖², M minimises
// Σ_i w_i (r_i − (M h)_i)² over maps of rank R up to that ridge
// (docs/conversion.md):
//
//   M = W^(-1/2) [W^(1/2) E C^(-1/2)]_R C^(-1/2)
//
// where [·]_R keeps the R largest singular values. Any square root of C gives
// the same M. With the Cholesky factor C = L Lᵀ and the eigenvectors V of
// L⁻¹ Eᵀ W E L⁻ᵀ (d x d), largest first, M = A B with
//
//   A = E L⁻ᵀ V_R (F x R)      B = V_Rᵀ L⁻¹ (R x d)
//
// which asks for no inverse of W: a dimension whose gate never opened only
// does not choose V.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_CALIBRATION_LOWRANKFIT_H
#define STEM_CALIBRATION_LOWRANKFIT_H

#include "stem/Calibration/GramSums.h"

#include <span>
#include <string>
#include <vector>

namespace stem {

class SpdFactor;

/// The same bits for any pieces of the stream and any number of threads, see
/// GramSums; Σ g² is summed in the same blocks.
class LowRankFit {
public:
  /// `name` stands in messages: "layer 3". `products` as of GramSums. The
  /// context outlives the object.
  LowRankFit(stem_context *context, int64_t ffn, int64_t hidden,
             std::string name, stem_dtype products = STEM_F32);

  /// What an object holds, and what a solution adds to it.
  static int64_t bytes(int64_t ffn, int64_t hidden);
  static int64_t solutionBytes(int64_t ffn, int64_t hidden);

  /// residual r: count x ffn, h: count x hidden, gate: count x ffn.
  void add(const float *residual, const float *h, const float *gate,
           int64_t count);

  int64_t positions() const { return sums.positions(); }

  /// Solves for all ranks at once. downNorms: ‖W_down[:, i]‖, one for each of
  /// the ffn dimensions. Ends the stream.
  void solve(std::span<const float> downNorms, double strength = 1e-3);

  /// After solve, one for each rank R from 1 to hidden: what the R-th direction
  /// takes off Σ w r², with the ridge counted in. Falling.
  std::span<const double> gains() const { return gain; }

  /// After solve: A (ffn x rank) and B (rank x hidden) of M = A B. Leading
  /// directions first: the factors of a smaller rank are the first columns of A
  /// and the first rows of B.
  void factors(int64_t rank, float *a, float *b) const;

private:
  void addGates(const float *gate, int64_t count);
  std::vector<double> weightsOf(std::span<const float> downNorms) const;
  void whiten(const SpdFactor &factor);
  void rotate(std::span<const double> weights);

  stem_context *context;
  int64_t ffn, hidden;
  std::string name;
  GramSums sums;                   ///< x = h, y = r
  std::vector<float> blockSquares; ///< Σ g² of the block in work
  std::vector<double> gateSquares; ///< of the blocks before it
  std::vector<double> gain;
  Arena left;  ///< E L⁻ᵀ V, ffn x hidden: A for all ranks
  Arena right; ///< Vᵀ L⁻¹: hidden x hidden, B for all ranks
};

} // namespace stem

#endif // STEM_CALIBRATION_LOWRANKFIT_H
