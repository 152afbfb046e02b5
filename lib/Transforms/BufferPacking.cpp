//===- BufferPacking.cpp - Offsets of buffers with lifetimes --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BufferPacking.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <limits>
#include <tuple>

using namespace stem;

/// The start of the smallest gap for `buffer` between `neighbours`, the placed
/// buffers that live at the same time, in rising order of offset.
static int64_t findGap(const PackedBuffer &buffer,
                       llvm::ArrayRef<PackedBuffer *> neighbours) {
  int64_t end = 0, best = -1;
  int64_t bestSize = std::numeric_limits<int64_t>::max();
  for (const PackedBuffer *neighbour : neighbours) {
    int64_t size = neighbour->offset - end;
    if (size >= buffer.bytes && size < bestSize) {
      best = end;
      bestSize = size;
    }
    end = std::max(end, neighbour->offset + neighbour->bytes);
  }
  return best >= 0 ? best : end;
}

int64_t stem::packBuffers(llvm::MutableArrayRef<PackedBuffer *> buffers) {
  llvm::sort(buffers, [](const PackedBuffer *a, const PackedBuffer *b) {
    return std::tuple(-a->bytes, a->first, a->last) <
           std::tuple(-b->bytes, b->first, b->last);
  });
  int64_t total = 0;
  llvm::SmallVector<PackedBuffer *> placed; // by offset
  for (PackedBuffer *buffer : buffers) {
    llvm::SmallVector<PackedBuffer *> neighbours;
    for (PackedBuffer *other : placed)
      if (other->first <= buffer->last && buffer->first <= other->last)
        neighbours.push_back(other);
    buffer->offset = findGap(*buffer, neighbours);
    total = std::max(total, buffer->offset + buffer->bytes);
    placed.insert(
        llvm::upper_bound(placed, buffer,
                          [](const PackedBuffer *a, const PackedBuffer *b) {
                            return a->offset < b->offset;
                          }),
        buffer);
  }
  return total;
}
