//===- LayerChoice.cpp - What --layers means ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerChoice.h"

#include "CommandLine.h"

#include <algorithm>

using namespace stem;

/// The k of "1/k", 1 for "all", 0 for a list.
static uint64_t patternStep(const std::string &choice) {
  if (choice == "all")
    return 1;
  if (choice.rfind("1/", 0) != 0)
    return 0;
  const std::vector<int64_t> numbers =
      parseIntegers(choice.substr(2), "--layers=1/");
  if (numbers.size() != 1 || numbers[0] < 2)
    throw UsageError(fmt::format("--layers={}: give 1/2, 1/3, ..., all, or a "
                                 "list like 2,5,8",
                                 choice));
  return static_cast<uint64_t>(numbers[0]);
}

static std::vector<uint64_t> listedLayers(const std::string &choice,
                                          const ModelConfig &config) {
  std::vector<uint64_t> result;
  for (const int64_t layer : parseIntegers(choice, "--layers")) {
    if (layer < 0 || static_cast<uint64_t>(layer) >= config.layerCount())
      fail("--layers={}: the model has no layer {}; its layers are 0 to {}",
           choice, layer, config.layerCount() - 1);
    if (config.layers[static_cast<size_t>(layer)].isStem)
      fail("--layers={}: layer {} is STEM already; only dense layers can be "
           "converted",
           choice, layer);
    result.push_back(static_cast<uint64_t>(layer));
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::vector<uint64_t> stem::chooseLayers(const std::string &choice,
                                         const ModelConfig &config) {
  std::vector<uint64_t> result;
  if (const uint64_t step = patternStep(choice)) {
    for (uint64_t layer = step == 1 ? 1 : step - 1; layer < config.layerCount();
         layer += step)
      if (!config.layers[layer].isStem)
        result.push_back(layer);
  } else {
    result = listedLayers(choice, config);
  }
  if (result.empty())
    fail("--layers={}: chooses no dense layer of the model's {}", choice,
         config.layerCount());
  return result;
}
