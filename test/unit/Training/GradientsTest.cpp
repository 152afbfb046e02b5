//===- GradientsTest.cpp - Norms and sums of gradients --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Training/GradientNorm.h"
#include "stem/Training/RowGradients.h"

#include <limits>

using namespace stem;
using namespace stem::test;

namespace {

constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

//===----------------------------------------------------------------------===//
// The norm.
//===----------------------------------------------------------------------===//

TEST(GradientNorm, IsTheRootOfAllSquares) {
  ContextPtr context = createContext(2);
  // Blocks that are whole, cut, and empty.
  std::vector<std::vector<float>> values;
  for (int64_t size : {65536, 1, 0, 200'003, 15, 17})
    values.push_back(randomFloats(size, unsigned(size), 1e-3f));
  std::vector<NamedGradient> gradients;
  double squares = 0;
  for (const std::vector<float> &each : values) {
    gradients.push_back({"g", each});
    for (float value : each)
      squares += double(value) * value;
  }
  GradientNorm seen = globalNorm(context.get(), gradients);
  EXPECT_NEAR(seen.norm / std::sqrt(squares), 1, 1e-12);
  EXPECT_EQ(seen.fault, "");
  for (int threads : {1, 3}) {
    ContextPtr other = createContext(threads);
    EXPECT_EQ(globalNorm(other.get(), gradients).norm, seen.norm);
  }
  EXPECT_EQ(globalNorm(context.get(), {}).norm, 0);
}

TEST(GradientNorm, TakesValuesWhoseSquaresOverflowFloats) {
  ContextPtr context = createContext(1);
  std::vector<float> values = {3e30f, 4e30f};
  std::vector<NamedGradient> gradients = {{"g", values}};
  EXPECT_NEAR(globalNorm(context.get(), gradients).norm / 5e30, 1, 1e-6);
}

// Two rows of one id make one row of the table: (3, 0) + (0, 4) and
// (1, 0) + (-1, 0).
TEST(GradientNorm, CountsEachRowOnce) {
  ContextPtr context = createContext(1);
  RowGradients rows(context.get(), "t", 2);
  std::vector<int32_t> ids = {9, 5, 9, 5};
  std::vector<float> values = {3, 0, 1, 0, 0, 4, -1, 0};
  rows.begin(ids);
  rows.add(ids, values.data());
  std::vector<NamedGradient> gradients = {{"t", rows.rows(), rows.ids()}};
  EXPECT_DOUBLE_EQ(globalNorm(context.get(), gradients).norm, 5);
}

TEST(GradientNorm, NamesTheFirstFault) {
  ContextPtr context = createContext(2);
  std::vector<float> good(70'000, 1), bad = good, rows(6, 1);
  bad[69'999] = -infinity;
  bad[65'537] = notANumber;
  rows[5] = infinity;
  std::vector<int32_t> ids = {4, 17, 30};
  NamedGradient dense = {"lm_head.weight", bad};
  NamedGradient sparse = {"t", rows, ids};
  NamedGradient fine = {"norm.weight", good};
  auto faultOf = [&](std::vector<NamedGradient> gradients) {
    GradientNorm seen = globalNorm(context.get(), gradients);
    EXPECT_FALSE(std::isfinite(seen.norm));
    return seen.fault;
  };
  EXPECT_EQ(faultOf({fine, dense, sparse}),
            "lm_head.weight has nan in element 65537");
  EXPECT_EQ(faultOf({sparse, fine, dense}), "t has inf in row 30, column 1");
  // The rows of some tokens: the third is the 30th.
  std::vector<int32_t> first = {0, 1, 2};
  EXPECT_EQ(faultOf({{"t", rows, first, ids}}),
            "t has inf in row 30, column 1");
  std::vector<NamedGradient> cut = {{"t", std::span(rows).first(5), ids}};
  expectContains(errorOf([&] { globalNorm(context.get(), cut); }),
                 "t: 5 elements do not make 3 rows");
}

TEST(GradientNorm, Clips) {
  EXPECT_EQ(clipScale(0, 1), 1);
  EXPECT_EQ(clipScale(1, 1), 1);
  EXPECT_EQ(clipScale(4, 1), 0.25);
  EXPECT_EQ(clipScale(4, 8), 1);
  for (double limit : {0.0, -1.0, double(notANumber)})
    expectContains(errorOf([&] { clipScale(1, limit); }),
                   "gradients are clipped to a norm of ");
  for (double norm : {double(infinity), double(notANumber)})
    expectContains(errorOf([&] { clipScale(norm, 1); }),
                   "nothing brings it to 1");
}

//===----------------------------------------------------------------------===//
// Sums over micro-batches.
//===----------------------------------------------------------------------===//

TEST(AddGradient, AddsElements) {
  for (int threads : {1, 2}) {
    ContextPtr context = createContext(threads);
    std::vector<float> a = randomFloats(65'536 + 9, 1),
                       b = randomFloats(65'536 + 9, 2);
    std::vector<float> sum = a;
    addGradient(context.get(), b, sum);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(sum[i], a[i] + b[i]);
    sum.pop_back();
    expectContains(errorOf([&] { addGradient(context.get(), b, sum); }),
                   "a gradient of 65545 elements is added to one of 65544");
  }
}

TEST(RowGradients, AddsInTheOrderOfCallsAndPlaces) {
  constexpr int64_t columns = 200;
  std::vector<std::vector<int32_t>> calls = {{7, 3, 7, 7, 0}, {}, {3, 7, 5, 7}};
  std::vector<int32_t> all = {5, 3, 7, 0, 3, 7};
  std::vector<std::vector<float>> rows;
  // In f32 the order shows: values of many magnitudes.
  for (const std::vector<int32_t> &ids : calls) {
    rows.push_back(
        randomFloats(int64_t(ids.size()) * columns, unsigned(rows.size())));
    for (size_t i = 0; i < rows.back().size(); ++i)
      rows.back()[i] *= std::pow(10.f, float(i % 9));
  }
  std::vector<float> wanted(4 * columns);
  const std::vector<int32_t> unique = {0, 3, 5, 7};
  for (size_t call = 0; call < calls.size(); ++call)
    for (size_t i = 0; i < calls[call].size(); ++i)
      for (int64_t c = 0; c < columns; ++c) {
        int64_t place =
            std::ranges::find(unique, calls[call][i]) - unique.begin();
        wanted[place * columns + c] += rows[call][int64_t(i) * columns + c];
      }
  for (int threads : {1, 2, 3}) {
    ContextPtr context = createContext(threads);
    RowGradients sums(context.get(), "t", columns);
    for (int step = 0; step < 2; ++step) {
      sums.begin(all);
      for (size_t call = 0; call < calls.size(); ++call)
        sums.add(calls[call], rows[call].data());
      EXPECT_TRUE(std::ranges::equal(sums.ids(), unique));
      EXPECT_TRUE(std::ranges::equal(sums.rows(), wanted));
    }
  }
}

TEST(RowGradients, Messages) {
  ContextPtr context = createContext(1);
  expectContains(errorOf([&] { RowGradients(context.get(), "t", 0); }),
                 "t: rows of 0 columns: wanted 1 to 2147483647");
  RowGradients sums(context.get(), "t", 2);
  std::vector<int32_t> ids = {1, 4}, other = {1, 3};
  std::vector<float> rows(4, 1);
  sums.begin(ids);
  expectContains(errorOf([&] { sums.add(other, rows.data()); }),
                 "t: row 3 gets a gradient, but is none of the 2 rows of the "
                 "step");
  expectContains(errorOf([&] { sums.add(ids, nullptr); }),
                 "t: 2 ids without rows");
  EXPECT_EQ(std::ranges::count(sums.rows(), 0), 4);
}

} // namespace
