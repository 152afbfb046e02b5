//===- StatisticsTest.cpp - Intervals against plain references ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Statistics.h"

#include "stem/Runtime/Philox.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace stem;

namespace {

/// Documents without a pattern whose difference per token is about `mean`.
std::vector<Document> someDocuments(size_t count, double mean, double spread,
                                    uint64_t stream) {
  std::vector<Document> documents;
  for (size_t i = 0; i < count; ++i) {
    const int64_t tokens =
        50 + static_cast<int64_t>(100 * philoxUniform(7, stream, 2 * i));
    const double off = philoxUniform(7, stream, 2 * i + 1) - 0.5;
    documents.push_back(
        {static_cast<double>(tokens) * (mean + spread * off), tokens});
  }
  return documents;
}

void expectNear(const Interval &got, const Interval &wanted, double error) {
  EXPECT_NEAR(got.low, wanted.low, error);
  EXPECT_NEAR(got.high, wanted.high, error);
}

/// The element of rank floor(place), moved towards the next by its fraction.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * double(values.size() - 1);
  const size_t rank = size_t(std::floor(place));
  const double next = values[std::min(rank + 1, values.size() - 1)];
  return values[rank] * (double(rank) + 1 - place) +
         next * (place - double(rank));
}

TEST(Statistics, standardError) {
  EXPECT_EQ(standardError({{3.0}}), 0);
  // Variance 2.5 over five values.
  const std::vector<double> values = {1, 2, 3, 4, 5};
  EXPECT_NEAR(standardError(values), std::sqrt(0.5), 1e-15);
}

TEST(Statistics, medianInterval) {
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_FALSE(medianInterval({1, 2, 3, 4, 5}));
  // Of 6 values the range holds the median with 1 - 2 / 64.
  expectNear(*medianInterval({6, 5, 4, 3, 2, 1}), {1, 6}, 0);
  // Of 10 the second to the ninth: 1 - 22 / 1024.
  expectNear(*medianInterval({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), {2, 9}, 0);
}

TEST(Statistics, pairedInterval) {
  const std::vector<Document> one = {{1, 1}};
  EXPECT_FALSE(pairedInterval(one));
  // Equal lengths: the interval of a mean, here 2 ± t(2) 1 / sqrt 3.
  const std::vector<Document> three = {{1, 1}, {2, 1}, {3, 1}};
  const double half = 4.303 / std::sqrt(3.0);
  expectNear(*pairedInterval(three), {2 - half, 2 + half}, 1e-12);
}

TEST(Bootstrap, everyDrawIsItsCounters) {
  const std::vector<std::vector<Document>> files = {
      someDocuments(9, 0.3, 1, 0), someDocuments(5, 0.1, 2, 1)};
  const uint64_t seed = 3;
  const size_t resamples = 101;
  std::vector<double> all, first, second, mean;
  for (size_t b = 0; b < resamples; ++b) {
    double differences[2] = {0, 0}, tokens[2] = {0, 0};
    for (size_t i = 0; i < 14; ++i) {
      const size_t file = i < 9 ? 0 : 1;
      const size_t place =
          size_t(philoxUniform(seed, b, i) * (file == 0 ? 9.0 : 5.0));
      differences[file] += files[file][place].difference;
      tokens[file] += double(files[file][place].tokens);
    }
    all.push_back((differences[0] + differences[1]) / (tokens[0] + tokens[1]));
    first.push_back(differences[0] / tokens[0]);
    second.push_back(differences[1] / tokens[1]);
    mean.push_back((first.back() + second.back()) / 2);
  }
  const BootstrapIntervals got = bootstrapIntervals(files, seed, resamples);
  const auto wanted = [](const std::vector<double> &values) {
    return Interval{quantile(values, 0.025), quantile(values, 0.975)};
  };
  expectNear(got.all, wanted(all), 1e-12);
  ASSERT_EQ(got.files.size(), 2u);
  expectNear(got.files[0], wanted(first), 1e-12);
  expectNear(got.files[1], wanted(second), 1e-12);
  expectNear(got.meanOfFiles, wanted(mean), 1e-12);
}

TEST(Bootstrap, equalDocumentsHaveNoSpread) {
  const std::vector<std::vector<Document>> files = {
      std::vector<Document>(8, {3, 10}), std::vector<Document>(9, {5, 10})};
  const BootstrapIntervals got = bootstrapIntervals(files);
  expectNear(got.files[0], {0.3, 0.3}, 1e-12);
  expectNear(got.files[1], {0.5, 0.5}, 1e-12);
  expectNear(got.meanOfFiles, {0.4, 0.4}, 1e-12);
  // Files keep their number of documents, so that they do not vary either.
  expectNear(got.all, {69.0 / 170, 69.0 / 170}, 1e-12);
}

TEST(Bootstrap, isAsWideAsTheNormalApproximation) {
  const std::vector<std::vector<Document>> files = {
      someDocuments(400, 0.25, 1, 2)};
  const Interval got = bootstrapIntervals(files).all;
  const Interval normal = *pairedInterval(files[0]);
  const double width = normal.high - normal.low;
  expectNear(got, normal, 0.1 * width);
}

TEST(Bootstrap, covers) {
  // 95 % of 200 samples, within three standard errors of that share.
  size_t covered = 0;
  for (uint64_t sample = 0; sample < 200; ++sample) {
    const std::vector<std::vector<Document>> files = {
        someDocuments(60, 0.25, 1, 100 + sample)};
    const Interval got = bootstrapIntervals(files, sample, 400).all;
    covered += got.low <= 0.25 && 0.25 <= got.high;
  }
  EXPECT_GE(covered, 181u);
  EXPECT_LE(covered, 199u);
}

TEST(Bootstrap, repeatsAndDependsOnTheSeed) {
  const std::vector<std::vector<Document>> files = {
      someDocuments(20, 0.25, 1, 3)};
  const Interval first = bootstrapIntervals(files, 1).all;
  const Interval again = bootstrapIntervals(files, 1).all;
  EXPECT_EQ(first.low, again.low);
  EXPECT_EQ(first.high, again.high);
  EXPECT_NE(first.low, bootstrapIntervals(files, 2).all.low);
}

} // namespace
