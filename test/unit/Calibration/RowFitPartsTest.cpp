//===- RowFitPartsTest.cpp - Rows fitted some columns at a time -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Calibration/RowFit.h"

#include <numeric>

using namespace stem;
using namespace stem::test;

namespace {

constexpr int64_t ffn = 130, hidden = 24, ids = Layer::ids,
                  positions = Layer::positions;
constexpr double candidates[] = {1, 4, 16};
/// Whole panels; the last may be shorter.
constexpr ColumnRange halves[] = {{0, 64, ffn}, {64, 66, ffn}};
constexpr ColumnRange panels[] = {{0, 64, ffn}, {64, 64, ffn}, {128, 2, ffn}};

const Layer &layer() {
  static const Layer layer(ffn, hidden);
  return layer;
}

RowStatistics statisticsOf(stem_context *context, ColumnRange range) {
  RowStatistics statistics(context, ids, range, "layer 3");
  inPieces(positions, 300, [&](int64_t first, int64_t count) {
    statistics.add(layer().indexOf(first, count),
                   layer().gate.data() + first * ffn,
                   layer().up.data() + first * ffn);
  });
  return statistics;
}

RowFit perId(RowStatistics &&statistics) {
  return RowFit::perId(std::move(statistics), hidden,
                       [](int64_t first, int64_t count, float *out) {
                         std::copy_n(layer().features.begin() + first * hidden,
                                     count * hidden, out);
                       });
}

/// What a layer is asked for, by fits of parts of its columns.
struct Answers {
  std::vector<double> totals, meanErrors;
  std::vector<float> rows, gated, error, prior, every;

  bool operator==(const Answers &) const = default;
};

Answers answersOf(std::vector<RowFit> &parts) {
  Answers answers;
  const std::vector<uint8_t> counted(positions, 1);
  const RowPositions all = {layer().index, layer().gate.data(),
                            layer().up.data(), counted};
  for (RowFit &part : parts) {
    RowErrors errors(part, candidates);
    errors.add(all);
    answers.totals = errors.totals(answers.totals);
    const std::vector<double> means = errors.meanErrors(2);
    answers.meanErrors.insert(answers.meanErrors.end(), means.begin(),
                              means.end());
    part.setShrinkage(16);
    part.blend(means);
  }
  for (std::vector<float> *matrix :
       {&answers.rows, &answers.gated, &answers.error})
    matrix->resize(positions * ffn);
  std::vector<int32_t> index(ids);
  std::iota(index.begin(), index.end(), 0);
  answers.every.resize(ids * ffn);
  const std::vector<float> features = randomFloats(9 * hidden, 17);
  answers.prior.resize(9 * ffn);
  for (const RowFit &part : parts) {
    part.apply(
        all, {answers.rows.data(), answers.gated.data(), answers.error.data()});
    part.rows(index, answers.every.data());
    part.prior(features.data(), 9, answers.prior.data());
  }
  return answers;
}

template <typename Fit>
Answers answersOf(std::span<const ColumnRange> ranges, int threads,
                  const Fit &fit) {
  ContextPtr context = createContext(threads);
  std::vector<RowFit> parts;
  for (const ColumnRange &range : ranges)
    parts.push_back(fit(statisticsOf(context.get(), range)));
  return answersOf(parts);
}

TEST(RowFitParts, SameBitsAsAllColumns) {
  const ColumnRange all[] = {{0, ffn, ffn}};
  const auto meanRow = [](RowStatistics &&statistics) {
    return RowFit::meanRow(statistics);
  };
  const Answers wanted = answersOf(all, 1, perId);
  const Answers wantedMean = answersOf(all, 1, meanRow);
  for (int threads : threadCounts)
    for (std::span<const ColumnRange> ranges :
         {std::span(halves).first(2), std::span<const ColumnRange>(panels)}) {
      EXPECT_TRUE(answersOf(ranges, threads, perId) == wanted);
      EXPECT_TRUE(answersOf(ranges, threads, meanRow) == wantedMean);
    }
}

/// What lies elsewhere serves as well.
TEST(RowFitParts, TableMayBeMoved) {
  ContextPtr context = createContext(2);
  std::vector<RowFit> parts, moved;
  std::vector<std::vector<float>> tables;
  for (const ColumnRange &range : halves) {
    parts.push_back(perId(statisticsOf(context.get(), range)));
    RowFit part = perId(statisticsOf(context.get(), range));
    EXPECT_EQ(part.table().size(), size_t(3 * ids * range.count));
    tables.emplace_back(part.table().begin(), part.table().end());
    part.moveTo(tables.back().data());
    EXPECT_EQ(part.table().data(), tables.back().data());
    moved.push_back(std::move(part));
  }
  EXPECT_TRUE(answersOf(moved) == answersOf(parts));
}

TEST(RowFitParts, Messages) {
  ContextPtr context = createContext(1);
  for (const ColumnRange &bad :
       {ColumnRange{-1, 2, ffn}, ColumnRange{131, 1, ffn},
        ColumnRange{128, 3, ffn}})
    expectContains(
        errorOf([&] { RowStatistics(context.get(), ids, bad, "layer 3"); }),
        "row statistics of the columns [");
  // A dimension is numbered among all of them.
  RowStatistics statistics = statisticsOf(context.get(), panels[1]);
  std::vector<float> gate(ffn), up(ffn);
  up[64 + 17] = notANumber;
  const std::vector<int32_t> index = {9};
  statistics.add(index, gate.data(), up.data());
  expectContains(errorOf([&] { perId(std::move(statistics)); }),
                 "layer 3: the sums of row 9 hold NaN or infinity "
                 "(dimension 81)");
}

} // namespace
