//===- RowOptimizerTest.cpp - AdamW on the rows of a table ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/RowOptimizer.h"
#include "../Support/TestFiles.h"
#include "TestSupport.h"

#include <filesystem>

using namespace stem;
using namespace stem::test;

namespace {

struct ModeCase {
  const char *name;
  RowMode mode;
  double beta1;
};

constexpr ModeCase modes[] = {
    {"exact", RowMode::Exact, 0.9},
    {"lazy", RowMode::Lazy, 0.9},
    {"rowwise", RowMode::Rowwise, 0.9},
    {"rowwise_beta1_0", RowMode::Rowwise, 0},
    {"exact_beta1_0", RowMode::Exact, 0},
    {"lazy_beta1_0", RowMode::Lazy, 0},
};

std::string nameOf(const testing::TestParamInfo<ModeCase> &info) {
  return info.param.name;
}

RowOptimizerOptions optionsOf(const ModeCase &mode) {
  return {.mode = mode.mode, .adamw = {.beta1 = mode.beta1}};
}

Doubles floatsOf(const TensorView &tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return {values.begin(), values.end()};
}

//===----------------------------------------------------------------------===//
// Values of another implementation (test/data/golden/README.md).
//===----------------------------------------------------------------------===//

class GoldenRowsTest : public testing::TestWithParam<ModeCase> {
protected:
  static constexpr int64_t rows = 12, columns = 5, steps = 6;

  template <typename T> std::vector<T> read(const std::string &name) {
    const TensorView &tensor = file.get(name);
    std::vector<T> values(tensor.data.size() / sizeof(T));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return values;
  }

  Doubles readOfMode(const std::string &name) {
    return read<double>(std::string(GetParam().name) + "." + name);
  }

  Batch batchOf(int64_t step) {
    Batch batch;
    for (int32_t row = 0; row < rows; ++row) {
      if (touched[step * rows + row] == 0)
        continue;
      batch.ids.push_back(row);
      auto from = gradients.begin() + (step * rows + row) * columns;
      batch.gradients.insert(batch.gradients.end(), from, from + columns);
    }
    return batch;
  }

  SafetensorsFile file =
      SafetensorsFile::open(std::filesystem::path(STEM_TEST_DATA) /
                            "golden/row_optimizers" / "golden.safetensors");
  Doubles gradients = read<double>("grads");
  std::vector<int64_t> touched = read<int64_t>("touched");
};

TEST_P(GoldenRowsTest, EveryStepAndMoment) {
  ContextPtr context = createContext(2);
  Doubles start = read<double>("w0"), rates = read<double>("lr");
  Rows table(DType::F32, columns, {start.begin(), start.end()});
  RowOptimizer optimizer(context.get(), "t", table.table(),
                         optionsOf(GetParam()));
  std::vector<int32_t> all(rows);
  for (int32_t row = 0; row < rows; ++row)
    all[row] = row;
  auto expectNear = [](const auto &seen, const Doubles &wanted) {
    EXPECT_LT(largestDifference(seen, wanted), 1e-6);
    EXPECT_LT(largestDifference(seen, wanted), 1e-6 * largest(wanted));
  };
  for (int64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step + 1);
    takeStep(optimizer, batchOf(step), rates[step]);
    expectNear(exported(optimizer, table),
               readOfMode("w.step" + std::to_string(step + 1)));
  }
  optimizer.catchUp(all);
  expectNear(table.values(), readOfMode("w.step6"));
  SavedState state(optimizer.state());
  expectNear(floatsOf(state.get("t.v")), readOfMode("v"));
  if (GetParam().beta1 != 0) {
    expectNear(floatsOf(state.get("t.m")), readOfMode("m"));
    return;
  }
  // Without beta1 the first moment is the last gradient and is not kept.
  EXPECT_FALSE(state.has("t.m"));
  Doubles last(rows * columns);
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t i = 0; i < rows * columns; ++i)
      if (touched[step * rows + i / columns])
        last[i] = gradients[step * rows * columns + i];
  expectNear(last, readOfMode("m"));
}

INSTANTIATE_TEST_SUITE_P(Modes, GoldenRowsTest,
                         testing::ValuesIn(modes, modes + 4), nameOf);

//===----------------------------------------------------------------------===//
// The formulas in f64, on random data.
//===----------------------------------------------------------------------===//

class RowModeTest : public testing::TestWithParam<ModeCase> {};

// Widths that fill no vector, no block of columns, and several.
TEST_P(RowModeTest, FollowsTheFormula) {
  constexpr int64_t rows = 23;
  for (int64_t columns : {1, 3, 31, 64, 65, 200}) {
    SCOPED_TRACE(testing::Message() << columns << " columns");
    ContextPtr context = createContext(2);
    Rows table(DType::F32, columns, randomFloats(rows * columns, 7, 0.02f));
    PlainRows plain(GetParam().mode, optionsOf(GetParam()).adamw,
                    table.doubles(), columns);
    RowOptimizer optimizer(context.get(), "t", table.table(),
                           optionsOf(GetParam()));
    std::vector<Batch> batches = zipfBatches(40, 6, rows, columns, 8);
    for (size_t step = 0; step < batches.size(); ++step) {
      double lr = 1e-3 * (1 + std::sin(double(step)));
      takeStep(optimizer, batches[step], lr, 0.25);
      plain.update(batches[step].ids, batches[step].gradients, lr, 0.25);
    }
    EXPECT_LT(largestDifference(exported(optimizer, table), plain.w),
              1e-6 * largest(plain.w));
  }
}

TEST_P(RowModeTest, SameBitsForThreads) {
  constexpr int64_t rows = 300, columns = 130;
  for (DType dtype : {DType::F32, DType::BF16}) {
    std::vector<SavedState> states;
    std::vector<std::vector<float>> exports;
    for (int threads : {1, 2, 3}) {
      ContextPtr context = createContext(threads);
      Rows table(dtype, columns, randomFloats(rows * columns, 7, 0.02f));
      RowOptimizer optimizer(context.get(), "t", table.table(),
                             optionsOf(GetParam()));
      for (const Batch &batch : zipfBatches(20, 400, rows, columns, 8))
        takeStep(optimizer, batch, 1e-3);
      states.emplace_back(optimizer.state());
      exports.push_back(exported(optimizer, table));
    }
    EXPECT_EQ(states[0], states[1]);
    EXPECT_EQ(states[0], states[2]);
    EXPECT_EQ(exports[0], exports[1]);
    EXPECT_EQ(exports[0], exports[2]);
  }
}

TEST_P(RowModeTest, StateBytes) {
  constexpr int64_t columns = 100;
  std::vector<float> values(3 * columns);
  Rows table(DType::F32, columns, values);
  ContextPtr context = createContext(1);
  RowOptimizer optimizer(context.get(), "t", table.table(),
                         optionsOf(GetParam()));
  int64_t bytes = 0;
  for (const TensorView &tensor : optimizer.state())
    if (tensor.name == "t.m" || tensor.name == "t.v" ||
        tensor.name == "t.last_step")
      bytes += int64_t(tensor.data.size());
  EXPECT_EQ(RowOptimizer::stateBytesPerRow(optionsOf(GetParam()), columns) * 3,
            bytes);
}

/// Whatever lies in files, the bits are those of memory.
TEST_P(RowModeTest, MomentsInFiles) {
  const test::TemporaryFolder folder;
  ContextPtr context = createContext(2);
  constexpr int64_t columns = 33;
  const std::vector<float> start(40 * columns, 0.25f);
  Rows inMemory(DType::BF16, columns, start),
      inFiles(DType::BF16, columns, start);
  const RowOptimizerOptions options = optionsOf(GetParam());
  RowOptimizer first(context.get(), "t", inMemory.table(), options);
  RowOptimizer second(context.get(), "t", inFiles.table(), options,
                      folder.path());
  int64_t bytes = 0;
  for (const FileRows &part : second.rowsInFiles()) {
    EXPECT_EQ(part.rows, 40);
    EXPECT_GE(part.file, 0);
    bytes += part.rowBytes;
  }
  EXPECT_EQ(bytes, RowOptimizer::momentBytesPerRow(options, columns));
  EXPECT_TRUE(first.rowsInFiles().empty());
  std::mt19937 random(7);
  for (int step = 0; step < 12; ++step) {
    Batch batch;
    for (int32_t id = 0; id < 40; ++id)
      if (random() % 3 == 0)
        batch.ids.push_back(id);
    batch.gradients =
        randomFloats(int64_t(batch.ids.size()) * columns, unsigned(step));
    for (RowOptimizer *optimizer : {&first, &second})
      takeStep(*optimizer, batch, 1e-2);
  }
  EXPECT_EQ(inMemory.values(), inFiles.values());
  SavedState saved(first.state()), other(second.state());
  for (const TensorView &tensor : first.state())
    EXPECT_TRUE(std::ranges::equal(saved.get(tensor.name).data,
                                   other.get(tensor.name).data))
        << tensor.name;
}

INSTANTIATE_TEST_SUITE_P(Modes, RowModeTest, testing::ValuesIn(modes), nameOf);

TEST(RowOptimizer, StateBytesOfTheModes) {
  auto bytes = [](RowMode mode, double beta1) {
    return RowOptimizer::stateBytesPerRow(
        {.mode = mode, .adamw = {.beta1 = beta1}}, 1536);
  };
  EXPECT_EQ(bytes(RowMode::Exact, 0.9), 8 * 1536 + 4);
  EXPECT_EQ(bytes(RowMode::Lazy, 0.9), 8 * 1536);
  EXPECT_EQ(bytes(RowMode::Rowwise, 0.9), 4 * 1536 + 4);
  EXPECT_EQ(bytes(RowMode::Rowwise, 0), 4);
}

TEST(RowOptimizer, RowsOutsideTheBatchStandStill) {
  constexpr int64_t columns = 7;
  ContextPtr context = createContext(1);
  Rows table(DType::F32, columns, randomFloats(4 * columns, 7));
  std::vector<float> before = table.values();
  std::vector<float> gradients(2 * columns, 1);
  for (RowMode mode : {RowMode::Exact, RowMode::Lazy, RowMode::Rowwise}) {
    RowOptimizer optimizer(context.get(), "t", table.table(), {.mode = mode});
    takeStep(optimizer, {{1, 3}, gradients}, 1e-2);
    std::vector<float> after = table.values();
    for (int64_t row : {0, 2})
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i)
        EXPECT_EQ(after[i], before[i]);
    EXPECT_NE(after[columns], before[columns]);
  }
}

TEST(RowOptimizer, Names) {
  for (RowMode mode : {RowMode::Exact, RowMode::Lazy, RowMode::Rowwise})
    EXPECT_EQ(parseRowMode(rowModeName(mode)), mode);
  EXPECT_EQ(parseRowMode("exact"), RowMode::Exact);
  expectContains(errorOf([] { parseRowMode("dense"); }),
                 "'dense' is not a mode of the row optimizer: wanted exact, "
                 "lazy or rowwise");
}

TEST(RowOptimizer, Messages) {
  ContextPtr context = createContext(1);
  Rows rows(DType::F32, 2, std::vector<float>(6));
  auto make = [&](RowTable table, const AdamWOptions &adamw) {
    return errorOf([&] {
      RowOptimizer optimizer(context.get(), "t", table,
                             {.mode = RowMode::Exact, .adamw = adamw});
    });
  };
  RowTable good = rows.table(), table = good;
  table.dtype = DType::F16;
  expectContains(make(table, {}), "t: rows are stored as F16: wanted F32 or "
                                  "BF16");
  for (int64_t count : {int64_t(0), int64_t(1) << 31}) {
    table = good;
    table.rows = count;
    expectContains(make(table, {}),
                   fmt::format("t: a table of {} rows x 2 columns: wanted 1 to "
                               "2147483647 of each",
                               count));
    table = good;
    table.columns = count;
    expectContains(make(table, {}),
                   fmt::format("t: a table of 3 rows x {} columns", count));
  }
  table = good;
  table.rows = table.columns = INT32_MAX;
  expectContains(make(table, {}), "have no size");
  table = good;
  table.data = nullptr;
  expectContains(make(table, {}), "t: a table without rows in memory");
  expectContains(make(good, {.beta2 = 1}), "t: beta2 is 1: wanted");
  expectContains(make(good, {.beta1 = 0.9, .beta2 = 0.81}),
                 "the row mode exact with beta1 0.9 and beta2 0.81: wanted "
                 "beta1^2 below beta2");
}

TEST(RowOptimizer, MessagesOfSteps) {
  ContextPtr context = createContext(1);
  Rows rows(DType::F32, 2, std::vector<float>(6));
  RowOptimizer optimizer(context.get(), "t", rows.table(),
                         {.mode = RowMode::Exact});
  std::vector<float> gradients(6, 1);
  optimizer.update({}, nullptr, 1e-3);
  SavedState before(optimizer.state());
  auto update = [&](const std::vector<int32_t> &ids, double lr = 1e-3) {
    return errorOf([&] { optimizer.update(ids, gradients.data(), lr); });
  };
  auto catchUp = [&](const std::vector<int32_t> &ids) {
    return errorOf([&] { optimizer.catchUp(ids); });
  };
  for (int32_t bad : {-1, 3}) {
    std::string message =
        fmt::format("t: row {} of a table with rows 0 to 2", bad);
    expectContains(update({bad}), message);
    expectContains(catchUp({bad}), message);
  }
  expectContains(update({2, 1}), "t: row 1 follows row 2: wanted each row "
                                 "once, rising");
  expectContains(catchUp({1, 1}), "t: row 1 follows row 1: wanted each row");
  expectContains(update({1}), "t: row 1 gets a gradient in step 2, but is at "
                              "step 0: call catchUp before rows are read");
  expectContains(update({}, 11), "t: step 2 would take 1.1 times the weights");
  std::vector<int32_t> one = {1};
  expectContains(errorOf([&] { optimizer.update(one, nullptr, 1e-3); }),
                 "t: 1 rows without a gradient");
  std::vector<float> out(6);
  for (auto [first, count] : {std::pair(-1, 1), {0, 4}, {3, 1}, {0, -1}})
    expectContains(
        errorOf([&, first = first, count = count] {
          optimizer.exportRows(first, count, out.data());
        }),
        fmt::format("t: {} rows from row {} of a table of 3", count, first));
  EXPECT_EQ(SavedState(optimizer.state()), before);
}

} // namespace
