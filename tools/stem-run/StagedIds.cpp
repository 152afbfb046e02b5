//===- StagedIds.cpp - The different ids of a step ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StagedIds.h"

#include "FlatTokens.h"

#include <algorithm>

using namespace stem;

/// False, and the tile's ids are not the step's, where they are too many.
bool StagedIds::takeTile(std::span<const int32_t> ids, bool isPadded) {
  added.clear();
  const auto add = [&](int32_t id) {
    uint32_t &mark = marks[static_cast<size_t>(id)];
    if (mark == step)
      return;
    mark = step;
    added.push_back(id);
  };
  std::ranges::for_each(ids, add);
  if (isPadded)
    add(kPaddingId);
  const auto more = static_cast<int64_t>(added.size());
  if (count + more <= rows) {
    count += more;
    return true;
  }
  for (const int32_t id : added)
    marks[static_cast<size_t>(id)] = 0;
  return false;
}

int64_t StagedIds::take(std::span<const int32_t> ids, int64_t tile) {
  const auto all = static_cast<int64_t>(ids.size());
  if (marks.empty())
    return all;
  int64_t taken = 0;
  while (taken < all) {
    const int64_t size = std::min(tile, all - taken);
    if (!takeTile(
            ids.subspan(static_cast<size_t>(taken), static_cast<size_t>(size)),
            size < tile))
      break;
    taken += size;
  }
  cutCount += taken == 0 && all > 0;
  return taken;
}

void StagedIds::clear() {
  count = 0;
  if (++step == 0) {
    std::ranges::fill(marks, 0);
    step = 1;
  }
}
