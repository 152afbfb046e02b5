//===- RowOptimizer.h - AdamW on the rows of a table ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step brings gradients for some rows, and costs time for these alone. The
// formulas are those of AdamW.h, with t the steps of the run, in three modes:
//
//   exact    what AdamW over the whole table computes. The steps that a row was
//            not in are made up for by catchUp, before it is read.
//   lazy     a row that is not in the batch stands still, moments included.
//   rowwise  lazy, and v is one number a row: of the mean of g^2.
//
// With beta1 = 0 there is no first moment.
//
// Catching up. Of a row that was last stepped at l with moments m and v, step
// s = l + j without a gradient leaves m beta1^j and v beta2^j, so that
//
//   w_T = P(l, T) w_l - m sum_j a_j / (c_j sqrt(v) + epsilon)
//   a_j = lr_s P(s, T) beta1^j / (1 - beta1^s)
//   c_j = beta2^(j/2) / sqrt(1 - beta2^s)
//   P(s, T) = product of 1 - lr decay over the steps s + 1 to T
//
// The sum stops after skippedStepsReplayed() terms; decay has its closed form
// over all of them.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRAINING_ROWOPTIMIZER_H
#define STEM_TRAINING_ROWOPTIMIZER_H

#include "stem/Runtime/RowPages.h"
#include "stem/Training/AdamW.h"

#include <filesystem>
#include <memory>
#include <string_view>

namespace stem {

struct RowRounding;

enum class RowMode { Exact, Lazy, Rowwise };

/// "exact", "lazy", "rowwise".
std::string_view rowModeName(RowMode mode);
/// An Error that lists the names for another.
RowMode parseRowMode(std::string_view name);

/// How many skipped steps can still move a weight by their moments. By
/// Cauchy and Schwarz |m| <= C sqrt(v) with
/// C = (1 - beta1) / sqrt((1 - beta2) (1 - beta1^2 / beta2)), so that skipped
/// step j moves a weight by at most lr C r^j, r = beta1 / sqrt(beta2). After K
/// steps all that follow move it by at most lr C r^(K+1) / (1 - r); this is the
/// least K for which that is no more than 2^-25 lr, lr being the largest
/// learning rate among them. A weight no smaller than lr cannot show it: half a
/// unit in its last place is more. 251 with betas 0.9 and 0.95, 206 with 0.9
/// and 0.999; 0 with beta1 = 0. Throws where beta1^2 >= beta2: there is no
/// bound.
int64_t skippedStepsReplayed(const AdamWOptions &options);

struct RowOptimizerOptions {
  RowMode mode = RowMode::Rowwise;
  AdamWOptions adamw = {};
  /// Of the rounding of bf16 rows; `stream` tells tables apart.
  uint64_t seed = 0;
  uint32_t stream = 0;
};

/// Row-major rows that someone else owns.
struct RowTable {
  void *data = nullptr;
  DType dtype = DType::F32; ///< or BF16
  int64_t rows = 0;
  int64_t columns = 0;
};

/// A table's rows with their moments.
///
/// bf16 rows have no f32 copy. A row is computed in f32 and rounded up or down
/// with the probability that keeps the mean, by random bits that are a function
/// of seed, stream, step, row and column. Skipped steps are rounded once, as of
/// the last one.
///
/// Rows and elements are computed alone, sums over a row in a fixed order: the
/// bits depend on no number of threads.
class RowOptimizer {
public:
  /// The table and the context outlive the object. `name` stands in messages
  /// and before the names of the state's tensors. With a folder, moments of as
  /// many columns as the rows lie in files there.
  RowOptimizer(stem_context *context, std::string name, const RowTable &table,
               const RowOptimizerOptions &options,
               const std::filesystem::path &folder = {});
  ~RowOptimizer();

  /// What a row takes beside its weights: exact 8 bytes a column and 4, lazy 8
  /// a column, rowwise 4 a column and 4; with beta1 = 0 four less a column.
  static int64_t stateBytesPerRow(const RowOptimizerOptions &options,
                                  int64_t columns);
  /// How much of it can lie in files.
  static int64_t momentBytesPerRow(const RowOptimizerOptions &options,
                                   int64_t columns);

  /// The moments in files; they are to be brought with the rows.
  std::vector<FileRows> rowsInFiles() const;

  /// Brings rows to the present step, in the table: before they are read for a
  /// step that they get a gradient from. `ids` rise. Does something in the mode
  /// exact only.
  void catchUp(std::span<const int32_t> ids);

  /// One step: `gradients` holds a row for each of the rising `ids`, and counts
  /// times gradientScale. Every step of the run is one call, with no ids if
  /// need be. Every argument is checked before anything changes; in the mode
  /// exact it is an Error when a row was not caught up. NaN and infinity in the
  /// gradient are the caller's to find (globalNorm).
  void update(std::span<const int32_t> ids, const float *gradients,
              double learningRate, double gradientScale = 1);

  int64_t steps() const { return stepCount; }

  /// Writes rows [first, first + count) as catchUp would leave them to `out`,
  /// in the table's type. Changes nothing here.
  void exportRows(int64_t first, int64_t count, void *out) const;

  /// Views of what a checkpoint holds: NAME.w (rows as they are), NAME.m and
  /// NAME.v where the mode has them (F32), NAME.steps (I64); in the mode exact
  /// NAME.last_step (I32), NAME.learning_rates of all steps and NAME.settings,
  /// which are beta1, beta2, epsilon and decay (F64). Changes nothing here.
  std::vector<TensorView> state() const;
  /// Takes the same out of `tensors`, among others. An Error names what is
  /// missing, of another shape or made with other settings, and changes
  /// nothing.
  void restore(std::span<const TensorView> tensors);

private:
  struct Exact;

  bool perRow() const { return options.mode == RowMode::Rowwise; }
  RowRounding rounding(int64_t row) const;
  /// Calls body with the records, in the type of the rows.
  template <typename Body> void withRecords(const Body &body) const;
  void checkIds(std::span<const int32_t> ids) const;
  std::unique_ptr<Exact> restoredExact(std::span<const TensorView> tensors,
                                       int64_t steps) const;

  stem_context *context;
  std::string name;
  RowTable table;
  RowOptimizerOptions options;
  bool isInFiles;
  Arena firstMoment, secondMoment;
  std::unique_ptr<Exact> exact;
  int64_t stepCount = 0;
};

} // namespace stem

#endif // STEM_TRAINING_ROWOPTIMIZER_H
