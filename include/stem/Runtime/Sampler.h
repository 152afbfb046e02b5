//===- Sampler.h - Choosing the next token ----------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_SAMPLER_H
#define STEM_RUNTIME_SAMPLER_H

#include "stem-c/Runtime.h"

#include <span>
#include <utility>
#include <vector>

namespace stem {

struct SamplerOptions {
  double temperature = 0; ///< 0: greedy
  int64_t topK = 0;       ///< 0: all ids
  double topP = 1;
  double repetitionPenalty = 1;
  uint64_t seed = 0;
  uint64_t stream = 0; ///< one a sequence: equal seeds, other numbers
};

/// Chooses token ids from logits. The order of the steps and the meaning of
/// each are those of the transformers library: repetition penalty (also when
/// greedy), temperature, top-k (ids equal to the k-th stay), top-p (the
/// likeliest ids until their probabilities reach p). Draw n of a sampler
/// depends on the options, the logits and n alone.
class STEM_EXPORT Sampler {
public:
  /// Throws an Error that names the option that cannot be used.
  explicit Sampler(const SamplerOptions &options);

  /// The next id. `seen` are the ids that the repetition penalty covers, each
  /// once or more. Greedy: of equal logits the lowest id. Throws an Error for
  /// logits that are NaN or positive infinity, or all minus infinity.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> seen);

private:
  int32_t sampleFromAll(std::span<const float> logits);
  void loadLogits(std::span<const float> logits, std::span<const int32_t> seen);
  void keepTopK();
  void keepTopP();

  SamplerOptions options;
  uint64_t draws = 0;
  /// Candidates: logit (later weight) and id.
  std::vector<std::pair<double, int32_t>> candidates;
};

} // namespace stem

#endif // STEM_RUNTIME_SAMPLER_H
