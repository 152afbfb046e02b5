//===- TableRows.h - What the rows of a new table start from ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TABLEROWS_H
#define STEM_TOOLS_STEM_RUN_TABLEROWS_H

#include "stem-c/Runtime.h"
#include "stem/Model/Checkpoint.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace stem {

/// Rows of one layer's table U [V, d_ff], computed in f32, a range at a time.
class TableRows {
public:
  virtual ~TableRows();
  /// Rows [first, first + count) to `out`, [count, d_ff]. Several threads may
  /// call it at once.
  virtual void fill(uint64_t first, uint64_t count, float *out) = 0;
};

/// Rows that are computed and written at a time: 8 MB of f32, and enough to
/// keep the threads busy.
uint64_t rowsAtATime(const ModelConfig &config);

/// Bytes that this holds at most: rows as they are stored, and for each thread
/// those that it fills, rows that come from elsewhere and the ids' embeddings.
int64_t rowWritingBytes(const ModelConfig &config, int threads);

/// Embeddings as the layer's up-projection would see them with nothing else in
/// the residual stream.
class NormedEmbeddings {
public:
  NormedEmbeddings(const Checkpoint &checkpoint, uint64_t layer);

  /// Of the ids [first, first + count): [count, d].
  void read(uint64_t first, uint64_t count, float *out) const;
  /// Embeddings as the model has them, [count, d], in place.
  void normalize(float *rows, uint64_t count) const;

private:
  const TensorSource &source;
  const std::string &embedding;
  uint64_t width;
  double epsilon;
  std::vector<float> weight; ///< empty: no norm
};

struct TableInit {
  /// "embedding": U[t] = W_up · norm(emb[t]) + b. The norm is the one before
  ///   the layer's feed-forward block; there is none where the family
  ///   normalises after the block (OLMo2).
  /// "row-mean": the mean of these rows over all ids, in every row.
  /// "xavier": normal with variance 2 / (V + d_ff); element i of the table
  ///   depends on the seed, the layer and i alone.
  std::string kind;
  uint64_t seed = 0;
};

std::unique_ptr<TableRows> makeTableRows(const TableInit &init,
                                         const Checkpoint &checkpoint,
                                         uint64_t layer, stem_context *context);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TABLEROWS_H
