//===- SpdFactor.h - Symmetric positive definite systems --------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_CALIBRATION_SPDFACTOR_H
#define STEM_LIB_CALIBRATION_SPDFACTOR_H

#include "stem-c/Runtime.h"

#include <string_view>
#include <vector>

namespace stem {

/// Columns of a right-hand side that one task solves for. Part of the result's
/// meaning: another width may round another way.
constexpr int64_t solveColumns = 64;

/// The Cholesky factor L of A + ridge · mean(diag A) · I, where the upper
/// triangle of a row-major n x n matrix gives A. L takes the lower triangle of
/// the same memory, so that A can be factored again with another ridge; the
/// diagonal, which both need, is A's again when this object is gone.
class SpdFactor {
public:
  SpdFactor(double *matrix, int64_t n);
  ~SpdFactor();
  SpdFactor(const SpdFactor &) = delete;
  SpdFactor &operator=(const SpdFactor &) = delete;

  /// False when the sum is not positive definite.
  bool factor(stem_context *context, double ridge);

  /// block (n x count, column-major) = L⁻¹ block, and L⁻ᵀ block.
  void solveLower(double *block, int64_t count) const;
  void solveUpper(double *block, int64_t count) const;

  /// out (m x n) = (A⁻¹ B)ᵀ for B (n x m), both row-major.
  void solveTransposed(stem_context *context, const double *b, int64_t m,
                       float *out) const;

  double meanDiagonal() const { return mean; }

private:
  bool factorColumns(stem_context *context, int64_t first, int64_t count);

  double *matrix;
  int64_t n;
  /// Of A.
  std::vector<double> diagonal;
  double mean;
};

/// Fails, naming the sums and the dimension, when the upper triangle of
/// `gram` (n x n) or `cross` (n x m) holds a NaN or an infinity.
void checkFinite(std::string_view name, std::string_view sums,
                 const double *gram, const double *cross, int64_t n, int64_t m);

} // namespace stem

#endif // STEM_LIB_CALIBRATION_SPDFACTOR_H
