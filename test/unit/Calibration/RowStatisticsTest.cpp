//===- RowStatisticsTest.cpp - Sums of each id's row ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/RowStatistics.h"
#include "TestSupport.h"

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t ffn = 130;

const Layer &layer() {
  static const Layer layer(ffn, 24);
  return layer;
}

RowStatistics statisticsOf(stem_context *context, int64_t piece) {
  RowStatistics statistics(context, Layer::ids, ffn, "layer 3");
  inPieces(Layer::positions, piece, [&](int64_t first, int64_t count) {
    statistics.add(layer().indexOf(first, count),
                   layer().gate.data() + first * ffn,
                   layer().up.data() + first * ffn);
  });
  return statistics;
}

std::vector<float> all(const float *sums) {
  return {sums, sums + Layer::ids * ffn};
}

TEST(RowStatistics, SumsByIdAndDimension) {
  ContextPtr context = createContext(2);
  RowStatistics statistics = statisticsOf(context.get(), 300);
  Eigen::MatrixXd gate = matrixOf(layer().gate, ffn);
  Eigen::MatrixXd up = matrixOf(layer().up, ffn);
  Eigen::VectorXd n = Eigen::VectorXd::Zero(Layer::ids);
  Eigen::MatrixXd g = Eigen::MatrixXd::Zero(Layer::ids, ffn), h = g, s = g;
  for (int64_t i = 0; i < Layer::positions; ++i) {
    int32_t id = layer().index[i];
    auto square = gate.row(i).cwiseAbs2();
    n[id] += 1;
    g.row(id) += square;
    h.row(id) += square.cwiseProduct(up.row(i));
    s.row(id) += up.row(i);
  }
  for (int64_t id = 0; id < Layer::ids; ++id)
    EXPECT_EQ(statistics.counts()[id], n[id]);
  auto seen = [](const float *sums) { return matrixOf(sums, Layer::ids, ffn); };
  EXPECT_LT(relativeError(seen(statistics.gateSquares()), g), 1e-5);
  EXPECT_LT(relativeError(seen(statistics.gatedUps()), h), 1e-5);
  EXPECT_LT(relativeError(seen(statistics.ups()), s), 1e-5);
  EXPECT_EQ(statistics.positions(), Layer::positions);
  EXPECT_EQ(statistics.counts()[Layer::unseen], 0);
  EXPECT_EQ(statistics.counts()[Layer::once], 1);
}

TEST(RowStatistics, SameBitsForPiecesAndThreads) {
  ContextPtr one = createContext(1);
  RowStatistics wanted = statisticsOf(one.get(), Layer::positions);
  for (int64_t piece : pieceSizes)
    for (int threads : threadCounts) {
      ContextPtr context = createContext(threads);
      RowStatistics seen = statisticsOf(context.get(), piece);
      SCOPED_TRACE(testing::Message()
                   << piece << " positions a piece, " << threads << " threads");
      EXPECT_EQ(all(seen.gateSquares()), all(wanted.gateSquares()));
      EXPECT_EQ(all(seen.gatedUps()), all(wanted.gatedUps()));
      EXPECT_EQ(all(seen.ups()), all(wanted.ups()));
    }
}

TEST(RowStatistics, BeginsAnewInSpentMemory) {
  ContextPtr context = createContext(2);
  const int64_t bytes = Layer::ids * ffn * 3 * int64_t(sizeof(float));
  for (const int64_t size : {bytes, bytes + 4}) { // another size is of no use
    Arena spent(size, "what was before");
    std::fill_n(static_cast<float *>(spent.data()), 3 * Layer::ids * ffn, 7.0f);
    const void *place = spent.data();
    RowStatistics statistics(context.get(), Layer::ids, {0, ffn, ffn},
                             "layer 3", std::move(spent));
    EXPECT_EQ(statistics.gateSquares() == place, size == bytes);
    const std::vector<float> zeros(Layer::ids * ffn);
    EXPECT_EQ(all(statistics.gateSquares()), zeros);
    EXPECT_EQ(all(statistics.gatedUps()), zeros);
    EXPECT_EQ(all(statistics.ups()), zeros);
  }
}

TEST(RowStatistics, LeavesOutPositions) {
  ContextPtr context = createContext(2);
  RowStatistics statistics(context.get(), 3, 2, "layer 3");
  std::vector<int32_t> index = {-1, 2, -1};
  std::vector<float> gate = {100, 100, 2, 3, 100, 100};
  std::vector<float> up = {100, 100, 5, 7, 100, 100};
  statistics.add(index, gate.data(), up.data());
  EXPECT_EQ(statistics.positions(), 1);
  auto values = [](const float *sums) {
    return std::vector<float>(sums, sums + 6);
  };
  EXPECT_EQ(values(statistics.gateSquares()),
            (std::vector<float>{0, 0, 0, 0, 4, 9}));
  EXPECT_EQ(values(statistics.gatedUps()),
            (std::vector<float>{0, 0, 0, 0, 20, 63}));
  EXPECT_EQ(values(statistics.ups()), (std::vector<float>{0, 0, 0, 0, 5, 7}));
}

TEST(RowStatistics, Messages) {
  ContextPtr context = createContext(1);
  RowStatistics statistics(context.get(), 3, 2, "layer 3");
  std::vector<float> values(4);
  for (int32_t bad : {-2, 3}) {
    std::vector<int32_t> index = {0, bad};
    expectContains(
        errorOf([&] { statistics.add(index, values.data(), values.data()); }),
        fmt::format("layer 3: position 1 has row {}: wanted -1 (left out) to 2",
                    bad));
  }
  // Nothing of a refused piece is counted.
  EXPECT_EQ(statistics.positions(), 0);
  std::vector<int32_t> index = {0};
  expectContains(
      errorOf([&] { statistics.add(index, values.data(), nullptr); }),
      "layer 3: 1 positions without a gate or an up-projection");
  expectContains(
      errorOf([&] { RowStatistics(context.get(), 0, 2, "layer 3"); }),
      "row statistics of 0 ids: wanted 1 to");
  expectContains(
      errorOf([&] { RowStatistics(context.get(), int64_t(1) << 31, 2, ""); }),
      "wanted 1 to 2147483647");
  expectContains(errorOf([&] { RowStatistics(context.get(), 3, 0, ""); }),
                 "row statistics: a size is 0, wanted at least 1");
  expectContains(
      errorOf([] { RowStatistics::bytes(INT32_MAX, int64_t(1) << 30); }),
      "does not fit 62 bits");
  EXPECT_EQ(RowStatistics::bytes(10, 20), 3 * 10 * 20 * 4 + 10 * 8);
}

} // namespace
