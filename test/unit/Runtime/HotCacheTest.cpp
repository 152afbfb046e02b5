//===- HotCacheTest.cpp - The hot cache against its definition ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HotCache.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <list>
#include <malloc.h>
#include <map>
#include <random>

using namespace stem;

namespace {

/// The same in the plainest form: every decision looks at everything.
class PlainCache {
public:
  explicit PlainCache(int64_t capacity) : capacity(capacity) {}

  bool use(int32_t id) {
    for (auto &[other, count] : uses)
      count *= std::exp2(-1 / (20.0 * double(capacity)));
    uses[id] += 1;
    if (std::count(main.begin(), main.end(), id))
      return true;
    const bool isHit = std::count(window.begin(), window.end(), id);
    window.remove(id);
    window.push_back(id);
    if (!isHit)
      makeRoom();
    return isHit;
  }

private:
  void makeRoom() {
    const size_t most = std::max<size_t>(capacity / 10, 1);
    if (window.size() <= most)
      return;
    const int32_t leaving = window.front();
    window.pop_front();
    if (main.size() < capacity - most)
      return main.push_back(leaving);
    const auto weakest =
        std::min_element(main.begin(), main.end(), [&](int32_t a, int32_t b) {
          return uses[a] < uses[b];
        });
    if (weakest != main.end() && uses[leaving] > uses[*weakest])
      *weakest = leaving;
  }

  size_t capacity;
  std::map<int32_t, double> uses;
  std::list<int32_t> window;
  std::vector<int32_t> main;
};

int32_t zipfDraw(std::mt19937 &random, int32_t ids) {
  return int32_t(std::pow(double(ids), double(random()) / double(1ll << 32)));
}

/// Few ids and many draws, so that counts differ and none are equal for long.
TEST(HotCache, DoesWhatItIsDefinedToDo) {
  for (const int64_t capacity : {1, 2, 7, 10, 25, 64}) {
    constexpr int32_t ids = 200;
    std::mt19937 random(capacity);
    HotCache cache(capacity, ids);
    PlainCache plain(capacity);
    int different = 0;
    constexpr int draws = 20000;
    for (int i = 0; i < draws; ++i) {
      const int32_t id = zipfDraw(random, ids);
      const HotCache::Place place = cache.use(id);
      ASSERT_GE(place.slot, 0);
      ASSERT_LT(place.slot, capacity);
      ASSERT_EQ(cache.owner(place.slot), id);
      different += place.isNew == plain.use(id);
    }
    // Equal counts but for rounding may fall either way.
    EXPECT_LE(different, draws / 1000) << capacity << " places";
    EXPECT_GT(cache.evictions(), 0u);
  }
}

TEST(HotCache, AllIdsFit) {
  HotCache cache(50, 50);
  for (int round = 0; round < 3; ++round)
    for (int32_t id = 0; id < 50; ++id)
      EXPECT_EQ(cache.use(id).isNew, round == 0);
  EXPECT_EQ(cache.evictions(), 0u);
}

TEST(HotCache, NoPlacesAreNoPlaces) {
  HotCache cache(0, 50);
  EXPECT_EQ(cache.use(7).slot, -1);
  EXPECT_FALSE(cache.use(7).isNew);
  EXPECT_EQ(cache.capacity(), 0);
}

/// A hundred thousand half-lives: counts are scaled many times.
TEST(HotCache, CountsDoNotOverflow) {
  HotCache cache(2, 4);
  int hits = 0;
  for (int i = 0; i < 4'000'000; ++i)
    hits += !cache.use(i % 2 ? 0 : 1 + i / 2 % 3).isNew;
  EXPECT_GT(hits, 1'900'000) << "the id of every second use stays";
}

size_t heapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

/// As many bytes as are said, from the first use to the last.
TEST(HotCache, BytesAreKnown) {
  const size_t before = heapBytes();
  void *volatile block = std::malloc(1 << 20);
  const size_t counted = heapBytes() - before;
  std::free(block);
  if (counted < 1 << 20)
    GTEST_SKIP() << "this allocator does not count";
  constexpr int32_t ids = 1 << 20;
  EXPECT_EQ(HotCache::bytes(0, ids), 0);
  for (const int64_t capacity : {1 << 10, 1 << 17, 1 << 20}) {
    const size_t empty = heapBytes();
    HotCache cache(capacity, ids);
    std::mt19937 random(1);
    for (int i = 0; i < 2 * ids; ++i)
      cache.use(i % 2 ? i / 2 : zipfDraw(random, ids));
    const auto held = int64_t(heapBytes() - empty);
    const int64_t said = HotCache::bytes(capacity, ids);
    EXPECT_NEAR(double(held), double(said), 1 << 16) << capacity;
    EXPECT_EQ(said, 21 * int64_t(ids) + 4 * capacity +
                        16 * (capacity - capacity / 10));
  }
}

} // namespace
