//===- KVCacheTest.cpp - Pages, rings and forks of the cache -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/KVCache.h"
#include "TestSupport.h"

#include <cmath>
#include <map>
#include <memory>

using namespace stem;
using namespace stem::test;

namespace {

struct CacheDeleter {
  void operator()(stem_kv_cache *cache) const { stem_kv_destroy(cache); }
};

/// A cache beside a plain model of it: for each sequence the rows appended.
class CacheModel {
public:
  CacheModel(stem_dtype dtype, int64_t heads, int64_t headDim,
             std::vector<int64_t> windows, int64_t maxPositions,
             int64_t maxAppend, int64_t maxSequences = 4)
      : dtype(dtype), heads(heads), headDim(headDim),
        windows(std::move(windows)), rows(maxSequences) {
    options = {sizeof(options),
               int64_t(this->windows.size()),
               heads,
               headDim,
               maxPositions,
               maxSequences,
               dtype,
               0,
               this->windows.data(),
               maxAppend};
    stem_kv_cache *made = nullptr;
    throwIfFailed(context.get(),
                  stem_kv_create(context.get(), &options, &made));
    cache.reset(made);
  }

  stem_status reserve(int32_t sequence, int64_t length) {
    return stem_kv_reserve(context.get(), cache.get(), sequence, length);
  }

  /// Reserves and appends `count` new rows, with a row of padding among them.
  void extend(int32_t sequence, int64_t count) {
    int64_t width = heads * headDim, stride = width + 5;
    std::vector<int32_t> positions, sequences;
    std::vector<float> k, v;
    throwIfFailed(context.get(),
                  reserve(sequence, rows[sequence].size() + count));
    for (int64_t i = 0; i <= count; ++i) {
      bool padding = i == count / 2;
      positions.push_back(padding ? 0 : int32_t(rows[sequence].size()));
      sequences.push_back(padding ? -1 : sequence);
      float stamp = padding ? NAN : float(++stamps % 100 + 1);
      for (int64_t e = 0; e < stride; ++e) {
        k.push_back(stamp + float(e % 16) / 16);
        v.push_back(-k.back());
      }
      if (!padding)
        rows[sequence].push_back(stamp);
    }
    for (size_t layer = 0; layer < windows.size(); ++layer)
      put(layer, k, v, stride, positions, sequences);
  }

  void put(int64_t layer, const std::vector<float> &k,
           const std::vector<float> &v, int64_t stride,
           const std::vector<int32_t> &positions,
           const std::vector<int32_t> &sequences) {
    if (dtype == STEM_F32)
      return stem_kv_append(cache.get(), layer, k.data(), stride, v.data(),
                            stride, positions.data(), sequences.data(),
                            int64_t(positions.size()));
    std::vector<uint16_t> kBits, vBits;
    for (float value : k)
      kBits.push_back(bf16Bits(value));
    for (float value : v)
      vBits.push_back(bf16Bits(value));
    stem_kv_append(cache.get(), layer, kBits.data(), stride, vBits.data(),
                   stride, positions.data(), sequences.data(),
                   int64_t(positions.size()));
  }

  /// Element (position, e) of a head by the words of the header.
  float at(int64_t layer, int32_t sequence, int64_t head, int64_t position,
           int64_t e, bool values) {
    const void *page = stem_kv_page(cache.get(), layer, sequence,
                                    position / STEM_KV_PAGE, head, values);
    int64_t offset = position % STEM_KV_PAGE;
    int64_t row = values ? offset : e;
    int64_t column = values ? e : offset;
    int64_t storedRows = values ? STEM_KV_PAGE : headDim;
    int64_t panel = column / STEM_PANEL;
    column %= STEM_PANEL;
    if (dtype == STEM_F32)
      return static_cast<const float *>(
          page)[(panel * storedRows + row) * STEM_PANEL + column];
    int64_t pairs = (storedRows + 1) / 2;
    return bf16Value(static_cast<const uint16_t *>(
        page)[((panel * pairs + row / 2) * STEM_PANEL + column) * 2 + row % 2]);
  }

  float wanted(int32_t sequence, int64_t head, int64_t position, int64_t e) {
    if (position >= int64_t(rows[sequence].size()))
      return 0;
    float value =
        rows[sequence][position] + float((head * headDim + e) % 16) / 16;
    return dtype == STEM_F32 ? value : bf16Value(bf16Bits(value));
  }

  /// Every position that the next query can see, and the zeros after it.
  void check() {
    for (size_t sequence = 0; sequence < rows.size(); ++sequence) {
      int64_t length = int64_t(rows[sequence].size());
      ASSERT_EQ(stem_kv_length(cache.get(), sequence), length);
      int64_t end = (length + STEM_KV_PAGE) / STEM_KV_PAGE * STEM_KV_PAGE;
      for (size_t layer = 0; layer < windows.size(); ++layer) {
        int64_t window = windows[layer];
        int64_t first = window ? std::max<int64_t>(0, length - window + 1) : 0;
        for (int64_t head = 0; head < heads; ++head)
          for (int64_t position = first; position < end; ++position)
            for (int64_t e = 0; e < headDim; e += 3) {
              float value = wanted(sequence, head, position, e);
              ASSERT_EQ(at(layer, sequence, head, position, e, false), value)
                  << "key of layer " << layer << " sequence " << sequence
                  << " head " << head << " position " << position << " of "
                  << length << " element " << e;
              ASSERT_EQ(at(layer, sequence, head, position, e, true), -value)
                  << "value of layer " << layer << " sequence " << sequence
                  << " head " << head << " position " << position << " of "
                  << length << " element " << e;
            }
      }
    }
  }

  void fork(int32_t from, int32_t to) {
    throwIfFailed(context.get(),
                  stem_kv_fork(context.get(), cache.get(), from, to));
    rows[to] = rows[from];
  }

  stem_status truncate(int32_t sequence, int64_t length) {
    stem_status status =
        stem_kv_truncate(context.get(), cache.get(), sequence, length);
    if (status == STEM_OK)
      rows[sequence].resize(length);
    return status;
  }

  stem_dtype dtype;
  int64_t heads, headDim;
  std::vector<int64_t> windows;
  stem_kv_options options;
  ContextPtr context = createContext(1);
  std::unique_ptr<stem_kv_cache, CacheDeleter> cache;
  std::vector<std::vector<float>> rows;
  int stamps = 0;
};

TEST(KVCache, PagesHoldWhatWasAppended) {
  for (stem_dtype dtype : {STEM_F32, STEM_BF16})
    for (int64_t headDim : {1, 15, 64, 72}) {
      CacheModel model(dtype, 2, headDim, {0, 0}, 300, 0);
      for (int64_t count : {1, 5, 57, 1, 1, 63, 130}) {
        model.extend(0, count);
        model.extend(2, 1);
        model.check();
      }
    }
}

TEST(KVCache, RandomStepsMatchAPlainModel) {
  for (stem_dtype dtype : {STEM_F32, STEM_BF16}) {
    CacheModel model(dtype, 2, 7, {0, 100, 1}, 700, 90);
    std::mt19937 random(dtype);
    int truncated = 0, refused = 0;
    for (int step = 0; step < 150; ++step) {
      auto sequence = int32_t(random() % 4), other = int32_t(random() % 4);
      int64_t length = int64_t(model.rows[sequence].size());
      int64_t room = std::min<int64_t>(90, 700 - length);
      switch (random() % 8) {
      case 0:
        model.fork(sequence, other);
        break;
      case 1: {
        int64_t shorter = length - std::min<int64_t>(length, random() % 130);
        (model.truncate(sequence, shorter) ? refused : truncated)++;
        break;
      }
      case 2:
        if (step % 3 == 0)
          ASSERT_EQ(model.truncate(sequence, 0), STEM_OK);
        break;
      default:
        if (room)
          model.extend(sequence, 1 + random() % room);
      }
      ASSERT_NO_FATAL_FAILURE(model.check());
    }
    EXPECT_GT(truncated, 0);
    EXPECT_GT(refused, 0);
  }
}

TEST(KVCache, MemoryFollowsUse) {
  CacheModel model(STEM_BF16, 3, 64, {0, 0}, 2048, 0);
  int64_t block = 3 * 64 * 64 * 2 * 2;
  EXPECT_EQ(stem_kv_bytes(model.cache.get()), 0);
  model.extend(0, 1);
  EXPECT_EQ(stem_kv_bytes(model.cache.get()), 2 * block);
  model.extend(0, 64);
  EXPECT_EQ(stem_kv_bytes(model.cache.get()), 4 * block);
  EXPECT_EQ(kvSequenceBytes(model.options, 65), 4 * block);
  // A fork takes memory where it grows, not before.
  model.fork(0, 1);
  EXPECT_EQ(stem_kv_bytes(model.cache.get()), 4 * block);
  model.extend(1, 1);
  EXPECT_EQ(stem_kv_bytes(model.cache.get()), 6 * block);
  // Freed pages serve again, cleared.
  ASSERT_EQ(model.truncate(0, 0), STEM_OK);
  model.extend(3, 10);
  EXPECT_EQ(stem_kv_bytes(model.cache.get()), 6 * block);
  model.check();
}

TEST(KVCache, AWindowKeepsARing) {
  CacheModel model(STEM_F32, 1, 8, {128}, 4096, 64);
  for (int step = 0; step < 40; ++step)
    model.extend(0, 64);
  model.check();
  // 128 + 64 - 1 positions touch four pages at most.
  EXPECT_EQ(stem_kv_bytes(model.cache.get()),
            kvSequenceBytes(model.options, 4096));
  EXPECT_EQ(stem_kv_bytes(model.cache.get()),
            4 * (8 * 64 + 64 * 64) * int64_t(sizeof(float)));
  EXPECT_EQ(model.truncate(0, 100), STEM_OUT_OF_RANGE);
  expectContains(stem_context_message(model.context.get()),
                 "sequence 0 cannot be truncated from 2560 to 100 positions: "
                 "layer 0 keeps a window of 128 and has overwritten page 0");
  model.check();
  EXPECT_EQ(model.truncate(0, 2550), STEM_OK);
  model.extend(0, 20);
  model.check();
}

TEST(KVCache, NothingIsWrittenWhereNoRoomWasMade) {
  CacheModel model(STEM_F32, 1, 4, {0}, 128, 0);
  model.extend(0, 3);
  model.fork(0, 1);
  std::vector<float> row(4, 99);
  // Beyond the length, a shared page, positions and sequences that are not.
  model.put(0, row, row, 4, {3}, {0});
  model.put(0, row, row, 4, {1}, {1});
  model.put(0, row, row, 4, {-1}, {0});
  model.put(0, row, row, 4, {INT32_MAX}, {0});
  model.put(0, row, row, 4, {0}, {INT32_MAX});
  model.put(5, row, row, 4, {0}, {0});
  model.put(-1, row, row, 4, {0}, {0});
  model.check();
  model.extend(2, 3);
  model.put(0, row, row, 4, {3}, {2});
  model.check();
  stem_kv_append(nullptr, 0, row.data(), 4, row.data(), 4, nullptr, nullptr, 1);
}

TEST(KVCache, PagesThatAreNotAreZeros) {
  CacheModel model(STEM_F32, 2, 80, {0}, 128, 0);
  model.extend(0, 3);
  for (auto [layer, sequence, page, head] :
       {std::tuple<int64_t, int32_t, int64_t, int64_t>{0, -1, 0, 0},
        {0, 0, 1, 0},
        {0, 0, -1, 0},
        {0, 1, 0, 0},
        {0, 9, 0, 0},
        {7, 0, 0, 0},
        {0, 0, 0, 2}})
    for (int values : {0, 1}) {
      auto data = static_cast<const float *>(
          stem_kv_page(model.cache.get(), layer, sequence, page, head, values));
      ASSERT_NE(data, nullptr);
      for (int64_t i = 0; i < (values ? 64 * 128 : 80 * 64); ++i)
        ASSERT_EQ(data[i], 0);
    }
  EXPECT_EQ(stem_kv_page(nullptr, 0, 0, 0, 0, 0), nullptr);
  EXPECT_EQ(stem_kv_length(nullptr, 0), 0);
  EXPECT_EQ(stem_kv_length(model.cache.get(), 9), 0);
  EXPECT_EQ(stem_kv_bytes(nullptr), 0);
  stem_kv_destroy(nullptr);
}

TEST(KVCache, RefusesWhatDoesNotFit) {
  CacheModel model(STEM_F32, 1, 4, {50}, 128, 20);
  stem_context *context = model.context.get();
  stem_kv_cache *cache = model.cache.get();
  auto expect = [&](stem_status seen, stem_status wanted, const char *part) {
    EXPECT_EQ(seen, wanted);
    expectContains(stem_context_message(context), part);
  };
  expect(model.reserve(0, 129), STEM_OUT_OF_RANGE,
         "sequence 0 would have 129 positions but the cache holds at most 128");
  expect(model.reserve(0, 21), STEM_INVALID_ARGUMENT,
         "would grow by 21 positions at once but the cache's windows leave "
         "room for 20 (max_append)");
  expect(model.reserve(4, 1), STEM_OUT_OF_RANGE,
         "stem_kv_reserve: sequence 4 is out of range: the cache holds 4");
  expect(model.reserve(-1, 1), STEM_OUT_OF_RANGE, "sequence -1");
  expect(stem_kv_reserve(context, nullptr, 0, 1), STEM_INVALID_ARGUMENT,
         "stem_kv_reserve: the cache is null");
  model.extend(0, 10);
  EXPECT_EQ(model.reserve(0, 10), STEM_OK);
  expect(model.reserve(0, 9), STEM_INVALID_ARGUMENT,
         "sequence 0 has 10 positions and cannot be reserved for 9: use "
         "stem_kv_truncate");
  expect(model.truncate(0, 11), STEM_INVALID_ARGUMENT,
         "sequence 0 has 10 positions and cannot be truncated to 11");
  expect(model.truncate(0, -1), STEM_INVALID_ARGUMENT, "truncated to -1");
  expect(stem_kv_fork(context, cache, 0, 4), STEM_OUT_OF_RANGE,
         "stem_kv_fork: sequence 4");
  EXPECT_EQ(stem_kv_fork(context, cache, 0, 0), STEM_OK);
  model.check();
}

TEST(KVCache, RefusesUnusableOptions) {
  ContextPtr context = createContext(1);
  int64_t windows[] = {0, -3};
  stem_kv_options good = {sizeof(good), 2, 1,       4, 128, 1,
                          STEM_F32,     0, nullptr, 0};
  stem_kv_cache *cache = nullptr;
  auto expect = [&](const stem_kv_options &options, stem_status wanted,
                    const char *part) {
    EXPECT_EQ(stem_kv_create(context.get(), &options, &cache), wanted);
    EXPECT_EQ(cache, nullptr);
    expectContains(stem_context_message(context.get()), part);
  };
  auto with = [&](auto member, auto value) {
    stem_kv_options options = good;
    options.*member = value;
    return options;
  };
  expect(with(&stem_kv_options::struct_size, 8), STEM_INCOMPATIBLE,
         "stem_kv_options has struct_size 8 but this runtime knows 72 bytes");
  expect(with(&stem_kv_options::layers, 0), STEM_INVALID_ARGUMENT,
         "layers is 0 but must lie in [1, 1048576]");
  expect(with(&stem_kv_options::heads, -1), STEM_INVALID_ARGUMENT, "heads is");
  expect(with(&stem_kv_options::head_dim, INT64_MAX), STEM_INVALID_ARGUMENT,
         "head_dim is");
  expect(with(&stem_kv_options::max_positions, 1ll << 40),
         STEM_INVALID_ARGUMENT, "max_positions is");
  expect(with(&stem_kv_options::max_sequences, 0), STEM_INVALID_ARGUMENT,
         "max_sequences is");
  expect(with(&stem_kv_options::max_append, 129), STEM_INVALID_ARGUMENT,
         "max_append is 129 but must lie in [0, 128]");
  expect(with(&stem_kv_options::dtype, STEM_I8), STEM_INVALID_ARGUMENT,
         "dtype is 3 but must be STEM_F32 or STEM_BF16");
  expect(with(&stem_kv_options::windows, windows), STEM_INVALID_ARGUMENT,
         "windows[1] is -3");
  EXPECT_EQ(stem_kv_create(context.get(), nullptr, &cache),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_kv_create(context.get(), &good, nullptr),
            STEM_INVALID_ARGUMENT);
  expectContains(errorOf([&] { kvSequenceBytes(good, 129); }),
                 "129 positions asked for, but a sequence has at most 128");
  expectContains(
      errorOf([&] { kvSequenceBytes(with(&stem_kv_options::heads, 0), 1); }),
      "key-value cache: heads is 0");
}

} // namespace
