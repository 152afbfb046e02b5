//===- HotCache.cpp - Which ids' rows stay in memory ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HotCache.h"

#include <algorithm>
#include <cmath>
#include <functional>

using namespace stem;

/// Both by simulation, see docs/tables.md.
static constexpr int64_t windowShare = 10;
static constexpr double halfLife = 20;

/// Long before a double ends.
static constexpr double largestUnit = 1e100;

int64_t HotCache::windowOf(int64_t capacity) {
  return std::max<int64_t>(capacity / windowShare, 1);
}

int64_t HotCache::bytes(int64_t capacity, int64_t ids) {
  if (capacity == 0)
    return 0;
  constexpr int64_t ofAnId = sizeof(slots[0]) + sizeof(parts[0]) +
                             sizeof(uses[0]) + sizeof(older[0]) +
                             sizeof(newer[0]);
  return ids * ofAnId + capacity * int64_t(sizeof(owners[0])) +
         (capacity - windowOf(capacity)) * int64_t(sizeof(Entry));
}

HotCache::HotCache(int64_t capacity, int64_t ids) {
  if (capacity == 0)
    return;
  windowSize = windowOf(capacity);
  growth = std::exp2(1 / (halfLife * double(capacity)));
  owners.assign(capacity, -1);
  slots.assign(ids, -1);
  parts.assign(ids, Part::None);
  uses.assign(ids, 0);
  older.assign(ids, -1);
  newer.assign(ids, -1);
  // It never has more, so that it never grows.
  least.reserve(capacity - windowSize);
}

void HotCache::count(int32_t id) {
  unit *= growth;
  uses[id] += unit;
  if (unit > largestUnit)
    rescale();
}

void HotCache::rescale() {
  for (double &value : uses)
    value /= unit;
  for (Entry &entry : least)
    entry.first = uses[entry.second];
  std::make_heap(least.begin(), least.end(), std::greater<>());
  unit = 1;
}

void HotCache::linkNewest(int32_t id) {
  older[id] = newest;
  newer[id] = -1;
  (newest < 0 ? oldest : newer[newest]) = id;
  newest = id;
  parts[id] = Part::Window;
  ++inWindow;
}

void HotCache::unlink(int32_t id) {
  (older[id] < 0 ? oldest : newer[older[id]]) = newer[id];
  (newer[id] < 0 ? newest : older[newer[id]]) = older[id];
  parts[id] = Part::None;
  --inWindow;
}

void HotCache::moveToMain(int32_t id) {
  parts[id] = Part::Main;
  least.push_back({uses[id], id});
  std::push_heap(least.begin(), least.end(), std::greater<>());
}

/// The heap's first entry is then the least used id of the main part.
void HotCache::refreshLeast() {
  while (uses[least.front().second] > least.front().first) {
    std::pop_heap(least.begin(), least.end(), std::greater<>());
    least.back().first = uses[least.back().second];
    std::push_heap(least.begin(), least.end(), std::greater<>());
  }
}

/// A free slot, or that of an id that leaves.
int32_t HotCache::takeSlot() {
  const bool isFull = used == capacity();
  const int32_t fresh = isFull ? -1 : int32_t(used++);
  if (inWindow < windowSize)
    return fresh;
  int32_t leaving = oldest;
  unlink(leaving);
  if (!isFull) {
    moveToMain(leaving);
    return fresh;
  }
  if (!least.empty()) {
    refreshLeast();
    if (uses[leaving] > least.front().first) {
      std::pop_heap(least.begin(), least.end(), std::greater<>());
      const int32_t weakest = least.back().second;
      least.pop_back();
      moveToMain(leaving);
      leaving = weakest;
    }
  }
  parts[leaving] = Part::None;
  ++evicted;
  return std::exchange(slots[leaving], -1);
}

HotCache::Place HotCache::use(int32_t id) {
  if (capacity() == 0)
    return {-1, false};
  count(id);
  switch (parts[id]) {
  case Part::Window:
    unlink(id);
    linkNewest(id);
    return {slots[id], false};
  case Part::Main:
    return {slots[id], false};
  case Part::None:
    break;
  }
  const int32_t slot = takeSlot();
  slots[id] = slot;
  owners[slot] = id;
  linkNewest(id);
  return {slot, true};
}
