//===- SequenceOrderTest.cpp - Permutations and positions -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/SequenceOrder.h"

#include "../Support/TestFiles.h"

#include <algorithm>

#include <map>
#include <set>

using namespace stem;
using namespace stem::test;

namespace {

using Order = std::vector<uint64_t>;

Order orderOf(uint64_t size, uint64_t seed, uint64_t stream) {
  const SeededPermutation permutation(size, seed, stream);
  Order order;
  for (uint64_t i = 0; i < size; ++i)
    order.push_back(permutation(i));
  return order;
}

bool isPermutation(Order order) {
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i] != i)
      return false;
  return true;
}

TEST(SeededPermutation, takesEachOnce) {
  for (uint64_t size = 1; size <= 300; ++size)
    for (uint64_t seed = 0; seed < 5; ++seed)
      ASSERT_TRUE(isPermutation(orderOf(size, seed, size + seed))) << size;
  for (const uint64_t size : {1023, 1024, 1025, 4096, 4097, 65535, 65537})
    EXPECT_TRUE(isPermutation(orderOf(size, 3, 1))) << size;
}

// What follows from the bits of sizes that no test can run through.
TEST(SeededPermutation, largeSizes) {
  for (const uint64_t size : {(uint64_t{1} << 32) + 1, (uint64_t{1} << 62) + 1,
                              uint64_t{1} << 63, ~uint64_t{0}}) {
    const SeededPermutation permutation(size, 9, 2);
    std::set<uint64_t> seen;
    uint64_t most = 0;
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t index = i < 500 ? i : size - 1 - (i - 500);
      const uint64_t value = permutation(index);
      EXPECT_LT(value, size);
      EXPECT_TRUE(seen.insert(value).second);
      most = std::max(most, value);
    }
    // 1000 of them reach into the last tenth.
    EXPECT_GT(most, size / 10 * 9);
  }
}

// Each order of a small set comes up about equally often: chi-square below what
// it exceeds once in a million (2, 6 and 24 orders).
TEST(SeededPermutation, ordersAreEquallyLikely) {
  const std::map<uint64_t, std::pair<size_t, double>> sets = {
      {2, {2, 24}}, {3, {6, 36}}, {4, {24, 74}}};
  for (const auto &[size, expected] : sets) {
    std::map<Order, int> counts;
    constexpr int draws = 24000;
    for (int draw = 0; draw < draws; ++draw)
      ++counts[orderOf(size, static_cast<uint64_t>(draw / 100),
                       static_cast<uint64_t>(draw % 100))];
    EXPECT_EQ(counts.size(), expected.first);
    const double mean = double(draws) / double(expected.first);
    double chiSquare = 0;
    for (const auto &[order, count] : counts)
      chiSquare += (count - mean) * (count - mean) / mean;
    EXPECT_LT(chiSquare, expected.second) << size;
  }
}

// Where an element goes, and what comes after it, is spread evenly.
TEST(SeededPermutation, placesAreEvenlySpread) {
  constexpr uint64_t size = 50, draws = 20000;
  std::vector<int> places(size), steps(size);
  for (uint64_t draw = 0; draw < draws; ++draw) {
    const SeededPermutation permutation(size, 11, draw);
    const uint64_t first = permutation(0), second = permutation(1);
    ++places[first];
    ++steps[(second + size - first) % size];
  }
  double ofPlaces = 0, ofSteps = 0;
  for (uint64_t i = 0; i < size; ++i) {
    const double mean = double(draws) / size;
    ofPlaces += (places[i] - mean) * (places[i] - mean) / mean;
    const double stepMean = double(draws) / (size - 1);
    if (i)
      ofSteps += (steps[i] - stepMean) * (steps[i] - stepMean) / stepMean;
  }
  // 49 and 48 degrees of freedom, once in a million.
  EXPECT_LT(ofPlaces, 113);
  EXPECT_LT(ofSteps, 112);
  EXPECT_EQ(steps[0], 0);
}

TEST(SeededPermutation, dependsOnSeedAndStreamAlone) {
  EXPECT_EQ(orderOf(100, 5, 6), orderOf(100, 5, 6));
  EXPECT_NE(orderOf(100, 5, 6), orderOf(100, 6, 5));
  EXPECT_NE(orderOf(100, 5, 6), orderOf(100, 5, 7));
  EXPECT_NE(orderOf(100, 5, 0), orderOf(100, 5, uint64_t{1} << 32));
  EXPECT_NE(orderOf(100, 0, 6), orderOf(100, uint64_t{1} << 32, 6));
  // A run that is resumed elsewhere goes on in the same order.
  EXPECT_EQ(orderOf(8, 1, 0), (Order{2, 6, 3, 1, 4, 7, 5, 0}));
}

TEST(SequenceOrder, eachEpochHasItsOwn) {
  const SequenceOrder order(50, 3);
  DataPosition position;
  const Order first = order.take(position, 50);
  EXPECT_EQ(position, (DataPosition{1, 0}));
  const Order second = order.take(position, 50);
  EXPECT_EQ(position, (DataPosition{2, 0}));
  EXPECT_TRUE(isPermutation(first));
  EXPECT_TRUE(isPermutation(second));
  EXPECT_NE(first, second);
  DataPosition other;
  EXPECT_NE(SequenceOrder(50, 4).take(other, 50), first);
}

// However the sequences are taken, and wherever a run resumes.
TEST(SequenceOrder, followsFromThePosition) {
  const SequenceOrder order(7, 3);
  DataPosition position;
  const Order all = order.take(position, 40);
  EXPECT_EQ(position, (DataPosition{5, 5}));
  for (uint64_t step = 1; step <= 20; ++step) {
    DataPosition at;
    Order taken;
    while (taken.size() < 40) {
      // As if the run had ended here.
      DataPosition resumed = {at.epoch, at.index};
      EXPECT_EQ(order.at(at), all[taken.size()]);
      const Order part =
          order.take(resumed, std::min<uint64_t>(step, 40 - taken.size()));
      taken.insert(taken.end(), part.begin(), part.end());
      at = resumed;
    }
    EXPECT_EQ(taken, all) << step;
    EXPECT_EQ(at, position);
  }
}

TEST(SequenceOrder, asWritten) {
  const SequenceOrder order(3, 3, SequenceOrder::Kind::AsWritten);
  DataPosition position;
  EXPECT_EQ(order.take(position, 7), (Order{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(position, (DataPosition{2, 1}));
}

TEST(SequenceOrder, refusesAPositionOfOtherData) {
  const SequenceOrder order(7, 3);
  DataPosition position = {2, 7};
  EXPECT_ERROR(order.at(position), "sequence 7 of an epoch", "the data have 7",
               "that the run began with");
  EXPECT_ERROR(order.take(position, 1), "the data have 7");
}

} // namespace
