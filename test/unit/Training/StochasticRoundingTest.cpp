//===- StochasticRoundingTest.cpp - bf16 rows -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Runtime/Philox.h"
#include "stem/Training/RowOptimizer.h"

#include <bit>
#include <numeric>

using namespace stem;
using namespace stem::test;

namespace {

/// The 16 bits of a column, as RowKernels.h places them.
uint32_t randomBits(const RowOptimizerOptions &options, uint32_t step,
                    uint32_t row, uint32_t column) {
  uint32_t block = column / 64, group = column / 8 % 8, lane = column % 8;
  auto words = philox({8 * block + lane, row, step, options.stream},
                      {uint32_t(options.seed), uint32_t(options.seed >> 32)});
  return words[group / 2] >> (16 * (group % 2)) & 0xffff;
}

float roundedDown(float value, uint32_t random) {
  uint32_t bits = std::bit_cast<uint32_t>(value) + random;
  return std::bit_cast<float>(bits & 0xffff0000);
}

std::vector<int32_t> allRows(int64_t rows) {
  std::vector<int32_t> ids(rows);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// The same step on the same rows in f32, rounded here.
TEST(StochasticRounding, EveryBitFollowsFromTheCounter) {
  constexpr int64_t rows = 5, columns = 150;
  ContextPtr context = createContext(2);
  for (RowMode mode : {RowMode::Exact, RowMode::Lazy, RowMode::Rowwise}) {
    RowOptimizerOptions options = {
        .mode = mode, .seed = 0x123456789abcdef, .stream = 7};
    Rows bf16(DType::BF16, columns, randomFloats(rows * columns, 1));
    RowOptimizer optimizer(context.get(), "t", bf16.table(), options);
    for (uint32_t step = 1; step <= 3; ++step) {
      Rows f32(DType::F32, columns, bf16.values());
      RowOptimizer same(context.get(), "t", f32.table(), options);
      SavedState state(optimizer.state());
      std::vector<float> values = f32.values();
      TensorView &w = state.get("t.w");
      w.dtype = DType::F32;
      w.data = std::as_bytes(std::span(values));
      same.restore(state.tensors);

      std::vector<float> gradients = randomFloats(2 * columns, step);
      for (RowOptimizer *each : {&optimizer, &same})
        takeStep(*each, {{1, 3}, gradients}, 1e-2);
      std::vector<float> unrounded = f32.values(), seen = bf16.values();
      for (uint32_t row : {1, 3})
        for (uint32_t c = 0; c < columns; ++c)
          ASSERT_EQ(seen[row * columns + c],
                    roundedDown(unrounded[row * columns + c],
                                randomBits(options, step, row, c)))
              << "step " << step << " row " << row << " column " << c;
    }
  }
}

// A step of 0.3 units in the last place of 1, 409,600 times.
TEST(StochasticRounding, KeepsTheMean) {
  constexpr int64_t rows = 4096, columns = 100;
  constexpr double unit = 0x1p-7, move = 0.3 * unit;
  ContextPtr context = createContext(2);
  Rows table(DType::BF16, columns, std::vector<float>(rows * columns, 1));
  RowOptimizer optimizer(
      context.get(), "t", table.table(),
      {.mode = RowMode::Rowwise, .adamw = {.beta1 = 0, .decay = 0}});
  // A gradient of -1 moves weights up by lr.
  std::vector<float> gradients(rows * columns, -1);
  takeStep(optimizer, {allRows(rows), gradients}, move);
  std::vector<float> seen = table.values();
  std::vector<int64_t> upByRow(rows), upByColumn(columns);
  for (int64_t i = 0; i < rows * columns; ++i) {
    ASSERT_TRUE(seen[i] == 1 || seen[i] == 1 + unit) << seen[i];
    upByRow[i / columns] += seen[i] != 1;
    upByColumn[i % columns] += seen[i] != 1;
  }
  // Five standard deviations of a binomial count; of the rows six, for there
  // are 4096.
  auto expectCount = [](int64_t seen, int64_t draws, double deviations) {
    EXPECT_NEAR(double(seen), 0.3 * double(draws),
                deviations * std::sqrt(0.3 * 0.7 * double(draws)));
  };
  expectCount(std::accumulate(upByRow.begin(), upByRow.end(), int64_t(0)),
              rows * columns, 5);
  for (int64_t count : upByColumn)
    expectCount(count, rows, 5);
  for (int64_t count : upByRow)
    expectCount(count, columns, 6);
}

// Steps too small for rounding to nearest add up.
TEST(StochasticRounding, SmallStepsAddUp) {
  constexpr int64_t rows = 64, columns = 64;
  constexpr int steps = 400;
  constexpr double move = 0.02 * 0x1p-8;
  ContextPtr context = createContext(1);
  Rows table(DType::BF16, columns, std::vector<float>(rows * columns, 1));
  RowOptimizer optimizer(
      context.get(), "t", table.table(),
      {.mode = RowMode::Rowwise, .adamw = {.beta1 = 0, .decay = 0}});
  std::vector<float> gradients(rows * columns, 1);
  for (int step = 0; step < steps; ++step)
    takeStep(optimizer, {allRows(rows), gradients}, move);
  double mean = 0;
  for (float value : table.values())
    mean += value / double(rows * columns);
  // Below 1 a unit is 2^-8: 0.02 of it a step, 8 units in all; the deviation
  // of a sum is sqrt(400 · 0.02 · 0.98) units, of the mean 1/64 of that.
  EXPECT_NEAR(mean, 1 - steps * move, 5 * 2.8 / 64 * 0x1p-8);
}

TEST(StochasticRounding, OtherSeedsStreamsAndStepsGiveOtherBits) {
  constexpr int64_t rows = 20, columns = 64;
  auto run = [&](uint64_t seed, uint32_t stream, int skip) {
    ContextPtr context = createContext(2);
    Rows table(DType::BF16, columns, std::vector<float>(rows * columns, 1));
    RowOptimizer optimizer(context.get(), "t", table.table(),
                           {.mode = RowMode::Rowwise,
                            .adamw = {.beta1 = 0, .beta2 = 0, .decay = 0},
                            .seed = seed,
                            .stream = stream});
    for (int step = 0; step < skip; ++step)
      optimizer.update({}, nullptr, 0);
    std::vector<float> gradients(rows * columns, 1);
    takeStep(optimizer, {allRows(rows), gradients}, 0.5 * 0x1p-8);
    return table.values();
  };
  std::vector<float> base = run(1, 0, 0);
  EXPECT_EQ(run(1, 0, 0), base);
  for (const std::vector<float> &other :
       {run(2, 0, 0), run(1 + (uint64_t(1) << 32), 0, 0), run(1, 1, 0),
        run(1, 0, 1)}) {
    int64_t equal = 0;
    for (size_t i = 0; i < base.size(); ++i)
      equal += base[i] == other[i];
    // Half by chance: 640 of 1280, with a deviation of 18.
    EXPECT_NEAR(double(equal), 640, 100);
  }
}

TEST(StochasticRounding, KeepsWhatBF16Holds) {
  constexpr int64_t columns = 70;
  for (float value : {0.f, 1.f, -1.5f, 0x1.fep127f, 299008.f, 0x1.fp-28f}) {
    ContextPtr context = createContext(1);
    Rows table(DType::BF16, columns, std::vector<float>(columns, value));
    RowOptimizer optimizer(context.get(), "t", table.table(),
                           {.mode = RowMode::Lazy, .adamw = {.decay = 0}});
    std::vector<float> gradients(columns);
    for (int step = 0; step < 20; ++step)
      takeStep(optimizer, {{0}, gradients}, 1e-3);
    EXPECT_EQ(table.values(), std::vector<float>(columns, value));
  }
}

// One that most random bits carry into the sign and on to a zero.
TEST(StochasticRounding, NaNStaysNaN) {
  constexpr int64_t columns = 70;
  ContextPtr context = createContext(1);
  Rows table(DType::BF16, columns, std::vector<float>(columns, 1));
  RowOptimizer optimizer(context.get(), "t", table.table(),
                         {.mode = RowMode::Lazy});
  std::vector<float> gradients(columns, std::bit_cast<float>(0x7fffffffu));
  takeStep(optimizer, {{0}, gradients}, 1e-3);
  for (float value : table.values())
    EXPECT_TRUE(std::isnan(value)) << value;
}

} // namespace
