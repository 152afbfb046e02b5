//===- ModelCost.cpp - Parameters, FLOPs and bytes of a model -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModelCost.h"

#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

Cost &Cost::operator+=(const Cost &other) {
  parameters += other.parameters;
  flopsPerToken += other.flopsPerToken;
  bytes += other.bytes;
  bytesPerToken += other.bytesPerToken;
  selectedFlops += other.selectedFlops;
  selectedBytes += other.selectedBytes;
  return *this;
}

Cost ModelCost::total() const {
  Cost sum = rest;
  for (const Cost &layer : layers)
    sum += layer;
  return sum;
}

TensorSizes stem::tensorSizes(const Checkpoint &checkpoint) {
  TensorSizes result;
  for (const std::string &name : checkpoint.weights().names())
    result[name] = checkpoint.tensors().get(name);
  return result;
}

static Cost matrixCost(const TensorInfo &tensor) {
  const uint64_t elements = tensor.elements();
  const bool isMatrix = tensor.shape.size() == 2;
  return {elements, isMatrix ? 2 * elements : 0, tensor.bytes, tensor.bytes};
}

static Cost rowsCost(const TensorInfo &tensor) {
  return {tensor.elements(), 0, tensor.bytes,
          tensor.bytes / std::max<uint64_t>(tensor.shape.at(0), 1)};
}

/// A matrix that tokens with selected ids alone are multiplied by.
static Cost selectedCost(const TensorInfo &tensor) {
  Cost cost = matrixCost(tensor);
  std::swap(cost.flopsPerToken, cost.selectedFlops);
  std::swap(cost.bytesPerToken, cost.selectedBytes);
  return cost;
}

/// What goes with the bytes of 8-bit rows is no parameter. A token is counted
/// as one whose row is of 8 bits.
static Cost byteRowCost(const LayerWeights &layer, const TensorInfo &tensor) {
  const bool isScale =
      tensor.name == layer.upTableScale || tensor.name == layer.upTableMinimum;
  return {0, 0, tensor.bytes, isScale ? sizeof(float) : 0};
}

static Cost layerCost(const LayerWeights &layer, const TensorSizes &sizes) {
  Cost cost;
  const std::vector<std::string> byteRows = ModelWeights::byteRowNames(layer);
  for (const std::string &name : ModelWeights::layerNames(layer)) {
    const TensorInfo &tensor = sizes.at(name);
    const bool isSelected = !layer.upSelectIds.empty() &&
                            (name == layer.upProj || name == layer.upBias);
    if (name == layer.upSelectIds)
      cost += {0, 0, tensor.bytes, 0};
    else if (std::ranges::count(byteRows, name))
      cost += byteRowCost(layer, tensor);
    else
      cost += name == layer.upTable ? rowsCost(tensor)
              : isSelected          ? selectedCost(tensor)
                                    : matrixCost(tensor);
  }
  return cost;
}

ModelCost stem::costOf(const ModelWeights &weights, const TensorSizes &sizes) {
  ModelCost result;
  for (const LayerWeights &layer : weights.layers) {
    result.layers.push_back(layerCost(layer, sizes));
    result.isStem.push_back(!layer.upTable.empty());
  }
  result.rest = rowsCost(sizes.at(weights.embedding));
  result.rest += matrixCost(sizes.at(weights.finalNorm));
  Cost head = matrixCost(sizes.at(weights.head));
  if (weights.isHeadTied)
    head.parameters = head.bytes = 0;
  result.rest += head;
  return result;
}

double stem::attentionFlops(const ModelConfig &config, uint64_t first,
                            uint64_t count) {
  double flops = 0;
  for (const LayerConfig &layer : config.layers)
    for (uint64_t position = first; position < first + count; ++position) {
      const uint64_t keys =
          layer.window ? std::min(position + 1, layer.window) : position + 1;
      flops += 4.0 * static_cast<double>(config.queryWidth() * keys);
    }
  return flops;
}

Json stem::costJson(const Cost &cost) {
  Json json = {{"parameters", cost.parameters},
               {"flops_per_token", cost.flopsPerToken},
               {"bytes", cost.bytes},
               {"bytes_read_per_token", cost.bytesPerToken}};
  if (cost.selectedFlops) {
    json["flops_per_selected_token"] = cost.flopsPerToken + cost.selectedFlops;
    json["bytes_read_per_selected_token"] =
        cost.bytesPerToken + cost.selectedBytes;
  }
  return json;
}

Json stem::modelCostJson(const ModelCost &cost) {
  Json json = costJson(cost.total());
  json["layers"] = Json::array();
  for (size_t layer = 0; layer < cost.layers.size(); ++layer) {
    Json entry = {{"layer", layer},
                  {"kind", cost.isStem[layer] ? "stem" : "dense"}};
    entry.update(costJson(cost.layers[layer]));
    json["layers"].push_back(std::move(entry));
  }
  json["rest"] = costJson(cost.rest);
  return json;
}
