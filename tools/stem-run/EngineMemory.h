//===- EngineMemory.h - Whether a plan of memory fits -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H
#define STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H

#include "TablePlaces.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace stem {

/// INT64_MAX where the sum is beyond it.
int64_t sumOfBytes(std::initializer_list<int64_t> parts);

/// Bytes by purpose, known before they are allocated.
struct MemoryPlan {
  int64_t weights = 0;
  int64_t tables = 0;        ///< in memory
  int64_t scales = 0;        ///< of 8-bit rows: part of `tables`
  int64_t tablesInFiles = 0; ///< not part of the total
  int64_t staging = 0;       ///< for their rows of a step
  int64_t stagedTables = 0;  ///< of so many of them at once; no bytes
  int64_t stagedRows = 0;    ///< so many rows of each; no bytes
  int64_t kept = 0;          ///< their rows of ids that are used often
  int64_t keptIds = 0;       ///< so many; no bytes
  int64_t counts = 0;        ///< of uses, which say whose rows are kept
  int64_t arena = 0;
  int64_t cache = 0;     ///< key-value cache when every position is used
  int64_t logits = 0;    ///< a row for each sequence
  int64_t total() const; ///< INT64_MAX where the sum is beyond it

  /// "memory: weights 269 MB, tables ..., 1.2 GB in all".
  std::string describe(const std::vector<PlacedTable> &placed) const;
};

/// Gives the pages back that the heap keeps of freed memory.
void trimHeap();

/// What this process may come to hold. Memory is given out before it is there:
/// too much of it ends the process later, without a word.
struct MemoryBound {
  /// `limit`: of all that the process holds; 0: what is available.
  explicit MemoryBound(int64_t limit);

  /// Fails when `bytes`, what is held already among them, are beyond it, with
  /// their sum (`plan`) and what to do (`advice`).
  void require(int64_t bytes, const std::string &plan,
               const std::string &advice) const;

  int64_t held;  ///< now, with a trimmed heap
  int64_t most;  ///< held at any time before
  int64_t bytes; ///< in all; INT64_MAX where nothing is known
  bool isLimit;  ///< it is `limit`
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H
