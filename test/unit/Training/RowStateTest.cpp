//===- RowStateTest.cpp - Saved and restored rows -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Training/RowOptimizer.h"

#include <filesystem>
#include <tuple>

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t rows = 40, columns = 70;
constexpr int steps = 20;

std::vector<Batch> batches() { return zipfBatches(steps, 8, rows, columns, 5); }

double rate(int step) { return 1e-3 * (1 + step % 4); }

/// Mode, beta1, type of the rows.
using Setting = std::tuple<RowMode, double, DType>;

struct Table {
  explicit Table(const Setting &setting)
      : context(createContext(2)), values(std::get<DType>(setting), columns,
                                          randomFloats(rows * columns, 3)),
        optimizer(context.get(), "t", values.table(),
                  {.mode = std::get<RowMode>(setting),
                   .adamw = {.beta1 = std::get<double>(setting)},
                   .seed = 11}) {}

  void run(int begin, int end) {
    for (int step = begin; step < end; ++step)
      takeStep(optimizer, batches()[step], rate(step));
  }

  ContextPtr context;
  Rows values;
  RowOptimizer optimizer;
};

class RowStateTest : public testing::TestWithParam<Setting> {};

std::string nameOf(const testing::TestParamInfo<Setting> &info) {
  auto [mode, beta1, dtype] = info.param;
  return fmt::format("{}{}_{}", rowModeName(mode), beta1 == 0 ? "_beta1_0" : "",
                     dtypeName(dtype));
}

/// Through a file, as a checkpoint does it.
void write(const std::filesystem::path &path, const RowOptimizer &optimizer) {
  std::vector<TensorView> tensors = optimizer.state();
  std::vector<TensorDeclaration> declarations;
  for (const TensorView &tensor : tensors)
    declarations.push_back({tensor.name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path, declarations);
  for (const TensorView &tensor : tensors)
    writer.write(tensor.data);
  writer.finish();
}

TEST_P(RowStateTest, RestoredRunHasTheSameBits) {
  Table whole(GetParam());
  whole.run(0, steps);

  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) /
      fmt::format("rows-{}.safetensors", nameOf({GetParam(), 0}));
  Table first(GetParam());
  first.run(0, steps / 2);
  SavedState before(first.optimizer.state());
  write(path, first.optimizer);
  EXPECT_EQ(SavedState(first.optimizer.state()), before);

  Table second(GetParam());
  second.run(0, 3);
  second.optimizer.restore(SafetensorsFile::open(path).tensors());
  std::filesystem::remove(path);
  EXPECT_EQ(second.optimizer.steps(), steps / 2);
  EXPECT_EQ(SavedState(second.optimizer.state()), before);
  EXPECT_EQ(exported(second.optimizer, second.values),
            exported(first.optimizer, first.values));
  second.run(steps / 2, steps);
  EXPECT_EQ(SavedState(second.optimizer.state()),
            SavedState(whole.optimizer.state()));
  EXPECT_EQ(exported(second.optimizer, second.values),
            exported(whole.optimizer, whole.values));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, RowStateTest,
    testing::Combine(testing::Values(RowMode::Exact, RowMode::Lazy,
                                     RowMode::Rowwise),
                     testing::Values(0.9, 0.0),
                     testing::Values(DType::F32, DType::BF16)),
    nameOf);

TEST(RowState, BeforeTheFirstStep) {
  Setting setting(RowMode::Exact, 0.9, DType::F32);
  Table table(setting), other(setting);
  other.run(0, 2);
  other.optimizer.restore(SavedState(table.optimizer.state()).tensors);
  EXPECT_EQ(other.optimizer.steps(), 0);
  EXPECT_EQ(SavedState(other.optimizer.state()),
            SavedState(table.optimizer.state()));
}

template <typename T>
void overwrite(TensorView &tensor, size_t index, T value) {
  std::memcpy(const_cast<std::byte *>(tensor.data.data()) + index * sizeof(T),
              &value, sizeof(T));
}

TEST(RowState, Messages) {
  Table table({RowMode::Exact, 0.9, DType::F32});
  table.run(0, 3);
  SavedState before(table.optimizer.state());
  auto restore = [&](auto change) {
    SavedState state(table.optimizer.state());
    change(state);
    std::string message =
        errorOf([&] { table.optimizer.restore(state.tensors); });
    EXPECT_EQ(SavedState(table.optimizer.state()), before);
    return message;
  };
  for (const auto &[name, wanted] : {std::pair("t.w", "F32 [40, 70]"),
                                     {"t.m", "F32 [40, 70]"},
                                     {"t.v", "F32 [40, 70]"},
                                     {"t.steps", "I64 [1]"},
                                     {"t.last_step", "I32 [40]"},
                                     {"t.learning_rates", "F64 [3]"},
                                     {"t.settings", "F64 [4]"}})
    expectContains(
        restore([name = name](SavedState &state) {
          state.get(name).name = "other";
        }),
        fmt::format("the optimizer's state has no tensor {}: wanted {}", name,
                    wanted));
  expectContains(
      restore([](SavedState &state) { state.get("t.w").dtype = DType::I32; }),
      "the optimizer's state holds t.w as I32 [40, 70]: wanted F32 "
      "[40, 70]");
  expectContains(
      restore([](SavedState &state) {
        overwrite<int64_t>(state.get("t.steps"), 0, int64_t(1) << 31);
      }),
      "says in t.steps that 2147483648 steps were taken: wanted 0 to");
  expectContains(
      restore([](SavedState &state) {
        overwrite<double>(state.get("t.settings"), 3, 0.2);
      }),
      "t: the optimizer's state was made with beta1 0.9, beta2 0.95, "
      "epsilon 1e-08, decay 0.2, but asked for are 0.9, 0.95, 1e-08, "
      "0.1: steps that rows skipped are made up for with the same");
  expectContains(restore([](SavedState &state) {
                   overwrite<double>(state.get("t.learning_rates"), 1, -1);
                 }),
                 "t: the learning rate of step 2 is -1");
  for (int32_t bad : {-1, 4})
    expectContains(
        restore([bad](SavedState &state) {
          overwrite<int32_t>(state.get("t.last_step"), 5, bad);
        }),
        fmt::format("t: the optimizer's state has row 5 at step {} of 3", bad));
}

TEST(RowState, OfAnotherMode) {
  Table rowwise({RowMode::Rowwise, 0.9, DType::F32});
  Table lazy({RowMode::Lazy, 0.9, DType::F32});
  expectContains(
      errorOf([&] { lazy.optimizer.restore(rowwise.optimizer.state()); }),
      "the optimizer's state holds t.v as F32 [40]: wanted F32 [40, 70]");
}

} // namespace
