//===- Statistics.cpp - Means, medians and their intervals --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Statistics.h"

#include "stem/Runtime/Philox.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

using namespace stem;

double stem::standardError(std::span<const double> values) {
  const double count = static_cast<double>(values.size());
  if (values.size() < 2)
    return 0;
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values)
    squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1) / count);
}

double stem::median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle]
                           : (values[middle - 1] + values[middle]) / 2;
}

std::optional<Interval> stem::medianInterval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  // P(fewer than k + 1 of n values lie below the median), k rising, at most
  // 2.5 % on either side.
  const double n = static_cast<double>(values.size());
  double probability = std::pow(0.5, n), below = probability;
  size_t k = 0;
  if (below > 0.025)
    return std::nullopt;
  while (true) {
    const double rank = static_cast<double>(k);
    probability *= (n - rank) / (rank + 1);
    if (below + probability > 0.025)
      break;
    below += probability;
    ++k;
  }
  return Interval{values[k], values[values.size() - 1 - k]};
}

/// The 97.5 % quantile of Student's t.
static double studentQuantile(size_t degrees) {
  static constexpr std::array<double, 30> table = {
      12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
      2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
      2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (degrees <= table.size())
    return table[degrees - 1];
  return 1.96 + 2.4 / static_cast<double>(degrees);
}

std::optional<Interval>
stem::pairedInterval(std::span<const Document> documents) {
  if (documents.size() < 2)
    return std::nullopt;
  double difference = 0, tokens = 0;
  for (const Document &document : documents) {
    difference += document.difference;
    tokens += static_cast<double>(document.tokens);
  }
  const double mean = difference / tokens;
  double squares = 0;
  for (const Document &document : documents) {
    const double residual =
        document.difference - mean * static_cast<double>(document.tokens);
    squares += residual * residual;
  }
  const double count = static_cast<double>(documents.size());
  const double error = std::sqrt(squares * count / (count - 1)) / tokens;
  const double half = studentQuantile(documents.size() - 1) * error;
  return Interval{mean - half, mean + half};
}

/// The values' 2.5 % and 97.5 % quantiles, between neighbours where they fall
/// there.
static Interval percentileInterval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const size_t below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) *
                               (values[above] - values[below]);
  };
  return {quantile(0.025), quantile(0.975)};
}

BootstrapIntervals
stem::bootstrapIntervals(std::span<const std::vector<Document>> files,
                         uint64_t seed, size_t resamples) {
  std::vector<std::vector<double>> ofFile(files.size());
  std::vector<double> ofAll, ofFiles;
  for (size_t resample = 0; resample < resamples; ++resample) {
    Document all;
    double sum = 0;
    uint64_t draw = 0;
    for (size_t file = 0; file < files.size(); ++file) {
      const std::vector<Document> &documents = files[file];
      const double count = static_cast<double>(documents.size());
      Document drawn;
      for (size_t i = 0; i < documents.size(); ++i) {
        const double place = philoxUniform(seed, resample, draw++) * count;
        const Document &document = documents[static_cast<size_t>(place)];
        drawn.difference += document.difference;
        drawn.tokens += document.tokens;
      }
      const double mean = drawn.difference / static_cast<double>(drawn.tokens);
      ofFile[file].push_back(mean);
      sum += mean;
      all.difference += drawn.difference;
      all.tokens += drawn.tokens;
    }
    ofAll.push_back(all.difference / static_cast<double>(all.tokens));
    ofFiles.push_back(sum / static_cast<double>(files.size()));
  }
  BootstrapIntervals intervals;
  intervals.all = percentileInterval(std::move(ofAll));
  intervals.meanOfFiles = percentileInterval(std::move(ofFiles));
  for (std::vector<double> &means : ofFile)
    intervals.files.push_back(percentileInterval(std::move(means)));
  return intervals;
}
