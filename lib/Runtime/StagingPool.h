//===- StagingPool.h - Memory for rows on their way -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_STAGINGPOOL_H
#define STEM_LIB_RUNTIME_STAGINGPOOL_H

#include "stem/Runtime/Arena.h"

#include <cstdint>
#include <map>

namespace stem {

/// One piece of memory that is taken once; parts of it are given to tickets.
class StagingPool {
public:
  explicit StagingPool(int64_t bytes);

  /// What a part of so many bytes takes.
  static int64_t bytesOf(int64_t bytes);

  /// The first free run that is large enough, aligned to a cache line; null
  /// where there is none.
  char *take(int64_t bytes);
  void giveBack(char *part);

  int64_t size() const { return memory.size(); }
  int64_t taken() const { return takenBytes; }

private:
  Arena memory;
  std::map<int64_t, int64_t> parts; ///< offset to size
  int64_t takenBytes = 0;
};

} // namespace stem

#endif // STEM_LIB_RUNTIME_STAGINGPOOL_H
