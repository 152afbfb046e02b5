//===- TiledBatch.cpp - A batch as tiles of tokens ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TiledBatch.h"

#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

namespace {

/// Padding repeats the id before it, so that it touches no other row.
void pad(TiledBatch &tiled, int64_t tile) {
  const int32_t id = tiled.ids.empty() ? 0 : tiled.ids.back();
  int64_t position = tiled.lengths.empty() ? 0 : tiled.lengths.back();
  while (tiled.tokens() % tile != 0 || tiled.tokens() == 0)
    tiled.append(id, position++, kPadding, kNoLabel);
}

/// Places [first, last) of one sequence.
void appendSequence(TiledBatch &tiled, const Batch &batch, size_t first,
                    size_t last) {
  const auto number = static_cast<int32_t>(tiled.lengths.size());
  for (size_t i = first; i < last; ++i) {
    if (batch.positions[i] != static_cast<int32_t>(i - first))
      fail("place {} of the batch is position {} of its sequence, expected {}: "
           "positions rise one by one from 0",
           i, batch.positions[i], i - first);
    tiled.append(batch.ids[i], batch.positions[i], number, batch.labels[i]);
  }
  tiled.lengths.push_back(static_cast<int64_t>(last - first));
}

} // namespace

TiledBatch stem::tileBatch(const Batch &batch, int64_t tile) {
  TiledBatch tiled;
  const size_t length = static_cast<size_t>(batch.length);
  for (size_t row = 0; row < static_cast<size_t>(batch.rows); ++row) {
    const size_t end = (row + 1) * length;
    for (size_t first = row * length; first < end;) {
      size_t last = first + 1;
      while (last < end && batch.sequences[last] == batch.sequences[first])
        ++last;
      if (batch.sequences[first] != kPadding) {
        appendSequence(tiled, batch, first, last);
        pad(tiled, tile);
      }
      first = last;
    }
  }
  pad(tiled, tile);
  return tiled;
}

BatchBound stem::boundOfRows(int64_t rows, int64_t length, int64_t tile) {
  rows = std::max<int64_t>(rows, 1);
  length = std::max<int64_t>(length, 1);
  return {rows * ((length + tile - 1) / tile * tile), rows, length};
}
