//===- StagingPool.cpp - Memory for rows on their way ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StagingPool.h"

#include <algorithm>

using namespace stem;

static constexpr int64_t alignment = 64;

StagingPool::StagingPool(int64_t bytes)
    : memory(bytes, "rows that are read ahead") {}

/// A part of no rows has a place too: each is given back by its address.
int64_t StagingPool::bytesOf(int64_t bytes) {
  const int64_t lines = bytes / alignment + (bytes % alignment != 0);
  return std::max<int64_t>(lines, 1) * alignment;
}

char *StagingPool::take(int64_t bytes) {
  const int64_t size = bytesOf(bytes);
  int64_t offset = 0;
  for (const auto &[begin, length] : parts) {
    if (begin - offset >= size)
      break;
    offset = begin + length;
  }
  if (memory.size() - offset < size)
    return nullptr;
  parts.emplace(offset, size);
  takenBytes += size;
  return static_cast<char *>(memory.data()) + offset;
}

void StagingPool::giveBack(char *part) {
  const auto found = parts.find(part - static_cast<char *>(memory.data()));
  if (found == parts.end())
    return;
  takenBytes -= found->second;
  parts.erase(found);
}
