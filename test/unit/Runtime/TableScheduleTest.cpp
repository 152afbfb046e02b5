//===- TableScheduleTest.cpp - Random use of a table store ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Plans, tickets, waits, writes and releases in any order, on tables in memory
// and in files, beside a plain model: the values that each table has.

#include "../Support/TestFiles.h"
#include "TestSupport.h"

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <vector>

using namespace stem;
using namespace stem::test;

namespace {

/// A table, and what it should hold.
struct Model {
  int64_t rows, columns;
  bool inFile;
  std::vector<float> values;
  std::vector<float> resident = values; ///< the store's, where it is in memory
  std::string path = {};
};

class TableSchedule : public testing::Test {
protected:
  static constexpr int64_t fewestRows = 20;

  void SetUp() override {
    for (auto [rows, columns, inFile] :
         {std::tuple(fewestRows, 3, true), std::tuple(31L, 17, true),
          std::tuple(25L, 4, false), std::tuple(40L, 1, true)}) {
      Model table = {rows, columns, inFile, {}};
      for (int64_t i = 0; i < rows * columns; ++i)
        table.values.push_back(float(random()));
      table.resident = table.values;
      table.path =
          (folder.path() / ("t" + std::to_string(tables.size()))).string();
      std::ofstream(table.path, std::ios::binary)
          .write(reinterpret_cast<const char *>(table.values.data()),
                 std::streamsize(table.values.size() * sizeof(float)));
      tables.push_back(std::move(table));
    }
  }

  void begin() {
    const stem_table_store_options options = {
        sizeof(options), int64_t(random() % 4) << 10, int64_t(random() % 24),
        int32_t(random() % 3)};
    ASSERT_EQ(stem_table_store_create(context.get(), &options, &store),
              STEM_OK);
    for (Model &table : tables) {
      stem_table_options open = {};
      open.struct_size = sizeof(open);
      open.rows = table.rows;
      open.columns = table.columns;
      open.dtype = STEM_F32;
      open.name = "t";
      open.resident = table.inFile ? nullptr : table.resident.data();
      open.writable = !table.inFile;
      open.file = table.path.c_str();
      ASSERT_EQ(stem_table_open(context.get(), store, &open), STEM_OK);
    }
  }

  void makePlan() {
    std::vector<int32_t> ids(random() % 16);
    for (int32_t &id : ids)
      id = int32_t(random() % fewestRows);
    stem_table_plan *plan = nullptr;
    ASSERT_EQ(stem_table_make_plan(context.get(), store, ids.data(),
                                   int64_t(ids.size()), &plan),
              STEM_OK);
    plans[plan] = std::move(ids);
  }

  /// Staging may be full, which leaves everything as it was.
  void prefetch() {
    if (plans.empty())
      return;
    const auto plan = std::next(plans.begin(), random() % plans.size());
    const int64_t table = random() % tables.size();
    stem_ticket ticket = -1;
    const stem_status status =
        stem_table_prefetch(context.get(), store, table, plan->first, &ticket);
    if (status == STEM_OK) {
      tickets[ticket] = {table, plan->first};
      return;
    }
    EXPECT_EQ(status, STEM_OUT_OF_MEMORY);
    EXPECT_TRUE(tables[table].inFile);
    EXPECT_EQ(ticket, 0);
    ++refused;
  }

  void await() {
    if (tickets.empty())
      return;
    const auto &[ticket, use] =
        *std::next(tickets.begin(), random() % tickets.size());
    stem_tensor rows = {}, index = {};
    ASSERT_EQ(stem_table_await(context.get(), store, ticket, &rows, &index),
              STEM_OK);
    const Model &table = tables[use.table];
    const std::vector<int32_t> &ids = plans.at(use.plan);
    ASSERT_EQ(index.sizes[0], int64_t(ids.size()));
    for (size_t t = 0; t < ids.size(); ++t) {
      const int32_t row = static_cast<const int32_t *>(index.data)[t];
      ASSERT_EQ(std::memcmp(static_cast<const float *>(rows.data) +
                                row * table.columns,
                            &table.values[ids[t] * table.columns],
                            table.columns * sizeof(float)),
                0);
    }
    ++awaited;
  }

  void write() {
    const int64_t number = random() % tables.size();
    Model &table = tables[number];
    const auto id = int32_t(random() % table.rows);
    std::vector<float> row(table.columns, float(random()));
    const stem_status status =
        stem_table_write(context.get(), store, number, &id, 1, row.data());
    if (table.inFile) {
      EXPECT_EQ(status, STEM_INVALID_ARGUMENT);
      return;
    }
    ASSERT_EQ(status, STEM_OK);
    std::copy(row.begin(), row.end(), &table.values[id * table.columns]);
  }

  void release() {
    if (tickets.empty())
      return;
    const auto ticket = std::next(tickets.begin(), random() % tickets.size());
    stem_table_release(store, ticket->first);
    tickets.erase(ticket);
  }

  /// With all tickets that are left of it.
  void releasePlan() {
    if (plans.empty())
      return;
    const auto plan = std::next(plans.begin(), random() % plans.size());
    stem_table_release_plan(store, plan->first);
    std::erase_if(tickets, [&](const auto &entry) {
      return entry.second.plan == plan->first;
    });
    plans.erase(plan);
  }

  void end() {
    ASSERT_EQ(stem_table_flush(context.get(), store), STEM_OK);
    stem_table_store_destroy(store);
    plans.clear();
    tickets.clear();
    for (const Model &table : tables)
      if (!table.inFile)
        EXPECT_EQ(table.resident, table.values);
  }

  struct Use {
    int64_t table;
    stem_table_plan *plan;
  };

  ContextPtr context = createContext(1);
  const TemporaryFolder folder;
  std::mt19937 random{3};
  std::vector<Model> tables;
  stem_table_store *store = nullptr;
  std::map<stem_table_plan *, std::vector<int32_t>> plans;
  std::map<stem_ticket, Use> tickets;
  int64_t awaited = 0, refused = 0;
};

TEST_F(TableSchedule, AnyOrderGivesTheValues) {
  for (int sequence = 0; sequence < 10000 && !HasFatalFailure(); ++sequence) {
    SCOPED_TRACE(sequence);
    begin();
    for (unsigned left = 1 + random() % 40; left > 0 && !HasFatalFailure();
         --left)
      switch (random() % 8) {
      case 0:
        makePlan();
        break;
      case 1:
      case 2:
        prefetch();
        break;
      case 3:
      case 4:
        await();
        break;
      case 5:
        write();
        break;
      case 6:
        release();
        break;
      default:
        random() % 3 ? makePlan() : releasePlan();
      }
    end();
  }
  // Both are what this is about.
  EXPECT_GT(awaited, 10000);
  EXPECT_GT(refused, 100);
}

} // namespace
