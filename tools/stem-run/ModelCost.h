//===- ModelCost.h - Parameters, FLOPs and bytes of a model -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_MODELCOST_H
#define STEM_TOOLS_STEM_RUN_MODELCOST_H

#include "Json.h"
#include "stem/Model/Checkpoint.h"

#include <map>
#include <string>
#include <vector>

namespace stem {

struct Cost {
  uint64_t parameters = 0;
  /// Of the linear layers; a multiplication and an addition are two.
  uint64_t flopsPerToken = 0;
  uint64_t bytes = 0; ///< as stored
  /// What one decoded token reads: a table or the embedding counts one row.
  uint64_t bytesPerToken = 0;
  /// What a token whose id keeps the up-projection takes on top of both.
  uint64_t selectedFlops = 0;
  uint64_t selectedBytes = 0;

  Cost &operator+=(const Cost &other);
};

struct ModelCost {
  std::vector<Cost> layers;
  std::vector<bool> isStem;
  Cost rest; ///< embedding, head, last norm
  Cost total() const;
};

using TensorSizes = std::map<std::string, TensorInfo>;

/// Every tensor of a checkpoint that has a role.
TensorSizes tensorSizes(const Checkpoint &checkpoint);

ModelCost costOf(const ModelWeights &weights, const TensorSizes &sizes);

/// FLOPs of causal attention (scores and weighted values) for tokens at
/// positions [first, first + count) of one sequence, all layers.
double attentionFlops(const ModelConfig &config, uint64_t first,
                      uint64_t count);

Json costJson(const Cost &cost);
Json modelCostJson(const ModelCost &cost);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_MODELCOST_H
