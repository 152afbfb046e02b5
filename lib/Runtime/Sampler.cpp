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
    if (std::isnan(logits[id]) || logits[id] == INFINITY)
      fail("the logit of id {} is {}: the model's numbers overflow; try "
           "--dtype=f32",
           id, logits[id]);
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

int32_t Sampler::sample(std::span<const float> logits,
                        std::span<const int32_t> seen) {
  if (logits.empty())
    fail("there are no logits to choose from");
  loadLogits(logits, seen);
  // The largest comes first in the order of `before`.
  auto [best, bestId] =
      *std::min_element(candidates.begin(), candidates.end(), before);
  if (best == -INFINITY)
    fail("all {} logits are minus infinity: nothing can be chosen",
         logits.size());
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
