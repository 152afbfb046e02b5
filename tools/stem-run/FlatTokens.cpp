//===- FlatTokens.cpp - The tokens of a step ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FlatTokens.h"

using namespace stem;

void FlatTokens::append(int32_t id, int64_t position, int32_t sequence,
                        int32_t label) {
  ids.push_back(id);
  positions.push_back(static_cast<int32_t>(position));
  sequences.push_back(sequence);
  labels.push_back(label);
}

std::optional<stem_tensor> FlatTokens::input(std::string_view name) const {
  if (name == "ids")
    return vectorTensor(ids);
  if (name == "positions")
    return vectorTensor(positions);
  if (name == "sequences")
    return vectorTensor(sequences);
  if (name == "labels")
    return vectorTensor(labels);
  return std::nullopt;
}
