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
  const auto text = [](int64_t count) {
    return formatBytes(static_cast<double>(count));
  };
  fail("{}, but {}; {}", plan,
       isLimit ? fmt::format("--memory allows {}, of which the program holds "
                             "{}",
                             text(bytes), text(held))
               : text(bytes - held) + " are available",
       advice);
}
