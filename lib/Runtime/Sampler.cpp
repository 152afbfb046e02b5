//===- Sampler.cpp - Choosing the next token ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Sampler.h"
#include "stem/Runtime/Philox.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>

using namespace stem;

namespace {

/// Larger logits first, of equal ones the lower id.
bool before(const std::pair<double, int32_t> &a,
            const std::pair<double, int32_t> &b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

void checkLogit(size_t id, float logit) {
  if (std::isnan(logit) || logit == INFINITY)
    fail("the logit of id {} is {}: the model's numbers overflow; try "
         "--dtype=f32",
         id, logit);
}

[[noreturn]] void failWithoutChoice(size_t count) {
  fail("all {} logits are minus infinity: nothing can be chosen", count);
}

} // namespace

Sampler::Sampler(const SamplerOptions &options) : options(options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature))
    fail("temperature is {} but must be 0 (greedy) or positive",
         options.temperature);
  if (options.topK < 0)
    fail("top-k is {} but must be 0 (all) or positive", options.topK);
  if (!(options.topP > 0 && options.topP <= 1))
    fail("top-p is {} but must lie in (0, 1]", options.topP);
  if (!(options.repetitionPenalty > 0) || std::isinf(options.repetitionPenalty))
    fail("repetition penalty is {} but must be positive",
         options.repetitionPenalty);
}

void Sampler::loadLogits(std::span<const float> logits,
                         std::span<const int32_t> seen) {
  candidates.clear();
  for (size_t id = 0; id < logits.size(); ++id) {
    checkLogit(id, logits[id]);
    candidates.emplace_back(logits[id], static_cast<int32_t>(id));
  }
  if (options.repetitionPenalty == 1)
    return;
  for (int32_t id : seen) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size())
      fail("the repetition penalty covers id {} but there are {} logits", id,
           logits.size());
    // From the logit as given, so that an id seen twice is penalised once.
    double logit = logits[id];
    candidates[id].first = logit < 0 ? logit * options.repetitionPenalty
                                     : logit / options.repetitionPenalty;
  }
}

void Sampler::keepTopK() {
  size_t k = static_cast<size_t>(options.topK);
  if (k == 0 || k >= candidates.size())
    return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1),
                   candidates.end(), before);
  double least = candidates[k - 1].first;
  std::erase_if(candidates,
                [&](const auto &entry) { return entry.first < least; });
  // nth_element leaves an order of the library's choice; a draw depends on it.
  std::sort(candidates.begin(), candidates.end(), before);
}

void Sampler::keepTopP() {
  if (options.topP == 1)
    return;
  double total = 0;
  for (const auto &[weight, id] : candidates)
    total += weight;
  std::sort(candidates.begin(), candidates.end(), before);
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || sum < options.topP * total))
    sum += candidates[kept++].first;
  candidates.resize(kept);
}

/// Where no id is left out and no logit is changed: without a copy, and most
/// weights computed once.
int32_t Sampler::sampleFromAll(std::span<const float> logits) {
  size_t best = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    checkLogit(id, logits[id]);
    if (logits[id] > logits[best])
      best = id;
  }
  if (logits[best] == -INFINITY)
    failWithoutChoice(logits.size());
  if (options.temperature == 0)
    return static_cast<int32_t>(best);
  const double largest = logits[best];
  const auto weight = [&](size_t id) {
    return std::exp((logits[id] - largest) / options.temperature);
  };
  constexpr size_t blockSize = 512;
  std::vector<double> sums;
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += blockSize) {
    double sum = 0;
    for (size_t id = begin; id < std::min(begin + blockSize, logits.size());
         ++id)
      sum += weight(id);
    sums.push_back(sum);
    total += sum;
  }
  double wanted = philoxUniform(options.seed, options.stream, draws++) * total;
  size_t block = 0;
  for (; block + 1 < sums.size() && wanted >= sums[block]; ++block)
    wanted -= sums[block];
  const size_t begin = block * blockSize;
  size_t chosen = best;
  double sum = 0;
  for (size_t id = begin;
       id < std::min(begin + blockSize, logits.size()) && sum <= wanted; ++id)
    if (const double part = weight(id); part > 0) {
      chosen = id;
      sum += part;
    }
  return static_cast<int32_t>(chosen);
}

int32_t Sampler::sample(std::span<const float> logits,
                        std::span<const int32_t> seen) {
  if (logits.empty())
    fail("there are no logits to choose from");
  const bool keepsAll = options.topP == 1 &&
                        (options.topK == 0 ||
                         static_cast<uint64_t>(options.topK) >= logits.size());
  if (options.repetitionPenalty == 1 && (keepsAll || options.temperature == 0))
    return sampleFromAll(logits);
  loadLogits(logits, seen);
  // The largest comes first in the order of `before`.
  auto [best, bestId] =
      *std::min_element(candidates.begin(), candidates.end(), before);
  if (best == -INFINITY)
    failWithoutChoice(logits.size());
  if (options.temperature == 0)
    return bestId;
  keepTopK();
  for (auto &[logit, id] : candidates)
    logit = std::exp((logit - best) / options.temperature);
  keepTopP();
  double total = 0;
  for (const auto &[weight, id] : candidates)
    total += weight;
  double wanted = philoxUniform(options.seed, options.stream, draws++) * total;
  double sum = 0;
  int32_t chosen = bestId;
  for (const auto &[weight, id] : candidates) {
    if (weight == 0)
      continue;
    chosen = id;
    sum += weight;
    if (wanted < sum)
      break;
  }
  return chosen;
}
