//===- StagedIds.h - The different ids of a step ----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_STAGEDIDS_H
#define STEM_TOOLS_STEM_RUN_STAGEDIDS_H

#include <cstdint>
#include <span>
#include <vector>

namespace stem {

/// Cuts tokens into steps whose different ids are at most as many as staging
/// has rows of a table for. Cuts lie between tiles, so that the tiles are those
/// of an uncut step and no bit of a result changes.
class StagedIds {
public:
  /// Of a step with room for all its ids.
  StagedIds() = default;
  /// `rows` hold those of one tile at least.
  StagedIds(int64_t rows, int64_t vocabSize)
      : rows(rows), marks(static_cast<size_t>(vocabSize)) {}

  /// How many of the next tokens, whole tiles but for the last, the step can
  /// take beside those that it has. 0: it is full.
  int64_t take(std::span<const int32_t> ids, int64_t tile);

  /// A new step begins.
  void clear();

  /// How often a step was full.
  int64_t cuts() const { return cutCount; }

private:
  bool takeTile(std::span<const int32_t> ids, bool isPadded);

  int64_t rows = 0; ///< where there is a bound
  std::vector<uint32_t>
      marks; ///< of ids: the step that has them; no bound: empty
  uint32_t step = 1;
  int64_t count = 0; ///< different ids of the step
  int64_t cutCount = 0;
  std::vector<int32_t> added; ///< by the tile at hand
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_STAGEDIDS_H
