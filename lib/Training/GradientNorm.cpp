//===- GradientNorm.cpp - The norm over all gradients ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/GradientNorm.h"
#include "AdamStep.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace stem;

namespace {

/// Elements that one sum takes, whatever the threads.
constexpr int64_t blockElements = 65536;

struct Block {
  const float *values;
  int64_t count;
};

/// Sixteen sums, halved until one is left, then what remains: the order of
/// stem.sum_squares in compiled code. No square of an f32 overflows f64.
STEM_TARGET double squares(const Block &block) {
  constexpr int64_t lanes = 16;
  double sums[lanes] = {};
  int64_t whole = block.count / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) {
      double value = block.values[i + lane];
      sums[lane] += value * value;
    }
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane)
      sums[lane] += sums[lane + half];
  for (int64_t i = whole; i < block.count; ++i) {
    double value = block.values[i];
    sums[0] += value * value;
  }
  return sums[0];
}

STEM_TARGET void addElements(int64_t count, const float *__restrict from,
                             float *__restrict to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += from[i];
}

int64_t blocksOf(size_t count) {
  return (int64_t(count) + blockElements - 1) / blockElements;
}

std::string faultOf(const NamedGradient &gradient) {
  auto bad = std::ranges::find_if(
      gradient.values, [](float value) { return !std::isfinite(value); });
  int64_t at = bad - gradient.values.begin();
  if (gradient.ids.empty())
    return fmt::format("{} has {} in element {}", gradient.name, *bad, at);
  int64_t columns = int64_t(gradient.values.size() / gradient.ids.size());
  const int32_t id = gradient.ids[at / columns];
  return fmt::format("{} has {} in row {}, column {}", gradient.name, *bad,
                     gradient.names.empty() ? id : gradient.names[size_t(id)],
                     at % columns);
}

} // namespace

GradientNorm stem::globalNorm(stem_context *context,
                              std::span<const NamedGradient> gradients) {
  std::vector<Block> blocks;
  for (const NamedGradient &gradient : gradients) {
    if (!gradient.ids.empty() &&
        gradient.values.size() % gradient.ids.size() != 0)
      fail("{}: {} elements do not make {} rows", gradient.name,
           gradient.values.size(), gradient.ids.size());
    for (size_t first = 0; first < gradient.values.size();
         first += blockElements)
      blocks.push_back(
          {gradient.values.data() + first,
           std::min<int64_t>(blockElements,
                             int64_t(gradient.values.size() - first))});
  }
  std::vector<double> sums(blocks.size());
  parallelFor(context, int64_t(blocks.size()),
              [&](int64_t task) { sums[task] = squares(blocks[task]); });

  GradientNorm result;
  double total = 0;
  auto sum = sums.begin();
  for (const NamedGradient &gradient : gradients) {
    double own = 0;
    for (int64_t block = 0; block < blocksOf(gradient.values.size()); ++block)
      own += *sum++;
    if (!std::isfinite(own) && result.fault.empty())
      result.fault = faultOf(gradient);
    total += own;
  }
  result.norm = std::sqrt(total);
  return result;
}

double stem::clipScale(double norm, double limit) {
  if (!(limit > 0))
    fail("gradients are clipped to a norm of {}: wanted more than 0", limit);
  if (!std::isfinite(norm))
    fail("the norm of the gradients is {}: nothing brings it to {}", norm,
         limit);
  return norm > limit ? limit / norm : 1;
}

void stem::addGradient(stem_context *context, std::span<const float> gradient,
                       std::span<float> sum) {
  if (gradient.size() != sum.size())
    fail("a gradient of {} elements is added to one of {}", gradient.size(),
         sum.size());
  int64_t total = int64_t(sum.size());
  parallelFor(context, blocksOf(sum.size()), [&](int64_t task) {
    int64_t first = task * blockElements;
    addElements(std::min(blockElements, total - first), gradient.data() + first,
                sum.data() + first);
  });
}
