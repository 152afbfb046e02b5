//===- EngineMemory.cpp - Whether a plan of memory fits -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EngineMemory.h"

#include "stem/Runtime/Arena.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <malloc.h>

using namespace stem;

int64_t stem::sumOfBytes(std::initializer_list<int64_t> parts) {
  int64_t sum = 0;
  for (int64_t part : parts)
    if (__builtin_add_overflow(sum, part, &sum))
      return INT64_MAX;
  return sum;
}

int64_t MemoryPlan::total() const {
  return sumOfBytes(
      {weights, tables, staging, kept, counts, arena, cache, logits});
}

static std::string bytesText(int64_t count) {
  return formatBytes(static_cast<double>(count));
}

/// What lies where, of tables of which some are in files.
static std::string describeFiles(const MemoryPlan &plan,
                                 const std::vector<PlacedTable> &placed) {
  int64_t inMemory = 0;
  for (const PlacedTable &table : placed)
    inMemory += table.isInFile ? 0 : table.bytes;
  std::string text;
  if (arePlacedApart(placed))
    text = fmt::format("of layers {} in memory ({}), of layers {} ",
                       layersOf(placed, /*inFiles=*/false), bytesText(inMemory),
                       layersOf(placed, /*inFiles=*/true));
  text += fmt::format("in files ({}), ", bytesText(plan.tablesInFiles));
  if (plan.scales > 0)
    text += fmt::format("their scales {}, ", bytesText(plan.scales));
  text += fmt::format("their rows of a step {}, for {} table{} at a time, {} "
                      "rows of each, and of {} hot ids {}",
                      bytesText(plan.staging), plan.stagedTables,
                      plan.stagedTables == 1 ? "" : "s", plan.stagedRows,
                      plan.keptIds, bytesText(plan.kept));
  if (plan.counts > 0)
    text += fmt::format(" with counts of uses {}", bytesText(plan.counts));
  return text;
}

std::string MemoryPlan::describe(const std::vector<PlacedTable> &placed) const {
  std::string text = bytesText(tables);
  if (tablesInFiles > 0)
    text = describeFiles(*this, placed);
  else if (staging > 0)
    text += fmt::format(", their rows of a step {}", bytesText(staging));
  return fmt::format("memory: weights {}, tables {}, key-value cache up to {}, "
                     "step arena {}, logits {}; {} in all",
                     bytesText(weights), text, bytesText(cache),
                     bytesText(arena), bytesText(logits), bytesText(total()));
}

void stem::trimHeap() { malloc_trim(0); }

MemoryBound::MemoryBound(int64_t limit) {
  trimHeap();
  const MemoryStatus status = memoryStatus();
  held = status.resident;
  most = status.peakResident;
  bytes =
      status.available < 0 ? INT64_MAX : sumOfBytes({held, status.available});
  isLimit = limit > 0 && limit <= bytes;
  if (isLimit)
    bytes = limit;
}

void MemoryBound::require(int64_t wanted, const std::string &plan,
                          const std::string &advice) const {
  if (wanted <= bytes)
    return;
  fail("{}, but {}; {}", plan,
       isLimit ? fmt::format("--memory allows {}, of which the program holds "
                             "{}",
                             bytesText(bytes), bytesText(held))
               : bytesText(bytes - held) + " are available",
       advice);
}
