//===- TableStoreTest.cpp - The table store against a plain model --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"

#include <cstring>
#include <map>
#include <memory>

using namespace stem;
using namespace stem::test;

namespace {

class TableStore : public testing::Test {
protected:
  void SetUp() override {
    stem_table_store *made = nullptr;
    ASSERT_EQ(stem_table_store_create(context.get(), nullptr, &made), STEM_OK);
    store.reset(made);
  }

  stem_status open(const stem_table_options &options) {
    return stem_table_open(context.get(), store.get(), &options);
  }

  /// Opens a table whose row i holds i, i + 0.5, ...
  void openRows(std::vector<float> &data, int64_t rows, int64_t columns,
                const char *name, bool writable = true) {
    for (int64_t i = 0; i < rows * columns; ++i)
      data.push_back(float(i / columns) + 0.5f * float(i % columns));
    ASSERT_EQ(open({sizeof(stem_table_options), rows, columns, STEM_F32,
                    writable, data.data(), name, nullptr, 0, nullptr}),
              STEM_OK);
  }

  stem_status plan(const std::vector<int32_t> &ids, stem_table_plan **out) {
    return stem_table_make_plan(context.get(), store.get(), ids.data(),
                                int64_t(ids.size()), out);
  }

  void expect(stem_status seen, stem_status wanted, const char *part) {
    EXPECT_EQ(seen, wanted);
    expectContains(stem_context_message(context.get()), part);
  }

  ContextPtr context = createContext(1);
  StorePtr store;
};

TEST_F(TableStore, PlansAreInOrderOfFirstUse) {
  std::vector<float> data;
  openRows(data, 10, 2, "t");
  stem_table_plan *made = nullptr;
  ASSERT_EQ(plan({7, 3, 7, 0, 3, 9}, &made), STEM_OK);
  const int32_t *ids, *inverse;
  ASSERT_EQ(stem_table_plan_unique(made, &ids, &inverse), 4);
  EXPECT_EQ(std::vector(ids, ids + 4), (std::vector<int32_t>{7, 3, 0, 9}));
  EXPECT_EQ(std::vector(inverse, inverse + 6),
            (std::vector<int32_t>{0, 1, 0, 2, 1, 3}));
  stem_table_release_plan(store.get(), made);
  ASSERT_EQ(plan({}, &made), STEM_OK);
  EXPECT_EQ(stem_table_plan_unique(made, nullptr, nullptr), 0);
  EXPECT_EQ(stem_table_plan_unique(nullptr, &ids, &inverse), 0);
  EXPECT_EQ(ids, nullptr);
}

TEST_F(TableStore, AwaitGivesTheTableAndTheIds) {
  std::vector<float> data;
  openRows(data, 10, 3, "t");
  stem_table_plan *made = nullptr;
  ASSERT_EQ(plan({4, 4, 1}, &made), STEM_OK);
  stem_ticket ticket = 0;
  ASSERT_EQ(stem_table_prefetch(context.get(), store.get(), 0, made, &ticket),
            STEM_OK);
  stem_tensor rows, index;
  ASSERT_EQ(stem_table_await(context.get(), store.get(), ticket, &rows, &index),
            STEM_OK);
  EXPECT_EQ(rows.data, data.data());
  EXPECT_EQ(rows.dtype, STEM_F32);
  EXPECT_EQ(rows.rank, 2);
  EXPECT_EQ(rows.sizes[0], 10);
  EXPECT_EQ(rows.sizes[1], 3);
  EXPECT_EQ(rows.strides[0], 3);
  EXPECT_EQ(rows.strides[1], 1);
  EXPECT_EQ(index.dtype, STEM_I32);
  EXPECT_EQ(index.rank, 1);
  EXPECT_EQ(index.sizes[0], 3);
  EXPECT_EQ(index.strides[0], 1);
  auto ids = static_cast<const int32_t *>(index.data);
  EXPECT_EQ(std::vector(ids, ids + 3), (std::vector<int32_t>{4, 4, 1}));
}

// Random opens, plans, lookups and writes beside maps of rows.
TEST_F(TableStore, MatchesAPlainModel) {
  constexpr int64_t columns = 3;
  std::mt19937 random(1);
  std::vector<std::unique_ptr<std::vector<float>>> memory;
  std::vector<std::map<int32_t, std::vector<float>>> model;
  std::vector<int64_t> sizes;
  uint64_t lookups = 0, unique = 0;
  std::vector<std::pair<stem_ticket, std::pair<size_t, std::vector<int32_t>>>>
      outstanding;
  std::vector<stem_table_plan *> plans;
  for (int step = 0; step < 3000; ++step) {
    if (model.empty() || (model.size() < 5 && random() % 100 == 0)) {
      memory.push_back(std::make_unique<std::vector<float>>());
      sizes.push_back(1 + random() % 50);
      openRows(*memory.back(), sizes.back(), columns, "t");
      model.emplace_back();
      for (int64_t i = 0; i < sizes.back(); ++i)
        model.back()[int32_t(i)].assign(memory.back()->begin() + i * columns,
                                        memory.back()->begin() +
                                            (i + 1) * columns);
      continue;
    }
    size_t table = random() % model.size();
    std::vector<int32_t> ids(random() % 30);
    for (int32_t &id : ids)
      id = int32_t(random() % sizes[table]);
    if (random() % 3 == 0) {
      std::vector<float> rows;
      for (int32_t id : ids) {
        std::vector<float> row = {float(random() % 1000), float(step),
                                  float(id)};
        rows.insert(rows.end(), row.begin(), row.end());
        model[table][id] = row;
      }
      ASSERT_EQ(stem_table_write(context.get(), store.get(), int64_t(table),
                                 ids.data(), int64_t(ids.size()), rows.data()),
                STEM_OK);
    } else {
      stem_table_plan *made = nullptr;
      ASSERT_EQ(plan(ids, &made), STEM_OK);
      plans.push_back(made);
      const int32_t *uniqueIds, *inverse;
      int64_t count = stem_table_plan_unique(made, &uniqueIds, &inverse);
      for (size_t i = 0; i < ids.size(); ++i)
        ASSERT_EQ(uniqueIds[inverse[i]], ids[i]);
      ASSERT_EQ(count, int64_t(std::map<int32_t, int>([&] {
                                 std::map<int32_t, int> all;
                                 for (int32_t id : ids)
                                   all[id];
                                 return all;
                               }())
                                   .size()));
      lookups += ids.size();
      unique += count;
      stem_ticket ticket = 0;
      ASSERT_EQ(stem_table_prefetch(context.get(), store.get(), int64_t(table),
                                    made, &ticket),
                STEM_OK);
      outstanding.push_back({ticket, {table, ids}});
    }
    // Tickets are awaited later, in another order than they were given in.
    while (outstanding.size() > 4) {
      size_t which = random() % outstanding.size();
      auto [ticket, what] = outstanding[which];
      outstanding.erase(outstanding.begin() + which);
      stem_tensor rows, index;
      ASSERT_EQ(
          stem_table_await(context.get(), store.get(), ticket, &rows, &index),
          STEM_OK);
      ASSERT_EQ(index.sizes[0], int64_t(what.second.size()));
      for (size_t i = 0; i < what.second.size(); ++i) {
        int32_t at = static_cast<const int32_t *>(index.data)[i];
        const float *row =
            static_cast<const float *>(rows.data) + at * rows.strides[0];
        ASSERT_EQ(std::vector(row, row + columns),
                  model[what.first][what.second[i]]);
      }
      stem_table_release(store.get(), ticket);
      ASSERT_EQ(
          stem_table_await(context.get(), store.get(), ticket, &rows, &index),
          STEM_INVALID_ARGUMENT);
    }
  }
  stem_table_statistics statistics = {};
  statistics.struct_size = sizeof(statistics);
  ASSERT_EQ(stem_table_get_statistics(store.get(), &statistics), STEM_OK);
  EXPECT_EQ(statistics.lookups, lookups);
  EXPECT_EQ(statistics.unique_rows, unique);
  EXPECT_EQ(statistics.bytes_moved, 0u);
  EXPECT_EQ(statistics.stalls, 0u);
  uint64_t bytes = 0;
  for (int64_t rows : sizes)
    bytes += rows * columns * sizeof(float);
  EXPECT_EQ(statistics.bytes_resident, bytes);
  EXPECT_EQ(stem_table_flush(context.get(), store.get()), STEM_OK);
  for (stem_table_plan *made : plans)
    stem_table_release_plan(store.get(), made);
}

TEST_F(TableStore, NamesTheIdThatNoTableHas) {
  std::vector<float> small, large;
  openRows(small, 5, 1, "small");
  openRows(large, 10, 1, "large");
  stem_table_plan *made = nullptr;
  expect(plan({1, 10}, &made), STEM_OUT_OF_RANGE,
         "id 10 at position 1 is out of range: table 'large' has 10 rows");
  EXPECT_EQ(made, nullptr);
  expect(plan({1, 2, -1}, &made), STEM_OUT_OF_RANGE, "id -1 at position 2");
  ASSERT_EQ(plan({1, 6, 7}, &made), STEM_OK);
  stem_ticket ticket = 0;
  EXPECT_EQ(stem_table_prefetch(context.get(), store.get(), 1, made, &ticket),
            STEM_OK);
  expect(stem_table_prefetch(context.get(), store.get(), 0, made, &ticket),
         STEM_OUT_OF_RANGE,
         "id 7 at position 2 is out of range: table 'small' has 5 rows");
  EXPECT_EQ(ticket, 0);
  expect(stem_table_prefetch(context.get(), store.get(), 2, made, &ticket),
         STEM_OUT_OF_RANGE, "table 2 is out of range: 2 tables are open");
}

TEST_F(TableStore, TicketsAndPlansEnd) {
  std::vector<float> data;
  openRows(data, 5, 1, "t");
  stem_table_plan *made = nullptr;
  ASSERT_EQ(plan({1}, &made), STEM_OK);
  stem_ticket ticket = 0;
  stem_tensor rows, index;
  ASSERT_EQ(stem_table_prefetch(context.get(), store.get(), 0, made, &ticket),
            STEM_OK);
  expect(
      stem_table_await(context.get(), store.get(), ticket + 1, &rows, &index),
      STEM_INVALID_ARGUMENT, "is not outstanding");
  stem_table_release_plan(store.get(), made);
  expect(stem_table_await(context.get(), store.get(), ticket, &rows, &index),
         STEM_INVALID_ARGUMENT, "ticket 1 is not outstanding");
  expect(stem_table_prefetch(context.get(), store.get(), 0, made, &ticket),
         STEM_INVALID_ARGUMENT,
         "the plan is not one of this store's, or was released");
  // Once more, and strangers: nothing happens.
  stem_table_release_plan(store.get(), made);
  stem_table_release_plan(store.get(), nullptr);
  stem_table_release(store.get(), 1);
  stem_table_release(store.get(), -77);
  stem_table_release(nullptr, 1);
  stem_table_release_plan(nullptr, nullptr);
}

TEST_F(TableStore, WritesAllRowsOrNone) {
  std::vector<float> data, fixed;
  openRows(data, 5, 2, "open");
  openRows(fixed, 5, 2, "fixed", /*writable=*/false);
  std::vector<float> before = data;
  int32_t ids[] = {1, 5, 2};
  float rows[] = {9, 9, 8, 8, 7, 7};
  auto write = [&](int64_t table, int64_t count, const void *from) {
    return stem_table_write(context.get(), store.get(), table, ids, count,
                            from);
  };
  expect(write(0, 3, rows), STEM_OUT_OF_RANGE,
         "id 5 at position 1 is out of range: table 'open' has 5 rows");
  EXPECT_EQ(data, before);
  expect(write(1, 1, rows), STEM_INVALID_ARGUMENT,
         "table 'fixed' cannot be written: it was opened without `writable`");
  expect(write(7, 1, rows), STEM_OUT_OF_RANGE, "stem_table_write: table 7");
  expect(write(0, 1, nullptr), STEM_INVALID_ARGUMENT,
         "stem_table_write: 1 rows");
  EXPECT_EQ(write(0, -1, rows), STEM_INVALID_ARGUMENT);
  ids[1] = 1;
  EXPECT_EQ(write(0, 2, rows), STEM_OK);
  EXPECT_EQ(data[2], 8) << "of equal ids the last one counts";
}

TEST_F(TableStore, RefusesUnusableTables) {
  float data[4] = {};
  stem_table_plan *made = nullptr;
  expect(plan({}, &made), STEM_INVALID_ARGUMENT, "no table is open");
  stem_table_options good = {sizeof(good), 2,   2,       STEM_F32, 0,
                             data,         "t", nullptr, 0,        nullptr};
  auto with = [&](auto member, auto value) {
    stem_table_options options = good;
    options.*member = value;
    return options;
  };
  expect(open(with(&stem_table_options::struct_size, 8)), STEM_INCOMPATIBLE,
         "stem_table_options has struct_size 8");
  expect(open(with(&stem_table_options::rows, 0)), STEM_INVALID_ARGUMENT,
         "table 't' is 0 x 2: it needs 1 to 2147483647 rows");
  expect(open(with(&stem_table_options::rows, 1ll << 40)),
         STEM_INVALID_ARGUMENT, "table 't' is 1099511627776 x 2");
  expect(open(with(&stem_table_options::columns, INT64_MAX)),
         STEM_INVALID_ARGUMENT, "has no size");
  expect(open(with(&stem_table_options::dtype, STEM_I8)), STEM_INVALID_ARGUMENT,
         "table 't' has rows of type 3");
  expect(open(with(&stem_table_options::resident, nullptr)),
         STEM_INVALID_ARGUMENT,
         "table 't' has neither resident data nor a file");
  expect(open(with(&stem_table_options::name, nullptr)), STEM_OK, "");
  EXPECT_EQ(stem_table_open(context.get(), store.get(), nullptr),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_open(context.get(), nullptr, &good),
            STEM_INVALID_ARGUMENT);
}

TEST_F(TableStore, NullIsRefused) {
  std::vector<float> data;
  openRows(data, 5, 1, "t");
  stem_context *c = context.get();
  stem_table_plan *made = nullptr;
  stem_ticket ticket;
  stem_tensor tensor;
  int32_t id = 0;
  EXPECT_EQ(stem_table_store_create(c, nullptr, nullptr),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_make_plan(c, nullptr, &id, 1, &made),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_make_plan(c, store.get(), nullptr, 1, &made),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_make_plan(c, store.get(), &id, -1, &made),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_make_plan(c, store.get(), &id, INT64_MAX, &made),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_make_plan(c, store.get(), &id, 1, nullptr),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_prefetch(c, store.get(), 0, nullptr, &ticket),
            STEM_INVALID_ARGUMENT);
  ASSERT_EQ(plan({0}, &made), STEM_OK);
  EXPECT_EQ(stem_table_prefetch(c, store.get(), 0, made, nullptr),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_prefetch(c, nullptr, 0, made, &ticket),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_await(c, store.get(), 1, nullptr, &tensor),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_await(c, nullptr, 1, &tensor, &tensor),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_write(c, nullptr, 0, &id, 1, data.data()),
            STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_flush(c, nullptr), STEM_INVALID_ARGUMENT);
  EXPECT_EQ(stem_table_get_statistics(store.get(), nullptr),
            STEM_INVALID_ARGUMENT);
  stem_table_statistics statistics = {};
  EXPECT_EQ(stem_table_get_statistics(store.get(), &statistics),
            STEM_INCOMPATIBLE);
  stem_table_store_destroy(nullptr);
}

} // namespace
