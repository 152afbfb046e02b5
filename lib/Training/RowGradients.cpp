//===- RowGradients.cpp - The gradient of a table over a step -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/RowGradients.h"
#include "AdamStep.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <utility>

using namespace stem;

STEM_TARGET static void addColumns(int64_t count, const float *__restrict from,
                                   float *__restrict to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += from[i];
}

RowGradients::RowGradients(stem_context *context, std::string name,
                           int64_t columns)
    : context(context), name(std::move(name)), columns(columns) {
  if (columns < 1 || columns > INT32_MAX)
    fail("{}: rows of {} columns: wanted 1 to {}", this->name, columns,
         INT32_MAX);
}

void RowGradients::begin(std::span<const int32_t> tokenIds) {
  uniqueIds.assign(tokenIds.begin(), tokenIds.end());
  std::ranges::sort(uniqueIds);
  auto repeated = std::ranges::unique(uniqueIds);
  uniqueIds.erase(repeated.begin(), repeated.end());
  sums.assign(uniqueIds.size() * size_t(columns), 0);
}

void RowGradients::add(std::span<const int32_t> ids, const float *rows) {
  if (!ids.empty() && !rows)
    fail("{}: {} ids without rows", name, ids.size());
  places.clear();
  for (int32_t id : ids) {
    auto found = std::ranges::lower_bound(uniqueIds, id);
    if (found == uniqueIds.end() || *found != id)
      fail("{}: row {} gets a gradient, but is none of the {} rows of the step",
           name, id, uniqueIds.size());
    places.push_back(found - uniqueIds.begin());
  }
  // Ranges of columns, two a thread: each goes through all rows in order.
  int64_t ranges = 2 * int64_t(stem_context_threads(context));
  int64_t range = std::max<int64_t>(64, (columns / ranges + 15) / 16 * 16);
  parallelFor(context, (columns + range - 1) / range, [&](int64_t task) {
    int64_t first = task * range;
    int64_t count = std::min(range, columns - first);
    for (size_t i = 0; i < places.size(); ++i)
      addColumns(count, rows + int64_t(i) * columns + first,
                 sums.data() + places[i] * columns + first);
  });
}
