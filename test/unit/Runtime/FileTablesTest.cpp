//===- FileTablesTest.cpp - Tables in files beside tables in memory -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Support/TestFiles.h"
#include "RowReader.h"
#include "StagingPool.h"
#include "TestSupport.h"

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

class FileTables : public testing::Test {
protected:
  StorePtr makeStore(int64_t staging, int32_t threads, int64_t cacheIds = 0) {
    stem_table_store_options options = {sizeof(options), staging, cacheIds,
                                        threads};
    stem_table_store *made = nullptr;
    EXPECT_EQ(stem_table_store_create(context.get(), &options, &made), STEM_OK);
    return StorePtr(made);
  }

  /// A file of `offset` other bytes and rows of bf16 drawn from `seed`.
  std::vector<uint16_t> writeRows(const fs::path &path, int64_t rows,
                                  int64_t columns, int64_t offset, int seed) {
    std::mt19937 random(seed);
    std::vector<uint16_t> values(rows * columns);
    for (uint16_t &value : values)
      value = uint16_t(random());
    std::ofstream file(path, std::ios::binary);
    file << std::string(offset, 'x');
    file.write(reinterpret_cast<const char *>(values.data()),
               std::streamsize(values.size() * sizeof(uint16_t)));
    return values;
  }

  stem_table_options inFile(const fs::path &path, int64_t rows, int64_t columns,
                            int64_t offset) {
    names.push_back(path.string());
    stem_table_options options = {};
    options.struct_size = sizeof(options);
    options.rows = rows;
    options.columns = columns;
    options.dtype = STEM_BF16;
    options.name = "t";
    options.file = names.back().c_str();
    options.offset = offset;
    return options;
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

  stem_status prefetch(const StorePtr &store, int64_t table,
                       stem_table_plan *made, stem_ticket &ticket) {
    return stem_table_prefetch(context.get(), store.get(), table, made,
                               &ticket);
  }

  stem_status await(const StorePtr &store, stem_ticket ticket,
                    stem_tensor &rows, stem_tensor &index) {
    return stem_table_await(context.get(), store.get(), ticket, &rows, &index);
  }

  void expect(stem_status seen, stem_status wanted, const char *part) {
    EXPECT_EQ(seen, wanted);
    expectContains(stem_context_message(context.get()), part);
  }

  stem_table_statistics statistics(const StorePtr &store) {
    stem_table_statistics result = {};
    result.struct_size = sizeof(result);
    EXPECT_EQ(stem_table_get_statistics(store.get(), &result), STEM_OK);
    return result;
  }

  ContextPtr context = createContext(1);
  const TemporaryFolder folder;
  std::deque<std::string> names;
};

/// Columns of no round size, tables at odd offsets, tickets in any order.
TEST_F(FileTables, MatchTablesInMemory) {
  for (const auto &[threads, cacheIds] :
       {std::pair(0, 0), std::pair(1, 1), std::pair(5, 0), std::pair(2, 7),
        std::pair(1, 40), std::pair(3, 1000)}) {
    std::mt19937 random(threads);
    const StorePtr store = makeStore(1 << 20, threads, cacheIds);
    struct Reference {
      int64_t rows, columns;
      std::vector<uint16_t> values;
    };
    std::vector<Reference> tables;
    for (int i = 0; i < 4; ++i) {
      const int64_t rows = 1 + random() % 300, columns = 1 + random() % 70;
      const int64_t offset = random() % 100;
      const fs::path path =
          folder.path() / (std::to_string(cacheIds) + "-" +
                           std::to_string(threads) + "-" + std::to_string(i));
      tables.push_back(
          {rows, columns, writeRows(path, rows, columns, offset, i)});
      ASSERT_EQ(open(store, inFile(path, rows, columns, offset)), STEM_OK);
    }
    uint64_t bytes = 0, wanted = 0;
    for (int step = 0; step < 300; ++step) {
      int64_t fewest = tables[0].rows;
      for (const Reference &table : tables)
        fewest = std::min(fewest, table.rows);
      std::vector<int32_t> ids(random() % 60);
      for (int32_t &id : ids)
        id = int32_t(random() % fewest);
      stem_table_plan *made = plan(store, ids);
      std::vector<std::pair<size_t, stem_ticket>> tickets;
      for (size_t i = 0; i < tables.size(); ++i) {
        tickets.push_back({i, 0});
        ASSERT_EQ(prefetch(store, int64_t(i), made, tickets.back().second),
                  STEM_OK);
        const int64_t unique = stem_table_plan_unique(made, nullptr, nullptr);
        wanted += unique;
        bytes += unique * tables[i].columns * sizeof(uint16_t);
      }
      std::shuffle(tickets.begin(), tickets.end(), random);
      for (auto [number, ticket] : tickets) {
        if (random() % 5 == 0)
          continue; // ends with its plan, read or not
        const Reference &table = tables[number];
        stem_tensor rows, index;
        ASSERT_EQ(await(store, ticket, rows, index), STEM_OK);
        ASSERT_EQ(rows.sizes[1], table.columns);
        ASSERT_EQ(index.sizes[0], int64_t(ids.size()));
        for (size_t i = 0; i < ids.size(); ++i) {
          const int32_t at = static_cast<const int32_t *>(index.data)[i];
          ASSERT_LT(at, rows.sizes[0]);
          ASSERT_EQ(std::memcmp(static_cast<const uint16_t *>(rows.data) +
                                    at * rows.strides[0],
                                &table.values[ids[i] * table.columns],
                                table.columns * sizeof(uint16_t)),
                    0);
        }
        stem_table_release(store.get(), ticket);
      }
      stem_table_release_plan(store.get(), made);
    }
    const stem_table_statistics seen = statistics(store);
    EXPECT_EQ(seen.rows_read + seen.rows_cached, wanted);
    // One place is seldom that of an id of the next step.
    if (cacheIds == 0)
      EXPECT_EQ(seen.bytes_moved, bytes);
    else if (cacheIds > 1)
      EXPECT_LT(seen.bytes_moved, bytes);
    if (cacheIds == 0 || cacheIds == 1000)
      EXPECT_EQ(seen.evictions, 0u);
    EXPECT_EQ(seen.bytes_resident, 0u);
    uint64_t inFiles = 0;
    for (const Reference &table : tables)
      inFiles += table.values.size() * sizeof(uint16_t);
    EXPECT_EQ(seen.bytes_in_files, inFiles);
    EXPECT_EQ(seen.stalls > 0, seen.stall_nanoseconds > 0);
  }
}

/// 2^32 elements behind 2^33 bytes, nearly all of them holes.
TEST_F(FileTables, ReachFarIntoAFile) {
  constexpr int64_t rows = 1 << 20, columns = 4096;
  constexpr int64_t offset = int64_t(1) << 33, bytes = columns * 2;
  const fs::path path = folder.path() / "sparse";
  std::ofstream(path).put('\0');
  fs::resize_file(path, offset + rows * bytes);
  const std::string last(bytes, 'z');
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(offset + (rows - 1) * bytes);
  file.write(last.data(), bytes);
  file.close();
  const StorePtr store = makeStore(1 << 20, 2);
  ASSERT_EQ(open(store, inFile(path, rows, columns, offset)), STEM_OK);
  stem_ticket ticket = 0;
  ASSERT_EQ(prefetch(store, 0, plan(store, {rows - 1, 5}), ticket), STEM_OK);
  stem_tensor found, index;
  ASSERT_EQ(await(store, ticket, found, index), STEM_OK);
  EXPECT_EQ(std::memcmp(found.data, last.data(), bytes), 0);
  EXPECT_EQ(static_cast<const char *>(found.data)[bytes], '\0');
}

TEST_F(FileTables, RefuseFilesThatDoNotHoldThem) {
  const StorePtr store = makeStore(1 << 12, 1);
  const fs::path path = folder.path() / "rows";
  writeRows(path, 10, 4, 16, 0);
  expect(open(store, inFile(path, 10, 4, 17)), STEM_INVALID_ARGUMENT,
         "table 't' takes 80 bytes from byte 17 on, but ");
  expect(open(store, inFile(path, 10, 4, -1)), STEM_INVALID_ARGUMENT,
         "from byte -1 on");
  expect(open(store, inFile(folder.path() / "none", 10, 4, 0)), STEM_IO_ERROR,
         "none cannot be read: No such file or directory");
  expect(open(store, inFile(folder.path(), 10, 4, 0)), STEM_IO_ERROR,
         "cannot be read: it is no regular file");
  stem_table_options writable = inFile(path, 10, 4, 16);
  writable.writable = 1;
  expect(open(store, writable), STEM_INVALID_ARGUMENT,
         "table 't' lies in a file: it cannot be opened as writable");
  EXPECT_EQ(open(store, inFile(path, 10, 4, 16)), STEM_OK);
}

TEST_F(FileTables, SayWhatIsWrongWithAFileInUse) {
  const StorePtr store = makeStore(1 << 12, 1);
  const fs::path longer = folder.path() / "longer",
                 touched = folder.path() / "touched";
  writeRows(longer, 10, 4, 0, 0);
  writeRows(touched, 10, 4, 0, 0);
  ASSERT_EQ(open(store, inFile(longer, 10, 4, 0)), STEM_OK);
  ASSERT_EQ(open(store, inFile(touched, 10, 4, 0)), STEM_OK);
  fs::resize_file(longer, 81);
  fs::last_write_time(touched,
                      fs::last_write_time(touched) + std::chrono::seconds(1));
  stem_table_plan *made = plan(store, {3});
  stem_ticket ticket = 0;
  expect(prefetch(store, 0, made, ticket), STEM_IO_ERROR,
         "longer changed while it was in use: it has 81 bytes, 80 when it was "
         "opened");
  EXPECT_EQ(ticket, 0);
  expect(prefetch(store, 1, made, ticket), STEM_IO_ERROR,
         "touched changed while it was in use: it was written to since it was "
         "opened");
}

/// The file is cut after the first lookup has looked at it.
TEST_F(FileTables, NameTheRowThatCannotBeRead) {
  const fs::path path = folder.path() / "rows";
  writeRows(path, 10, 4, 0, 0);
  const StorePtr store = makeStore(1 << 12, /*threads=*/0);
  ASSERT_EQ(open(store, inFile(path, 10, 4, 0)), STEM_OK);
  stem_ticket ticket = 0;
  ASSERT_EQ(prefetch(store, 0, plan(store, {2, 9, 7}), ticket), STEM_OK);
  fs::resize_file(path, 60);
  stem_tensor rows, index;
  for (int again = 0; again < 2; ++again)
    expect(await(store, ticket, rows, index), STEM_IO_ERROR,
           "table 't': row 9 at byte 72 of ");
  expectContains(stem_context_message(context.get()),
                 "cannot be read: the file ends there");
}

/// Rows of a plan whose reads fail, and of one that is given up, are not kept.
TEST_F(FileTables, KeepOnlyWhatWasRead) {
  const fs::path path = folder.path() / "rows";
  const std::vector<uint16_t> values = writeRows(path, 10, 4, 0, 0);
  const StorePtr store = makeStore(1 << 12, /*threads=*/0, /*cacheIds=*/10);
  ASSERT_EQ(open(store, inFile(path, 10, 4, 0)), STEM_OK);
  stem_tensor rows, index;
  for (int round = 0; round < 3; ++round) {
    stem_table_plan *made = plan(store, {1, 2});
    stem_ticket ticket = 0;
    ASSERT_EQ(prefetch(store, 0, made, ticket), STEM_OK);
    EXPECT_EQ(statistics(store).rows_cached, round == 2 ? 2u : 0u);
    if (round > 0) {
      ASSERT_EQ(await(store, ticket, rows, index), STEM_OK);
      EXPECT_EQ(std::memcmp(rows.data, &values[4], 2 * 8), 0);
    }
    stem_table_release_plan(store.get(), made);
  }
  EXPECT_EQ(statistics(store).rows_read, 4u);
  // A larger table: the cache begins again.
  const fs::path larger = folder.path() / "larger";
  writeRows(larger, 20, 4, 0, 0);
  ASSERT_EQ(open(store, inFile(larger, 20, 4, 0)), STEM_OK);
  stem_ticket ticket = 0;
  ASSERT_EQ(prefetch(store, 0, plan(store, {2}), ticket), STEM_OK);
  EXPECT_EQ(statistics(store).rows_cached, 2u);
}

TEST_F(FileTables, StagingIsCountedOut) {
  const fs::path path = folder.path() / "rows";
  writeRows(path, 100, 32, 0, 0);
  EXPECT_EQ(stem_table_staging_bytes(3, 32, STEM_BF16), 192);
  EXPECT_EQ(stem_table_staging_bytes(0, 32, STEM_BF16), 64);
  EXPECT_EQ(stem_table_staging_bytes(1, 33, STEM_BF16), 128);
  EXPECT_EQ(stem_table_staging_bytes(INT64_MAX, 33, STEM_BF16), -1);
  EXPECT_EQ(stem_table_count_bytes(100, 0), 0);
  EXPECT_EQ(stem_table_count_bytes(100, 10), 100 * 21 + 10 * 4 + 9 * 16);
  EXPECT_EQ(stem_table_count_bytes(100, 500), 100 * 21 + 100 * 4 + 90 * 16);
  EXPECT_EQ(stem_table_count_bytes(-1, 10), -1);
  EXPECT_EQ(stem_table_count_bytes(100, -1), -1);
  EXPECT_EQ(stem_table_count_bytes(INT64_MAX, 10), -1);
  const StorePtr store = makeStore(5 * 64, 1);
  ASSERT_EQ(open(store, inFile(path, 100, 32, 0)), STEM_OK);
  stem_table_plan *three = plan(store, {1, 2, 3, 2});
  stem_ticket first = 0, second = 0;
  ASSERT_EQ(prefetch(store, 0, three, first), STEM_OK);
  expect(prefetch(store, 0, three, second), STEM_OUT_OF_MEMORY,
         "table 't' needs 192 bytes of staging for 3 rows of this step: 192 of "
         "320 bytes are taken by other tables");
  stem_table_release(store.get(), first);
  EXPECT_EQ(prefetch(store, 0, three, second), STEM_OK);
  stem_table_store_options options = {sizeof(options), -1, 0, 0};
  stem_table_store *made = nullptr;
  expect(stem_table_store_create(context.get(), &options, &made),
         STEM_INVALID_ARGUMENT, "-1 bytes of staging");
  options = {sizeof(options), 0, 0, 257};
  expect(stem_table_store_create(context.get(), &options, &made),
         STEM_INVALID_ARGUMENT,
         "257 threads that read: wanted 0 or more, and 0 "
         "to 256");
  options = {8, 0, 0, 0};
  expect(stem_table_store_create(context.get(), &options, &made),
         STEM_INCOMPATIBLE, "stem_table_store_options has struct_size 8");
  EXPECT_EQ(made, nullptr);
}

/// A distance of 1: rows of two tables at once, in memory for two, while four
/// tables are read; and one more is refused at once, with the figures.
TEST_F(FileTables, StagingIsUsedAgain) {
  constexpr int tables = 4, columns = 32;
  constexpr int64_t part = 3 * columns * 2;
  std::vector<std::vector<uint16_t>> values;
  for (int threads : {0, 3}) {
    const StorePtr store = makeStore(2 * part, threads);
    values.clear();
    for (int table = 0; table < tables; ++table) {
      const fs::path path = folder.path() / (std::to_string(threads) + "-" +
                                             std::to_string(table));
      values.push_back(writeRows(path, 50, columns, 0, table));
      ASSERT_EQ(open(store, inFile(path, 50, columns, 0)), STEM_OK);
    }
    for (int step = 0; step < 3; ++step) {
      const std::vector<int32_t> ids = {7 + step, 49, 7 + step, 3};
      stem_table_plan *made = plan(store, ids);
      std::vector<stem_ticket> tickets(tables);
      ASSERT_EQ(prefetch(store, 0, made, tickets[0]), STEM_OK);
      for (int table = 0; table < tables; ++table) {
        if (table + 1 < tables)
          ASSERT_EQ(prefetch(store, table + 1, made, tickets[table + 1]),
                    STEM_OK);
        if (table + 2 < tables) {
          stem_ticket more = 0;
          expect(prefetch(store, table + 2, made, more), STEM_OUT_OF_MEMORY,
                 "needs 192 bytes of staging for 3 rows of this step: 384 of "
                 "384 bytes are taken by other tables");
        }
        stem_tensor rows, index;
        ASSERT_EQ(await(store, tickets[table], rows, index), STEM_OK);
        for (size_t i = 0; i < ids.size(); ++i) {
          const int32_t at = static_cast<const int32_t *>(index.data)[i];
          ASSERT_EQ(std::memcmp(static_cast<const uint16_t *>(rows.data) +
                                    at * columns,
                                &values[table][ids[i] * columns], columns * 2),
                    0);
        }
        stem_table_release(store.get(), tickets[table]);
      }
      stem_table_release_plan(store.get(), made);
    }
  }
}

TEST(StagingPool, GivesRunsThatDoNotOverlap) {
  constexpr int64_t size = 64 * 100;
  StagingPool pool(size);
  std::mt19937 random(1);
  std::map<char *, int64_t> parts;
  for (int step = 0; step < 5000; ++step) {
    if (parts.empty() || random() % 2) {
      const int64_t bytes = random() % 1000;
      char *part = pool.take(bytes);
      if (!part) {
        EXPECT_GT(pool.taken() + StagingPool::bytesOf(bytes), size / 4);
        continue;
      }
      EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % 64, 0u);
      const auto [place, isNew] =
          parts.emplace(part, StagingPool::bytesOf(bytes));
      ASSERT_TRUE(isNew);
      if (place != parts.begin())
        ASSERT_LE(std::prev(place)->first + std::prev(place)->second, part);
      if (std::next(place) != parts.end())
        ASSERT_LE(part + place->second, std::next(place)->first);
    } else {
      const auto place = std::next(parts.begin(), random() % parts.size());
      pool.giveBack(place->first);
      parts.erase(place);
    }
    int64_t taken = 0;
    for (const auto &[part, bytes] : parts)
      taken += bytes;
    ASSERT_EQ(pool.taken(), taken);
  }
  EXPECT_EQ(pool.take(size + 1), nullptr);
}

/// Parts of one size leave no gaps, in whatever order they are given back.
TEST(StagingPool, IsFilledAgainByPartsOfOneSize) {
  constexpr int count = 5;
  StagingPool pool(count * StagingPool::bytesOf(1000));
  std::mt19937 random(1);
  std::vector<char *> parts;
  for (int step = 0; step < 1000; ++step) {
    while (parts.size() < count) {
      parts.push_back(pool.take(1000));
      ASSERT_NE(parts.back(), nullptr);
    }
    EXPECT_EQ(pool.take(1), nullptr);
    for (int given = random() % count; given >= 0; --given) {
      std::swap(parts[random() % parts.size()], parts.back());
      pool.giveBack(parts.back());
      parts.pop_back();
    }
  }
}

TEST(RowReader, KeepsNoBatchWithoutThreads) {
  char target[4] = {};
  RowReader reader(0);
  auto batch = reader.start({RowRead{-1, 0, 4, target}});
  EXPECT_EQ(reader.waiting(), 0u);
  EXPECT_TRUE(RowReader::wait(*batch).failure);
}

TEST(RowReader, TellsTheFirstFailure) {
  char target[4] = {};
  RowReader reader(3);
  for (int again = 0; again < 50; ++again) {
    std::vector<RowRead> reads(40, RowRead{-1, 0, 4, target});
    auto batch = reader.start(reads);
    const RowReader::Outcome outcome = RowReader::wait(*batch);
    ASSERT_TRUE(outcome.failure);
    EXPECT_EQ(outcome.failure->read, 0u);
    EXPECT_EQ(outcome.failure->error, EBADF);
    EXPECT_FALSE(RowReader::wait(*batch).stalled);
  }
  EXPECT_FALSE(RowReader::wait(*reader.start({})).stalled);
}

} // namespace
