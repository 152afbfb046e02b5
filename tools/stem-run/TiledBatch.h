//===- TiledBatch.h - A batch as tiles of tokens ----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TILEDBATCH_H
#define STEM_TOOLS_STEM_RUN_TILEDBATCH_H

#include "FlatTokens.h"
#include "stem/Data/Batch.h"

#include <cstdint>
#include <vector>

namespace stem {

/// The tokens of a batch as compiled entries take them: each sequence begins a
/// tile, what a last tile has too much is padding. Padding of the batch is left
/// out.
struct TiledBatch : FlatTokens {
  std::vector<int64_t> lengths; ///< of the sequences, by number
};

/// `tile` tokens make a tile; there is one at least. Throws for a sequence
/// whose positions do not rise one by one from 0.
TiledBatch tileBatch(const Batch &batch, int64_t tile);

/// The most that a batch has, which memory is planned by.
struct BatchBound {
  int64_t tokens;    ///< in tiles
  int64_t sequences; ///< at least 1
  int64_t longest;   ///< tokens of a sequence
};

/// Of a batch of `rows` rows of `length` places, each row one sequence.
BatchBound boundOfRows(int64_t rows, int64_t length, int64_t tile);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TILEDBATCH_H
