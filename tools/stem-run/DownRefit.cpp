//===- DownRefit.cpp - W_down, fitted again -------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DownRefit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>

using namespace stem;

namespace {

/// So many typical positions a single one can count for.
constexpr double kMostTypical = 100;

/// Σ term(i) in eight sums, which compilers keep in vectors.
template <typename Term> double sumOf(size_t count, const Term &term) {
  constexpr size_t lanes = 8;
  std::array<double, lanes> sums = {};
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (size_t lane = 0; lane < lanes; ++lane)
      sums[lane] += term(i + lane);
  for (; i < count; ++i)
    sums[0] += term(i);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double squaredNorm(std::span<const float> values) {
  return sumOf(values.size(),
               [&](size_t i) { return double(values[i]) * values[i]; });
}

double squaredDistance(std::span<const float> a, std::span<const float> b) {
  return sumOf(a.size(), [&](size_t i) {
    const double difference = double(a[i]) - b[i];
    return difference * difference;
  });
}

std::span<const float> rows(const float *matrix, int64_t count, int64_t width) {
  return {matrix, static_cast<size_t>(count * width)};
}

} // namespace

std::vector<float> stem::refitWeights(std::span<const int32_t> sequences,
                                      const float *lacks, int64_t width) {
  std::vector<double> norms, sorted;
  for (size_t i = 0; i < sequences.size(); ++i) {
    norms.push_back(
        squaredNorm(rows(lacks + static_cast<int64_t>(i) * width, 1, width)));
    // Where nothing is lacking nothing is asked.
    if (sequences[i] >= 0 && norms.back() > 0)
      sorted.push_back(norms.back());
  }
  double most = 0;
  if (!sorted.empty()) {
    const auto middle =
        sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    most = kMostTypical * *middle;
  }
  std::vector<float> weights(norms.size());
  for (size_t i = 0; i < weights.size(); ++i)
    if (sequences[i] >= 0)
      weights[i] =
          norms[i] > most ? static_cast<float>(std::sqrt(most / norms[i])) : 1;
  return weights;
}

void stem::scaleRows(std::span<const float> factors, float *matrix,
                     int64_t width) {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] == 1)
      continue;
    float *row = matrix + static_cast<int64_t>(i) * width;
    for (int64_t c = 0; c < width; ++c)
      row[c] *= factors[i];
  }
}

DownRefit::DownRefit(LayerRunner &runner, const ModelConfig &config,
                     uint64_t layer)
    : runner(runner), layer(layer), d(static_cast<int64_t>(config.hiddenSize)),
      f(static_cast<int64_t>(config.intermediateSize)),
      equations(runner.context(), f, d, fmt::format("layer {}", layer),
                runner.productType()) {}

void DownRefit::addFit(std::span<const int32_t> sequences, float *z,
                       float *lacks) {
  const std::vector<float> weights = refitWeights(sequences, lacks, d);
  scaleRows(weights, z, f);
  scaleRows(weights, lacks, d);
  equations.add(z, lacks, static_cast<int64_t>(sequences.size()));
}

void DownRefit::addChoose(std::span<const int32_t> sequences, float *z,
                          float *lacks, float *output) {
  const int64_t count = static_cast<int64_t>(sequences.size());
  const std::vector<float> weights = refitWeights(sequences, lacks, d);
  scaleRows(weights, z, f);
  scaleRows(weights, lacks, d);
  scaleRows(weights, output, d);
  outputs += squaredNorm(rows(output, count, d));
  before += squaredNorm(rows(lacks, count, d));
  choose.push_back({count, {z, z + count * f}, {lacks, lacks + count * d}});
}

DownRefit::Result DownRefit::solve(std::span<const double> ridges) {
  Result result;
  result.update.resize(static_cast<size_t>(d * f));
  double best = before, last = std::numeric_limits<double>::infinity();
  std::vector<float> candidate(result.update.size()), product;
  for (const double ridge : ridges) {
    if (best == 0)
      break;
    equations.solve(ridge, candidate.data());
    runner.replaceDown(layer, candidate);
    double after = 0;
    for (const Step &step : choose) {
      product.resize(step.lacks.size());
      runner.product(layer, step.z.data(), step.count, product.data());
      after += squaredDistance(product, step.lacks);
    }
    // The error has one valley over the ridges.
    if (after > last)
      break;
    last = after;
    if (after < best) {
      best = after;
      result.ridge = ridge;
      result.update = candidate;
    }
  }
  runner.restoreDown(layer);
  // A layer that puts out nothing loses nothing.
  result.errorBefore = outputs > 0 ? before / outputs : 0;
  result.errorAfter = outputs > 0 ? best / outputs : 0;
  return result;
}
