//===- DenseFolder.cpp - Some layers of a model, some changed -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DenseFolder.h"

#include "TensorCopy.h"

#include "stem/Support/Error.h"

using namespace stem;

namespace {

/// A tensor to write: under which name, and its new values, if any.
struct Piece {
  std::string name;
  const TensorInfo *tensor;
  const std::vector<float> *values;
};

/// Layers are counted anew.
std::vector<Piece> piecesOf(const Checkpoint &checkpoint,
                            const ChangedModel &model) {
  const ModelWeights &weights = checkpoint.weights();
  std::map<std::string, uint64_t> layerOf;
  for (size_t layer = 0; layer < weights.layers.size(); ++layer)
    for (const std::string &name :
         ModelWeights::layerNames(weights.layers[layer]))
      layerOf[name] = layer;
  std::vector<Piece> pieces;
  for (const std::string &name : weights.names()) {
    Piece piece{name, &checkpoint.tensors().get(name), nullptr};
    if (const auto found = layerOf.find(name); found != layerOf.end()) {
      const uint64_t layer = found->second;
      const auto at =
          std::find(model.layers.begin(), model.layers.end(), layer);
      if (at == model.layers.end())
        continue;
      piece.name =
          layerTensorName(static_cast<uint64_t>(at - model.layers.begin()),
                          name.substr(layerTensorName(layer, "").size()));
      if (const auto changed = model.down.find(layer);
          changed != model.down.end() && name == weights.layers[layer].downProj)
        piece.values = &changed->second;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

} // namespace

std::string stem::configWithLayers(const Checkpoint &checkpoint,
                                   const std::vector<uint64_t> &layers) {
  const ModelConfig &config = checkpoint.config();
  Json json = Json::parse(config.sourceText);
  json["num_hidden_layers"] = layers.size();
  for (const char *key : {"layer_types", "no_rope_layers"}) {
    if (!json.contains(key) || !json[key].is_array())
      continue;
    Json kept = Json::array();
    for (const uint64_t layer : layers)
      kept.push_back(json[key].at(layer));
    json[key] = kept;
  }
  std::string text = json.dump(2) + "\n";
  const ModelConfig changed =
      ModelConfig::parse(text, checkpoint.path().string());
  for (size_t i = 0; i < layers.size(); ++i)
    if (!(changed.layers[i] == config.layers[layers[i]]))
      fail("{}: its config tells the kind of a layer by the layer's number; "
           "without a block before it layer {} would be another",
           checkpoint.path().string(), layers[i]);
  return text;
}

void stem::writeDenseFolder(ModelFolderWriter &writer,
                            const Checkpoint &checkpoint,
                            const ChangedModel &model, const Json &provenance) {
  const TypeChoice types(checkpoint, std::nullopt);
  const std::vector<Piece> pieces = piecesOf(checkpoint, model);
  for (const Piece &piece : pieces)
    writer.addTensor(
        {piece.name, types.typeOf(*piece.tensor), piece.tensor->shape});
  addModelFiles(writer, checkpoint, /*isStem=*/false);
  std::string config = configWithLayers(checkpoint, model.layers);
  if (const auto type = types.modelType())
    config = configWithDType(config, *type);
  writer.addText("config.json", config);
  writer.setProvenance(provenance.dump());
  writer.start();
  RoundingError rounding;
  for (const Piece &piece : pieces) {
    const DType type = types.typeOf(*piece.tensor);
    if (!piece.values) {
      copyTensor(checkpoint.tensors(), *piece.tensor, type, writer, rounding,
                 [](uint64_t) {});
      continue;
    }
    std::vector<std::byte> bytes(bytesAs(*piece.tensor, type));
    encodeChecked(piece.name, type, *piece.values, bytes.data(), rounding,
                  "give more text");
    writer.write(bytes);
  }
  writer.finish();
}
