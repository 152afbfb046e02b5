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

using namespace stem;

int64_t stem::sumOfBytes(std::initializer_list<int64_t> parts) {
  int64_t sum = 0;
  for (int64_t part : parts)
    if (__builtin_add_overflow(sum, part, &sum))
      return INT64_MAX;
  return sum;
}

void stem::requireMemory(int64_t bytes, const std::string &plan,
                         const std::string &advice) {
  int64_t available = memoryStatus().available;
  if (available >= 0 && bytes > available)
    fail("{}, but {} are available; {}", plan,
         formatBytes(static_cast<double>(available)), advice);
}
