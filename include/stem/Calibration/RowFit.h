//===- RowFit.h - Rows of a table fitted to statistics ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The row of id t, in each dimension of d_ff (docs/conversion.md):
//
//   U[t] = (H_t + k ḡ² p_t) / (G_t + k ḡ²)      ḡ² = Σ_t G_t / Σ_t n_t
//
// minimises Σ g² (u − U[t])² with a prior of k average observations of p_t.
//
// The prior p_t: ridge regression, weighted by n_t, from [feature of t, 1] to
// S_t / n_t, with λ = ridge · (mean diagonal of the weighted normal matrix) on
// every coefficient; then in each dimension slope · p + offset, fitted under
// the weight G_t to H_t / G_t with the slope clamped to [0, 2]. An id that was
// never seen has U[t] = p_t.
//
// Rows that explain little of u hide from W_down what the gate alone would tell
// it: the product g ⊙ U[t] changes its sign and size with noise. So each
// dimension can be blended with a constant,
//
//   U'[t] = (1 − w) U[t] + w c    w = x² / (1 + x²)    x = E / s²
//
// E = Σ g² (u − U)² / Σ g² on positions that the rows were not fitted to,
// s² = Σ_t G_t U[t]² / Σ_t G_t, c = ±s with the sign of Σ_t H_t.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_CALIBRATION_ROWFIT_H
#define STEM_CALIBRATION_ROWFIT_H

#include "stem/Calibration/RowStatistics.h"

#include <functional>

namespace stem {

/// Fills `out` (count x d) with the features of the rows [first, first +
/// count) of the statistics: the normed embeddings of their ids.
using FeatureReader =
    std::function<void(int64_t first, int64_t count, float *out)>;

/// Positions whose rows are wanted. All matrices are index.size() x the width
/// of the layer, of which a fit reads and writes the columns of its statistics.
struct RowPositions {
  /// The row of each position; none is left out here.
  std::span<const int32_t> index;
  const float *gate = nullptr;
  const float *up = nullptr;
  /// Not empty: leave-one-out. Where it is not 0, the statistics hold this
  /// position, and its own g² and g² u are subtracted first. What then
  /// remains of G below 2⁻²⁰ of it is rounding and counts as nothing.
  std::span<const uint8_t> counted = {};
};

/// What apply computes; each may be null.
struct RowOutputs {
  float *rows = nullptr;  ///< U
  float *gated = nullptr; ///< g ⊙ U
  float *error = nullptr; ///< g ⊙ (u − U)
};

/// Of all dimensions of a layer or of some: each is fitted apart from the
/// others, to the same bits.
class RowFit {
public:
  /// A row for each id, from the statistics, whose S it overwrites with p.
  /// `products`: the type of what is multiplied for p once the regression is
  /// solved.
  static RowFit perId(RowStatistics &&statistics, int64_t features,
                      const FeatureReader &read, double ridge = 1e-2,
                      stem_dtype products = STEM_F32);

  /// One row for all ids, Σ_t H_t / Σ_t G_t (0 where no gate opened): what a
  /// model without a table would have. Needs no features.
  static RowFit meanRow(const RowStatistics &statistics);

  /// What a fit per id holds, its statistics included, and what fitting takes
  /// beside that for a while.
  static int64_t bytes(int64_t rows, int64_t columns, int64_t features);
  static int64_t fitBytes(int64_t columns, int64_t features);

  /// G, H and p, all that grows with the number of rows. `moveTo` has a copy of
  /// them take their place, which outlives the object, and gives their memory
  /// back.
  std::span<const float> table() const;
  void moveTo(const float *copy);
  /// For the statistics of the next fit; nothing but destruction is left for
  /// the object.
  Arena takeMemory() { return std::move(sums.memory); }

  /// k, at first 4.
  void setShrinkage(double k);
  double shrinkage() const { return k; }

  /// Blends rows with constants from now on; `errors` has E of each dimension,
  /// with the present k (RowErrors::meanErrors). x is at most 3: as good as
  /// constant. No change for meanRow.
  void blend(std::span<const double> errors);

  int64_t columns() const { return sums.columns(); }
  const ColumnRange &range() const { return sums.range(); }
  /// p of every row of the statistics, rows x columns (meanRow: 1 x columns).
  const float *priors() const { return sums.ups(); }

  /// The row that ids with these features (count x d) have that were never
  /// seen: out is count x the layer's width. Before blend the same bits as
  /// priors() for the same features. meanRow ignores the features.
  void prior(const float *features, int64_t count, float *out) const;

  /// U of the rows `index`: out is index.size() x the layer's width.
  void rows(std::span<const int32_t> index, float *out) const;

  void apply(const RowPositions &positions, const RowOutputs &outputs) const;

private:
  friend class RowErrors;
  RowFit(RowStatistics &&statistics, int64_t features, stem_dtype products);

  stem_context *context() const { return sums.context; }
  void regress(const FeatureReader &read, double ridge);
  void predict(const float *features, int64_t count, float *out,
               int64_t stride) const;
  void predictAll(const FeatureReader &read);
  void blendColumns(int64_t first, int64_t count,
                    std::span<const double> errors);
  void applyBlend(int64_t first, int64_t count, float *row) const;
  void correct();
  void meanSquaresOf(int64_t count);
  void checkSums() const;
  void checkIndex(std::span<const int32_t> index, int32_t least) const;
  void checkPositions(const RowPositions &positions) const;
  /// U of position i of `positions` in the columns [first, first + count).
  void row(const RowPositions &positions, int64_t i, int64_t first,
           int64_t count, double shrinkage, float *out) const;
  /// The same before blending.
  void shrunkRow(const RowPositions &positions, int64_t i, int64_t first,
                 int64_t count, double shrinkage, float *out) const;

  RowStatistics sums; ///< meanRow: one row, the sums over all ids
  int64_t features;   ///< 0: meanRow
  stem_dtype products;
  double k = 4;
  Arena weights; ///< of the regression, features x columns, packed
  std::vector<float> constant, slope, offset, meanSquares;
  /// 1 − w and w c; empty: not blended.
  std::vector<float> blendScale, blendShift;
};

/// Σ g² (u − U)² of a fit for several k in one pass: the way to choose k, on
/// positions held back from the statistics (or leave-one-out). Summed position
/// by position in f64.
class RowErrors {
public:
  /// The fit outlives the object.
  RowErrors(const RowFit &fit, std::span<const double> shrinkages);

  /// Here index may be -1: a position that is left out.
  void add(const RowPositions &positions);

  /// One for each k, added to those of the columns before.
  std::vector<double> totals(const std::vector<double> &before = {}) const;

  /// With the k of this number, in each dimension: the sum over Σ g²; 0 where
  /// no gate opened.
  std::vector<double> meanErrors(size_t shrinkage) const;

private:
  const RowFit &fit;
  std::vector<double> shrinkages;
  std::vector<double> sums;        ///< shrinkages x columns
  std::vector<double> gateSquares; ///< Σ g², one a column
};

} // namespace stem

#endif // STEM_CALIBRATION_ROWFIT_H
