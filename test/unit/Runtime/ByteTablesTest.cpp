//===- ByteTablesTest.cpp - Tables of 8-bit rows --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Support/TestFiles.h"
#include "TestSupport.h"

#include "stem/Runtime/Tensor.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

/// A table of random bytes, in memory and in a file, and its rows in f32.
struct ByteTable {
  ByteTable(int64_t rows, int64_t columns, int64_t hotCount, int32_t hotDtype,
            std::mt19937 &random)
      : rows(rows), columns(columns), hotDtype(hotDtype),
        values(rows * columns), bytes(rows * columns) {
    std::uniform_real_distribution<float> real(-2, 2);
    for (uint8_t &byte : bytes)
      byte = uint8_t(random());
    for (int64_t row = 0; row < rows; ++row) {
      minimum.push_back(real(random));
      scale.push_back(row % 5 == 0 ? 0 : real(random) + 2);
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i)
        values[i] = float(minimum[row] + double(scale[row]) * bytes[i]);
      hotIds.push_back(int32_t(row));
    }
    std::shuffle(hotIds.begin(), hotIds.end(), random);
    hotIds.resize(hotCount);
    std::sort(hotIds.begin(), hotIds.end());
    for (const int32_t id : hotIds)
      for (int64_t i = id * columns; i < (id + 1) * columns; ++i)
        addHot(values[i] = float(int32_t(real(random) * 64)) / 64);
  }

  /// Small numbers of few bits, which each type holds.
  void addHot(float value) {
    const char *from = reinterpret_cast<const char *>(&value);
    if (hotDtype == STEM_F32)
      return hot.append(from, 4), void();
    uint16_t half = bf16Bits(value);
    if (hotDtype == STEM_F16) {
      const _Float16 narrow = _Float16(value);
      std::memcpy(&half, &narrow, 2);
    }
    hot.append(reinterpret_cast<const char *>(&half), 2);
  }

  void write(const fs::path &path, int64_t offset) {
    file = path.string();
    std::ofstream out(path, std::ios::binary);
    out << std::string(offset, 'x');
    out.write(reinterpret_cast<const char *>(bytes.data()),
              std::streamsize(bytes.size()));
    out << "yyy" << hot;
    this->offset = offset;
  }

  stem_table_options options(bool isInFile) {
    described = {sizeof(described),
                 scale.data(),
                 minimum.data(),
                 hotIds.data(),
                 int64_t(hotIds.size()),
                 hotDtype,
                 hot.data(),
                 nullptr,
                 0};
    stem_table_options options = {};
    options.struct_size = sizeof(options);
    options.rows = rows;
    options.columns = columns;
    options.dtype = STEM_F32;
    options.name = "t";
    options.byte_rows = &described;
    options.resident = bytes.data();
    if (isInFile) {
      options.resident = described.hot_rows = nullptr;
      options.file = described.hot_file = file.c_str();
      options.offset = offset;
      described.hot_offset = offset + int64_t(bytes.size()) + 3;
    }
    return options;
  }

  int64_t rows, columns;
  int32_t hotDtype;
  std::vector<float> scale, minimum, values;
  std::vector<uint8_t> bytes;
  std::vector<int32_t> hotIds;
  std::string hot, file;
  int64_t offset = 0;
  stem_byte_rows described;
};

class ByteTables : public testing::Test {
protected:
  StorePtr makeStore(int64_t staging, int32_t threads, int64_t cacheIds) {
    stem_table_store_options options = {sizeof(options), staging, cacheIds,
                                        threads};
    stem_table_store *made = nullptr;
    EXPECT_EQ(stem_table_store_create(context.get(), &options, &made), STEM_OK);
    return StorePtr(made);
  }

  stem_status open(const StorePtr &store, const stem_table_options &options) {
    return stem_table_open(context.get(), store.get(), &options);
  }

  stem_table_plan *plan(const StorePtr &store,
                        const std::vector<int32_t> &ids) {
    stem_table_plan *made = nullptr;
    EXPECT_EQ(stem_table_make_plan(context.get(), store.get(), ids.data(),
                                   int64_t(ids.size()), &made),
              STEM_OK);
    return made;
  }

  /// One step with these ids; rows are awaited twice.
  void checkStep(const StorePtr &store, int64_t number, const ByteTable &table,
                 const std::vector<int32_t> &ids) {
    stem_table_plan *made = plan(store, ids);
    stem_ticket ticket;
    ASSERT_EQ(
        stem_table_prefetch(context.get(), store.get(), number, made, &ticket),
        STEM_OK)
        << stem_context_message(context.get());
    for (int time = 0; time < 2; ++time) {
      stem_tensor rows, index;
      ASSERT_EQ(
          stem_table_await(context.get(), store.get(), ticket, &rows, &index),
          STEM_OK)
          << stem_context_message(context.get());
      EXPECT_EQ(rows.dtype, STEM_F32);
      EXPECT_EQ(rows.sizes[0], stem_table_plan_unique(made, nullptr, nullptr));
      for (size_t i = 0; i < ids.size(); ++i)
        ASSERT_EQ(std::memcmp(static_cast<const float *>(rows.data) +
                                  static_cast<const int32_t *>(index.data)[i] *
                                      rows.strides[0],
                              &table.values[ids[i] * table.columns],
                              table.columns * sizeof(float)),
                  0)
            << "id " << ids[i];
    }
    stem_table_release_plan(store.get(), made);
  }

  void expect(stem_status seen, stem_status wanted, const char *part) {
    EXPECT_EQ(seen, wanted);
    expectContains(stem_context_message(context.get()), part);
  }

  ContextPtr context = createContext(2);
  const TemporaryFolder folder;
  std::mt19937 random{1};
};

/// The bits of one decoding, wherever the rows lie and whatever is kept.
TEST_F(ByteTables, GiveTheSameRowsFromEverywhere) {
  for (const auto &[threads, cacheIds] :
       {std::pair(0, 0), std::pair(1, 1), std::pair(3, 9), std::pair(2, 500)})
    for (const int64_t columns : {1, 7, 512, 1300}) {
      std::deque<ByteTable> tables;
      const StorePtr store = makeStore(1 << 22, threads, cacheIds);
      for (const int32_t dtype : {STEM_F32, STEM_BF16, STEM_F16})
        for (const int64_t hot : {0, 1, 20, 90}) {
          tables.emplace_back(90, columns, hot, dtype, random);
          tables.back().write(folder.path() / std::to_string(tables.size()),
                              random() % 50);
          for (const bool isInFile : {false, true})
            ASSERT_EQ(open(store, tables.back().options(isInFile)), STEM_OK)
                << stem_context_message(context.get());
        }
      for (int step = 0; step < 12; ++step) {
        std::vector<int32_t> ids(random() % 60);
        for (int32_t &id : ids)
          id = int32_t(random() % 90);
        for (size_t i = 0; i < 2 * tables.size(); ++i)
          checkStep(store, int64_t(i), tables[i / 2], ids);
      }
    }
}

TEST_F(ByteTables, CountWhatIsStored) {
  ByteTable table(50, 8, 10, STEM_BF16, random);
  table.write(folder.path() / "t", 5);
  const auto statistics = [&](bool isInFile) {
    const StorePtr store = makeStore(1 << 16, 0, 0);
    EXPECT_EQ(open(store, table.options(isInFile)), STEM_OK);
    checkStep(store, 0, table, {table.hotIds[0], 0, 1, 2, 3});
    stem_table_statistics result = {};
    result.struct_size = sizeof(result);
    EXPECT_EQ(stem_table_get_statistics(store.get(), &result), STEM_OK);
    return result;
  };
  const uint64_t rows = 50 * 8 + 10 * 8 * 2, scales = 50 * 8 + 10 * 4;
  EXPECT_EQ(statistics(false).bytes_resident, rows + scales);
  EXPECT_EQ(statistics(false).bytes_moved, 0u);
  EXPECT_EQ(statistics(true).bytes_resident, scales);
  EXPECT_EQ(statistics(true).bytes_in_files, rows);
  uint64_t read = 0;
  for (const int32_t id : {table.hotIds[0], 0, 1, 2, 3})
    if (id != table.hotIds[0] || read == 0)
      read += std::ranges::count(table.hotIds, id) ? 16 : 8;
  EXPECT_EQ(statistics(true).bytes_moved, read);
}

TEST_F(ByteTables, NeedStaging) {
  ByteTable table(50, 100, 0, STEM_F32, random);
  const StorePtr store =
      makeStore(stem_table_staging_bytes(3, 100, STEM_F32), 0, 0);
  ASSERT_EQ(open(store, table.options(false)), STEM_OK);
  checkStep(store, 0, table, {4, 5, 4, 6});
  stem_table_plan *made = plan(store, {1, 2, 3, 4, 5, 6, 7});
  stem_ticket ticket;
  expect(stem_table_prefetch(context.get(), store.get(), 0, made, &ticket),
         STEM_OUT_OF_MEMORY, "table 't' needs");
  stem_table_release_plan(store.get(), made);
  checkStep(store, 0, table, {9});
}

TEST_F(ByteTables, RefuseBadOptions) {
  ByteTable table(50, 8, 3, STEM_BF16, random);
  table.write(folder.path() / "t", 5);
  const StorePtr store = makeStore(1 << 16, 0, 0);
  const auto tryWith = [&](bool isInFile, auto change, const char *part,
                           stem_status status = STEM_INVALID_ARGUMENT) {
    stem_table_options options = table.options(isInFile);
    change(options, table.described);
    expect(open(store, options), status, part);
  };
  using Options = stem_table_options;
  using Rows = stem_byte_rows;
  tryWith(
      false, [](Options &, Rows &r) { r.struct_size = 8; },
      "table 't': stem_byte_rows has struct_size 8");
  tryWith(
      false, [](Options &o, Rows &) { o.dtype = STEM_BF16; }, "used as f32");
  tryWith(
      false, [](Options &o, Rows &) { o.writable = 1; }, "cannot be written");
  tryWith(false, [](Options &, Rows &r) { r.scale = nullptr; }, "no scale");
  tryWith(false, [](Options &, Rows &r) { r.minimum = nullptr; }, "no minimum");
  tryWith(
      false, [](Options &, Rows &r) { r.hot_count = 51; },
      "51 rows of 50 are kept");
  tryWith(
      false, [](Options &, Rows &r) { r.hot_ids = nullptr; }, "ids at address");
  tryWith(
      false, [](Options &, Rows &r) { r.hot_dtype = STEM_I8; },
      "wanted f32, bf16 or f16");
  tryWith(false, [](Options &, Rows &r) { r.hot_rows = nullptr; }, "no data");
  tryWith(true, [](Options &, Rows &r) { r.hot_file = nullptr; }, "no file");
  for (const std::vector<int32_t> &ids : std::vector<std::vector<int32_t>>{
           {-1, 2, 3}, {4, 4, 5}, {7, 6, 8}, {3, 4, 50}})
    tryWith(
        false, [&](Options &, Rows &r) { r.hot_ids = ids.data(); },
        "ids rise, each is there once, and are below 50");
  tryWith(
      true, [](Options &o, Rows &) { o.offset = 100; },
      "takes 400 bytes from byte 100 on", STEM_IO_ERROR);
  tryWith(
      true, [](Options &, Rows &r) { r.hot_offset += 1; },
      "takes 48 bytes from byte 409 on", STEM_IO_ERROR);
  tryWith(
      true, [](Options &, Rows &r) { r.hot_file = "/nowhere"; },
      "/nowhere cannot be read", STEM_IO_ERROR);
}

TEST_F(ByteTables, NoticeThatTheirFileChanged) {
  ByteTable table(50, 8, 3, STEM_BF16, random);
  table.write(folder.path() / "t", 5);
  const StorePtr store = makeStore(1 << 16, 0, 0);
  ASSERT_EQ(open(store, table.options(true)), STEM_OK);
  checkStep(store, 0, table, {1, 2});
  std::ofstream(folder.path() / "t", std::ios::app) << "more";
  stem_table_plan *made = plan(store, {1});
  stem_ticket ticket;
  expect(stem_table_prefetch(context.get(), store.get(), 0, made, &ticket),
         STEM_IO_ERROR, "changed while it was in use");
}

} // namespace
