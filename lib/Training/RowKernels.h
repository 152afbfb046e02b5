//===- RowKernels.h - One row of a table ------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRAINING_ROWKERNELS_H
#define STEM_LIB_TRAINING_ROWKERNELS_H

#include "AdamStep.h"
#include "SkippedSteps.h"

#include <cstdint>

namespace stem {

/// Where the random bits of a row's rounding come from.
struct RowRounding {
  uint64_t seed;
  uint32_t stream, step, row;
};

/// The columns whose random bits are drawn together. Of column c they are a
/// half of a word of philox({8 [c / 64] + c mod 8, row, step, stream}, seed):
/// of [c / 8] mod 8, the lowest bit says which half and the others which word.
constexpr int64_t roundingColumns = 64;
void drawRoundingBits(const RowRounding &rounding, int64_t block,
                      uint16_t (&bits)[roundingColumns]);

/// The parts of a record. `T` is float or uint16_t (bf16). A part that is null
/// is not there.
template <typename T> struct RowView {
  T *weights = nullptr;
  float *m = nullptr, *v = nullptr;
};

/// Writes what the skipped steps leave of `from` to `to`, which may be the same
/// or lack moments. Without moments in `from` (the row was never stepped) there
/// is decay alone. `next` is the row that is computed next, if one is.
template <typename T>
void catchUpRow(const CatchUp &catchUp, int64_t columns, const RowView<T> &from,
                const RowView<T> &to, const RowView<T> &next,
                const RowRounding &rounding);

/// One step; `rowwise`: v is one number.
template <typename T>
void updateRow(const AdamStep &step, bool rowwise, int64_t columns,
               const float *gradient, const RowView<T> &row,
               const RowView<T> &next, const RowRounding &rounding);

} // namespace stem

#endif // STEM_LIB_TRAINING_ROWKERNELS_H
