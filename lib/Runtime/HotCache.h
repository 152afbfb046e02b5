//===- HotCache.h - Which ids' rows stay in memory --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An id that comes in has a place in a window, a tenth of all places, by the
// time of its last use. What falls out of the window stays if it is used more
// often than the least used of the other nine tenths, whose place it takes then
// (W-TinyLFU: Einziger, Friedman and Manes, 2017). Vocabularies are small, so
// uses are counted exactly, for every id, in place of a sketch. A use counts
// half as much after so many more as there are places, twenty times over.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_HOTCACHE_H
#define STEM_LIB_RUNTIME_HOTCACHE_H

#include <cstdint>
#include <utility>
#include <vector>

namespace stem {

class HotCache {
public:
  HotCache() = default;
  /// Of `capacity` places, for ids below `ids`.
  HotCache(int64_t capacity, int64_t ids);

  /// What such a cache takes, whatever it is used for.
  static int64_t bytes(int64_t capacity, int64_t ids);

  struct Place {
    int32_t slot; ///< -1: there are no places
    bool isNew;   ///< what lies there was another id's
  };

  /// A use of the id.
  Place use(int32_t id);

  int64_t capacity() const { return int64_t(owners.size()); }
  /// The id whose rows a slot is for; -1: none yet.
  int32_t owner(int32_t slot) const { return owners[slot]; }
  uint64_t evictions() const { return evicted; }

private:
  enum class Part : uint8_t { None, Window, Main };
  /// A place in the heap, least used first. Uses only grow, so that an entry
  /// that is out of date is looked at too early, never too late.
  using Entry = std::pair<double, int32_t>;

  static int64_t windowOf(int64_t capacity);
  void count(int32_t id);
  void rescale();
  int32_t takeSlot();
  void moveToMain(int32_t id);
  void refreshLeast();
  void linkNewest(int32_t id);
  void unlink(int32_t id);

  int64_t windowSize = 0;
  std::vector<int32_t> owners; ///< of slots
  int64_t used = 0;            ///< slots with an owner
  std::vector<int32_t> slots;  ///< of ids
  std::vector<Part> parts;     ///< of ids
  std::vector<double> uses;    ///< of ids, in units that grow with time
  double unit = 1, growth = 1;
  /// The window's ids from the oldest to the newest use.
  std::vector<int32_t> older, newer;
  int32_t oldest = -1, newest = -1;
  int64_t inWindow = 0;
  std::vector<Entry> least; ///< of the main part
  uint64_t evicted = 0;
};

} // namespace stem

#endif // STEM_LIB_RUNTIME_HOTCACHE_H
