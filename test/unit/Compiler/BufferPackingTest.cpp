//===- BufferPackingTest.cpp - Offsets of buffers with lifetimes ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../../lib/Transforms/BufferPacking.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

using namespace stem;

namespace {

int64_t pack(std::vector<PackedBuffer> &buffers) {
  std::vector<PackedBuffer *> pointers;
  for (PackedBuffer &buffer : buffers)
    pointers.push_back(&buffer);
  return packBuffers(pointers);
}

bool overlap(int64_t a, int64_t aEnd, int64_t b, int64_t bEnd) {
  return a < bEnd && b < aEnd;
}

TEST(BufferPacking, NothingTakesNothing) {
  std::vector<PackedBuffer> buffers;
  EXPECT_EQ(pack(buffers), 0);
}

TEST(BufferPacking, BuffersThatDoNotMeetShareAPlace) {
  std::vector<PackedBuffer> buffers = {{64, 0, 1}, {128, 2, 3}, {64, 4, 4}};
  EXPECT_EQ(pack(buffers), 128);
  for (const PackedBuffer &buffer : buffers)
    EXPECT_EQ(buffer.offset, 0);
}

TEST(BufferPacking, OneThatEndsWhereAnotherBeginsMeetsIt) {
  std::vector<PackedBuffer> buffers = {{64, 0, 1}, {64, 1, 2}};
  EXPECT_EQ(pack(buffers), 128);
}

TEST(BufferPacking, TheSmallestGapIsTaken) {
  // What lives at position 0 alone leaves gaps of 384 bytes at 512 and of 256
  // bytes at 1216.
  std::vector<PackedBuffer> buffers = {{512, 0, 9}, {384, 0, 0}, {320, 0, 9},
                                       {256, 0, 0}, {192, 0, 9}, {128, 1, 1},
                                       {64, 1, 1}};
  EXPECT_EQ(pack(buffers), 512 + 384 + 320 + 256 + 192);
  EXPECT_EQ(buffers[5].offset, 1216);
  EXPECT_EQ(buffers[6].offset, 1216 + 128);
}

TEST(BufferPacking, LiveBuffersNeverOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<PackedBuffer> buffers(random() % 40);
    for (PackedBuffer &buffer : buffers) {
      buffer.bytes = 64 * (random() % 50);
      buffer.first = random() % 30;
      buffer.last = buffer.first + random() % 10;
    }
    int64_t total = pack(buffers), sum = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const PackedBuffer &a = buffers[i];
      sum += a.bytes;
      EXPECT_EQ(a.offset % 64, 0);
      EXPECT_LE(a.offset + a.bytes, total);
      for (size_t j = 0; j < i; ++j) {
        const PackedBuffer &b = buffers[j];
        EXPECT_FALSE(
            overlap(a.first, a.last + 1, b.first, b.last + 1) &&
            overlap(a.offset, a.offset + a.bytes, b.offset, b.offset + b.bytes))
            << "round " << round << ": buffers " << i << " and " << j;
      }
    }
    int64_t peak = 0;
    for (unsigned position = 0; position < 40; ++position) {
      int64_t live = 0;
      for (const PackedBuffer &buffer : buffers)
        if (buffer.first <= position && position <= buffer.last)
          live += buffer.bytes;
      peak = std::max(peak, live);
    }
    EXPECT_GE(total, peak);
    EXPECT_LE(total, sum);
  }
}

} // namespace
