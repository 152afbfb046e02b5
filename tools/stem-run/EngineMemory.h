//===- EngineMemory.h - Whether a plan of memory fits -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H
#define STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H

#include <cstdint>
#include <initializer_list>
#include <string>

namespace stem {

/// INT64_MAX where the sum is beyond it.
int64_t sumOfBytes(std::initializer_list<int64_t> parts);

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
