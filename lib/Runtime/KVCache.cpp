//===- KVCache.cpp - Pages of keys and values -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block holds one page of all heads of one layer and sequence: for each head
// the keys as an E x 64 matrix, then the values as 64 x E, both in the layout
// of stem_packed. A layer keeps a page in slot page % capacity, so that a
// window's slots form a ring. Blocks are counted: a fork shares them, and a
// reserve copies those that the coming step will write.
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/KVCache.h"
#include "ContextImpl.h"
#include "HandleShapes.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>
#include <xmmintrin.h>

using namespace stem;

namespace {

static_assert(STEM_KV_PAGE == STEM_PANEL,
              "the keys of a page are one panel of a packed matrix");

struct Slot {
  int64_t page = -1;
  int32_t block = -1;
};

struct Sequence {
  int64_t length = 0;
  /// One list a layer; it grows up to the layer's capacity.
  std::vector<std::vector<Slot>> layers;
};

struct FreeDeleter {
  void operator()(void *pointer) const { std::free(pointer); }
};

struct Block {
  std::unique_ptr<char, FreeDeleter> data;
  int32_t references = 0;
};

int64_t pagesOf(int64_t positions) {
  return (positions + STEM_KV_PAGE - 1) / STEM_KV_PAGE;
}

} // namespace

struct stem_kv_cache {
  int64_t heads, headDim, maxPositions, maxAppend;
  int32_t dtype;
  bool hasWindows = false;
  int64_t keyBytes, headBytes, blockBytes;
  std::vector<int64_t> windows;    /* 0: none */
  std::vector<int64_t> capacities; /* slots of a layer */
  std::vector<Sequence> sequences;
  std::vector<Block> blocks;
  std::vector<int32_t> freeBlocks;
  std::unique_ptr<char, FreeDeleter> zeros;

  bool holds(int32_t sequence) const {
    return sequence >= 0 && sequence < int64_t(sequences.size());
  }
  /// The slot that holds a page, or null.
  const Slot *find(int64_t layer, int32_t sequence, int64_t page) const {
    if (layer < 0 || layer >= int64_t(capacities.size()) || !holds(sequence) ||
        page < 0 || sequences[sequence].layers.empty())
      return nullptr;
    const std::vector<Slot> &slots = sequences[sequence].layers[layer];
    int64_t capacity = capacities[layer];
    size_t index = page < capacity ? page : page % capacity;
    if (index >= slots.size() || slots[index].page != page)
      return nullptr;
    return &slots[index];
  }
  void drop(Slot &slot) {
    if (slot.block >= 0 && --blocks[slot.block].references == 0)
      freeBlocks.push_back(slot.block);
    slot = Slot();
  }
  bool shared(const Slot &slot) const {
    return slot.block >= 0 && blocks[slot.block].references > 1;
  }
};

namespace {

std::unique_ptr<char, FreeDeleter> allocateZeros(int64_t bytes) {
  int64_t rounded = (bytes + 63) / 64 * 64;
  std::unique_ptr<char, FreeDeleter> data(
      static_cast<char *>(std::aligned_alloc(64, rounded)));
  if (!data)
    throw std::bad_alloc();
  std::memset(data.get(), 0, rounded);
  return data;
}

/// Makes at least `count` blocks free. The list of free blocks has room for all
/// of them, so that drop never allocates.
void growFree(stem_kv_cache &cache, int64_t count) {
  while (int64_t(cache.freeBlocks.size()) < count) {
    std::unique_ptr<char, FreeDeleter> data = allocateZeros(cache.blockBytes);
    if (cache.freeBlocks.capacity() <= cache.blocks.size())
      cache.freeBlocks.reserve(2 * cache.blocks.size() + 1);
    cache.blocks.push_back({std::move(data), 0});
    cache.freeBlocks.push_back(int32_t(cache.blocks.size()) - 1);
  }
}

/// A free block for `page`: zeros, or a copy of what the slot shares.
void take(stem_kv_cache &cache, Slot &slot, int64_t page, bool copy) {
  int32_t block = cache.freeBlocks.back();
  cache.freeBlocks.pop_back();
  char *data = cache.blocks[block].data.get();
  if (copy)
    std::memcpy(data, cache.blocks[slot.block].data.get(), cache.blockBytes);
  else
    std::memset(data, 0, cache.blockBytes);
  cache.blocks[block].references = 1;
  cache.drop(slot);
  slot = {page, block};
}

/// Slots of a layer: all pages, or for a window the pages that
/// window + maxAppend - 1 consecutive positions can touch.
int64_t capacityOf(int64_t window, int64_t maxAppend, int64_t maxPositions) {
  int64_t all = pagesOf(maxPositions);
  if (!window)
    return all;
  return std::min(all, pagesOf(window + maxAppend - 2) + 1);
}

/// Why the options cannot be used; empty when they can.
std::string invalidOptions(const stem_kv_options &options) {
  auto outside = [](const char *name, int64_t value, int64_t low,
                    int64_t high) {
    return value >= low && value <= high
               ? std::string()
               : fmt::format("{} is {} but must lie in [{}, {}]", name, value,
                             low, high);
  };
  constexpr int64_t most = 1 << 20;
  std::string why = outside("layers", options.layers, 1, most);
  if (why.empty())
    why = outside("heads", options.heads, 1, most);
  if (why.empty())
    why = outside("head_dim", options.head_dim, 1, most);
  if (why.empty())
    why = outside("max_positions", options.max_positions, 1, INT32_MAX);
  if (why.empty())
    why = outside("max_sequences", options.max_sequences, 1, most);
  if (why.empty())
    why = outside("max_append", options.max_append, 0, options.max_positions);
  if (why.empty() && options.dtype != STEM_F32 && options.dtype != STEM_BF16)
    why = fmt::format("dtype is {} but must be STEM_F32 or STEM_BF16",
                      options.dtype);
  for (int64_t i = 0; why.empty() && options.windows && i < options.layers; ++i)
    why = outside(fmt::format("windows[{}]", i).c_str(), options.windows[i], 0,
                  INT32_MAX);
  return why;
}

std::unique_ptr<stem_kv_cache> makeCache(const stem_kv_options &options) {
  auto cache = std::make_unique<stem_kv_cache>();
  cache->heads = options.heads;
  cache->headDim = options.head_dim;
  cache->maxPositions = options.max_positions;
  cache->maxAppend =
      options.max_append ? options.max_append : options.max_positions;
  cache->dtype = options.dtype;
  // Heads and head_dim are at most 2^20 each: nothing below overflows.
  cache->keyBytes =
      stem_packed_bytes(options.dtype, options.head_dim, STEM_KV_PAGE);
  cache->headBytes =
      cache->keyBytes +
      stem_packed_bytes(options.dtype, STEM_KV_PAGE, options.head_dim);
  cache->blockBytes = cache->headBytes * options.heads;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    int64_t window = options.windows ? options.windows[layer] : 0;
    cache->windows.push_back(window);
    cache->hasWindows |= window != 0;
    cache->capacities.push_back(
        capacityOf(window, cache->maxAppend, options.max_positions));
  }
  return cache;
}

stem_status checkSequence(stem_context *context, const stem_kv_cache *cache,
                          const char *function, int32_t sequence) {
  if (!cache)
    return report(context, STEM_INVALID_ARGUMENT, "{}: the cache is null",
                  function);
  if (!cache->holds(sequence))
    return report(context, STEM_OUT_OF_RANGE,
                  "{}: sequence {} is out of range: the cache holds {} "
                  "sequences",
                  function, sequence, cache->sequences.size());
  return STEM_OK;
}

/// Makes the pages of positions [from, to) present, writable by this sequence
/// alone, and zero where they are new. All allocation comes before the first
/// change.
void ensurePages(stem_kv_cache &cache, Sequence &sequence, int64_t from,
                 int64_t to) {
  int64_t first = from / STEM_KV_PAGE, end = pagesOf(to);
  sequence.layers.resize(cache.capacities.size());
  int64_t needed = 0;
  for (size_t layer = 0; layer < sequence.layers.size(); ++layer) {
    std::vector<Slot> &slots = sequence.layers[layer];
    int64_t wanted = std::min(end, cache.capacities[layer]);
    if (int64_t(slots.size()) < wanted)
      slots.resize(wanted);
    for (int64_t page = first; page < end; ++page) {
      const Slot &slot = slots[page % cache.capacities[layer]];
      needed += slot.block < 0 || cache.shared(slot);
    }
  }
  growFree(cache, needed);
  for (size_t layer = 0; layer < sequence.layers.size(); ++layer)
    for (int64_t page = first; page < end; ++page) {
      Slot &slot = sequence.layers[layer][page % cache.capacities[layer]];
      if (slot.block < 0 || cache.shared(slot)) {
        take(cache, slot, page, /*copy=*/slot.page == page);
      } else if (slot.page != page) {
        // The ring comes round: the old page's block serves the new one.
        std::memset(cache.blocks[slot.block].data.get(), 0, cache.blockBytes);
        slot.page = page;
      }
    }
}

/// Elements of a position that lie together: one of f32, a pair of bf16.
template <typename T> constexpr int64_t groupSize = sizeof(float) / sizeof(T);

/// Zeroes positions [from, 64) of a page: columns of its keys, rows of its
/// values.
template <typename T>
void clearTail(const stem_kv_cache &cache, char *block, int64_t from) {
  constexpr int64_t group = groupSize<T>;
  int64_t keyRows = (cache.headDim + group - 1) / group;
  int64_t panels = pagesOf(cache.headDim);
  for (int64_t head = 0; head < cache.heads; ++head) {
    T *keys = reinterpret_cast<T *>(block + head * cache.headBytes);
    T *values = keys + cache.keyBytes / sizeof(T);
    for (int64_t row = 0; row < keyRows; ++row)
      std::fill(keys + (row * STEM_PANEL + from) * group,
                keys + (row + 1) * STEM_PANEL * group, T(0));
    for (int64_t panel = 0; panel < panels; ++panel)
      for (int64_t row = from; row < STEM_KV_PAGE; ++row)
        for (int64_t column = 0; column < STEM_PANEL; ++column)
          values[panel * STEM_KV_PAGE * STEM_PANEL +
                 row / group * group * STEM_PANEL + column * group +
                 row % group] = T(0);
  }
}

template <typename T>
void writeKeyColumn(const stem_kv_cache &cache, T *keys, const T *k,
                    int64_t position, int64_t firstGroup) {
  for (int64_t e = firstGroup * groupSize<T>; e < cache.headDim; ++e)
    keys[e / groupSize<T> * groupSize<T> * STEM_PANEL +
         position * groupSize<T> + e % groupSize<T>] = k[e];
}

/// Four rows into four columns, groups as if they were floats.
inline void transposeFour(float *out, const void *const *rows) {
  __m128 a = _mm_loadu_ps(static_cast<const float *>(rows[0]));
  __m128 b = _mm_loadu_ps(static_cast<const float *>(rows[1]));
  __m128 c = _mm_loadu_ps(static_cast<const float *>(rows[2]));
  __m128 d = _mm_loadu_ps(static_cast<const float *>(rows[3]));
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(out, a);
  _mm_storeu_ps(out + STEM_PANEL, b);
  _mm_storeu_ps(out + 2 * STEM_PANEL, c);
  _mm_storeu_ps(out + 3 * STEM_PANEL, d);
}

template <typename T>
void writeKeys(const stem_kv_cache &cache, T *keys, const T *k, int64_t ldk,
               int64_t offset, int64_t count) {
  const int64_t groups = cache.headDim / groupSize<T> / 4 * 4;
  int64_t row = 0;
  for (; row + 4 <= count; row += 4) {
    for (int64_t g = 0; g < groups; g += 4) {
      const void *rows[4];
      for (int64_t i = 0; i < 4; ++i)
        rows[i] = k + (row + i) * ldk + g * groupSize<T>;
      transposeFour(reinterpret_cast<float *>(
                        keys + (g * STEM_PANEL + offset + row) * groupSize<T>),
                    rows);
    }
    for (int64_t i = row; i < row + 4; ++i)
      writeKeyColumn(cache, keys, k + i * ldk, offset + i, groups);
  }
  for (; row < count; ++row)
    writeKeyColumn(cache, keys, k + row * ldk, offset + row, 0);
}

template <typename T>
void writeValueRow(const stem_kv_cache &cache, T *values, const T *v,
                   int64_t position) {
  for (int64_t e = 0; e < cache.headDim; ++e)
    values[e / STEM_PANEL * STEM_KV_PAGE * STEM_PANEL +
           position / groupSize<T> * groupSize<T> * STEM_PANEL +
           e % STEM_PANEL * groupSize<T> + position % groupSize<T>] = v[e];
}

/// Two rows of bf16 that lie interleaved, from an even position on.
inline void writeValuePair(const stem_kv_cache &cache, uint16_t *values,
                           const uint16_t *first, const uint16_t *second,
                           int64_t position) {
  for (int64_t panel = 0; panel < cache.headDim; panel += STEM_PANEL) {
    uint16_t *out =
        values + (panel / STEM_PANEL * STEM_KV_PAGE + position) * STEM_PANEL;
    const int64_t columns =
        std::min<int64_t>(STEM_PANEL, cache.headDim - panel);
    for (int64_t e = 0; e < columns; ++e) {
      out[2 * e] = first[panel + e];
      out[2 * e + 1] = second[panel + e];
    }
  }
}

/// `count` rows at consecutive positions of one page, from its position
/// `offset` on. Keys and values point at the rows of one head.
template <typename T>
void writeRun(const stem_kv_cache &cache, T *page, const T *k, int64_t ldk,
              const T *v, int64_t ldv, int64_t offset, int64_t count) {
  writeKeys(cache, page, k, ldk, offset, count);
  T *values = page + cache.keyBytes / sizeof(T);
  for (int64_t row = 0; row < count; ++row) {
    if constexpr (groupSize<T> == 2)
      if ((offset + row) % 2 == 0 && row + 1 < count) {
        writeValuePair(cache, values, v + row * ldv, v + (row + 1) * ldv,
                       offset + row);
        ++row;
        continue;
      }
    writeValueRow(cache, values, v + row * ldv, offset + row);
  }
}

template <typename T>
void append(const stem_kv_cache &cache, int64_t layer, const T *k, int64_t ldk,
            const T *v, int64_t ldv, const int32_t *positions,
            const int32_t *sequences, int64_t rows) {
  for (int64_t row = 0; row < rows;) {
    int32_t sequence = sequences[row];
    int64_t position = positions[row];
    int64_t offset = position % STEM_KV_PAGE;
    int64_t count = 1;
    while (row + count < rows && offset + count < STEM_KV_PAGE &&
           sequences[row + count] == sequence &&
           positions[row + count] == position + count)
      ++count;
    const Slot *slot =
        position < 0 ? nullptr
                     : cache.find(layer, sequence, position / STEM_KV_PAGE);
    // A shared page means that no reserve made room: writing would change the
    // other sequence too.
    if (slot && !cache.shared(*slot)) {
      count = std::min(count, cache.sequences[sequence].length - position);
      char *block = cache.blocks[slot->block].data.get();
      for (int64_t head = 0; head < cache.heads; ++head)
        writeRun(cache, reinterpret_cast<T *>(block + head * cache.headBytes),
                 k + row * ldk + head * cache.headDim, ldk,
                 v + row * ldv + head * cache.headDim, ldv, offset, count);
    }
    row += std::max<int64_t>(count, 1);
  }
}

} // namespace

int64_t stem::kvSequenceBytes(const stem_kv_options &options,
                              int64_t positions) {
  std::string why = invalidOptions(options);
  if (!why.empty())
    fail("key-value cache: {}", why);
  if (positions < 0 || positions > options.max_positions)
    fail("key-value cache: {} positions asked for, but a sequence has at most "
         "{}",
         positions, options.max_positions);
  std::unique_ptr<stem_kv_cache> cache = makeCache(options);
  int64_t blocks = 0;
  for (int64_t capacity : cache->capacities)
    blocks += std::min(capacity, pagesOf(positions));
  int64_t bytes;
  if (__builtin_mul_overflow(blocks, cache->blockBytes, &bytes))
    fail("key-value cache: {} pages of {} bytes have no size", blocks,
         cache->blockBytes);
  return bytes;
}

CacheShape stem::cacheShape(const stem_kv_cache &cache) {
  return {int64_t(cache.capacities.size()), cache.heads, cache.headDim,
          cache.dtype};
}

stem_status stem_kv_create(stem_context *context,
                           const stem_kv_options *options,
                           stem_kv_cache **out_cache) {
  return guarded(context, "stem_kv_create", [&]() -> stem_status {
    if (!options || !out_cache)
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_kv_create: {} is null",
                    options ? "out_cache" : "options");
    *out_cache = nullptr;
    if (stem_status status =
            checkStructSize(context, "stem_kv_options", options->struct_size,
                            sizeof(stem_kv_options)))
      return status;
    std::string why = invalidOptions(*options);
    if (!why.empty())
      return report(context, STEM_INVALID_ARGUMENT, "stem_kv_create: {}", why);
    std::unique_ptr<stem_kv_cache> cache = makeCache(*options);
    cache->sequences.resize(options->max_sequences);
    cache->zeros = allocateZeros(cache->headBytes);
    *out_cache = cache.release();
    return STEM_OK;
  });
}

void stem_kv_destroy(stem_kv_cache *cache) { delete cache; }

int64_t stem_kv_bytes(const stem_kv_cache *cache) {
  return cache ? int64_t(cache->blocks.size()) * cache->blockBytes : 0;
}

int64_t stem_kv_length(const stem_kv_cache *cache, int32_t sequence) {
  return cache && cache->holds(sequence) ? cache->sequences[sequence].length
                                         : 0;
}

stem_status stem_kv_reserve(stem_context *context, stem_kv_cache *cache,
                            int32_t sequence, int64_t length) {
  return guarded(context, "stem_kv_reserve", [&]() -> stem_status {
    if (stem_status status =
            checkSequence(context, cache, "stem_kv_reserve", sequence))
      return status;
    Sequence &state = cache->sequences[sequence];
    if (length > cache->maxPositions)
      return report(
          context, STEM_OUT_OF_RANGE,
          "sequence {} would have {} positions but the cache holds at "
          "most {} of one sequence",
          sequence, length, cache->maxPositions);
    if (length < state.length)
      return report(context, STEM_INVALID_ARGUMENT,
                    "sequence {} has {} positions and cannot be reserved for "
                    "{}: use stem_kv_truncate",
                    sequence, state.length, length);
    if (cache->hasWindows && length - state.length > cache->maxAppend)
      return report(context, STEM_INVALID_ARGUMENT,
                    "sequence {} would grow by {} positions at once but the "
                    "cache's windows leave room for {} (max_append)",
                    sequence, length - state.length, cache->maxAppend);
    if (length > state.length)
      ensurePages(*cache, state, state.length, length);
    state.length = length;
    return STEM_OK;
  });
}

stem_status stem_kv_fork(stem_context *context, stem_kv_cache *cache,
                         int32_t from, int32_t to) {
  return guarded(context, "stem_kv_fork", [&]() -> stem_status {
    for (int32_t sequence : {from, to})
      if (stem_status status =
              checkSequence(context, cache, "stem_kv_fork", sequence))
        return status;
    if (from == to)
      return STEM_OK;
    Sequence copy = cache->sequences[from];
    for (std::vector<Slot> &slots : copy.layers)
      for (Slot &slot : slots)
        if (slot.block >= 0)
          ++cache->blocks[slot.block].references;
    std::swap(cache->sequences[to], copy);
    for (std::vector<Slot> &slots : copy.layers)
      for (Slot &slot : slots)
        cache->drop(slot);
    return STEM_OK;
  });
}

stem_status stem_kv_truncate(stem_context *context, stem_kv_cache *cache,
                             int32_t sequence, int64_t length) {
  return guarded(context, "stem_kv_truncate", [&]() -> stem_status {
    if (stem_status status =
            checkSequence(context, cache, "stem_kv_truncate", sequence))
      return status;
    Sequence &state = cache->sequences[sequence];
    if (length < 0 || length > state.length)
      return report(context, STEM_INVALID_ARGUMENT,
                    "sequence {} has {} positions and cannot be truncated to "
                    "{}",
                    sequence, state.length, length);
    if (length == state.length)
      return STEM_OK;
    int64_t pages = pagesOf(length);
    for (size_t layer = 0; layer < state.layers.size(); ++layer) {
      int64_t window = cache->windows[layer];
      int64_t first =
          window ? std::max<int64_t>(0, length - window + 1) / STEM_KV_PAGE : 0;
      for (int64_t page = first; page < pages; ++page)
        if (!cache->find(layer, sequence, page))
          return report(context, STEM_OUT_OF_RANGE,
                        "sequence {} cannot be truncated from {} to {} "
                        "positions: layer {} keeps a window of {} and has "
                        "overwritten page {}; truncate to 0 and append again",
                        sequence, state.length, length, layer, window, page);
    }
    // A shared last page is copied before its tail is cleared.
    if (length % STEM_KV_PAGE)
      ensurePages(*cache, state, length - 1, length);
    for (std::vector<Slot> &slots : state.layers)
      for (Slot &slot : slots) {
        if (slot.page >= pages)
          cache->drop(slot);
        if (slot.page != length / STEM_KV_PAGE)
          continue;
        char *block = cache->blocks[slot.block].data.get();
        if (cache->dtype == STEM_F32)
          clearTail<float>(*cache, block, length % STEM_KV_PAGE);
        else
          clearTail<uint16_t>(*cache, block, length % STEM_KV_PAGE);
      }
    state.length = length;
    return STEM_OK;
  });
}

void stem_kv_append(stem_kv_cache *cache, int64_t layer, const void *k,
                    int64_t ldk, const void *v, int64_t ldv,
                    const int32_t *positions, const int32_t *sequences,
                    int64_t rows) {
  if (!cache || rows <= 0 || !k || !v || !positions || !sequences)
    return;
  if (cache->dtype == STEM_F32)
    append(*cache, layer, static_cast<const float *>(k), ldk,
           static_cast<const float *>(v), ldv, positions, sequences, rows);
  else
    append(*cache, layer, static_cast<const uint16_t *>(k), ldk,
           static_cast<const uint16_t *>(v), ldv, positions, sequences, rows);
}

const void *stem_kv_page(stem_kv_cache *cache, int64_t layer, int32_t sequence,
                         int64_t page, int64_t head, int32_t values) {
  if (!cache)
    return nullptr;
  const Slot *slot = head < 0 || head >= cache->heads
                         ? nullptr
                         : cache->find(layer, sequence, page);
  if (!slot)
    return cache->zeros.get();
  return cache->blocks[slot->block].data.get() + head * cache->headBytes +
         (values ? cache->keyBytes : 0);
}
