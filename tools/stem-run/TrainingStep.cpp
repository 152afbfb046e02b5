//===- TrainingStep.cpp - Forward and backward of a batch -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainingStep.h"

#include "stem/Support/Error.h"

using namespace stem;

std::string_view stem::trainedPartName(TrainedPart part) {
  switch (part) {
  case TrainedPart::All:
    return "all";
  case TrainedPart::StemLayers:
    return "stem-layers";
  case TrainedPart::Tables:
    return "tables";
  case TrainedPart::Rows:
    return "rows";
  }
  fail("a part of a model to train has no name");
}

int64_t TrainingStep::Parameter::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape)
    count *= size;
  return count;
}

void TrainingStep::bindState(size_t parameter, const ParameterState &) {
  fail("{}: this step updates no parameters", parameters()[parameter].key);
}

void TrainingStep::setScalars(const AdamWScalars &) {
  fail("this step updates no parameters");
}

std::set<std::string> stem::trainedKeys(const Checkpoint &checkpoint,
                                        TrainedPart part) {
  const ModelWeights &weights = checkpoint.weights();
  std::set<std::string> keys;
  if (part == TrainedPart::All)
    for (const std::string &name : weights.names())
      keys.insert(name);
  for (const LayerWeights &layer : weights.layers) {
    if (!layer.upTable.empty() &&
        (part == TrainedPart::Tables || part == TrainedPart::Rows))
      keys.insert(layer.upTable);
    if (!layer.upTable.empty() && part == TrainedPart::StemLayers)
      for (const std::string &name : ModelWeights::layerNames(layer))
        keys.insert(name);
    keys.erase(layer.upSelectIds); // integers
  }
  if (keys.empty())
    fail("{}: --train={} finds nothing to train: no layer of the model has a "
         "table; give --train=all, or make tables with stem-run convert",
         checkpoint.path().string(), trainedPartName(part));
  return keys;
}

DType stem::liveRowType(const TensorInfo &table, std::optional<DType> wanted) {
  if (wanted)
    return *wanted;
  return table.dtype == DType::BF16 ? DType::BF16 : DType::F32;
}
