//===- ExpectedTensors.cpp - The tensors that a config asks for -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelWeights.h"

#include <string_view>

using namespace stem;

namespace {

/// ModelWeights::resolve looks for the same names and checks these shapes.
class Listing {
public:
  explicit Listing(const ModelConfig &config) : config(config) {}

  std::vector<ExpectedTensor> make() {
    const uint64_t vocab = config.vocabSize, d = config.hiddenSize;
    result.push_back({"model.embed_tokens.weight", {vocab, d}});
    for (layer = 0; layer < config.layerCount(); ++layer) {
      addAttention();
      addFeedForward();
    }
    result.push_back({"model.norm.weight", {d}});
    if (!config.tieEmbeddings)
      result.push_back({"lm_head.weight", {vocab, d}});
    return std::move(result);
  }

private:
  void add(std::string_view suffix, std::vector<uint64_t> shape) {
    result.push_back({layerTensorName(layer, suffix), std::move(shape)});
  }

  /// [outputs, inputs], and a bias of the outputs.
  void addLinear(const std::string &name, uint64_t outputs, uint64_t inputs,
                 bool hasBias) {
    add(name + ".weight", {outputs, inputs});
    if (hasBias)
      add(name + ".bias", {outputs});
  }

  void addAttention() {
    const uint64_t d = config.hiddenSize, q = config.queryWidth(),
                   k = config.keyValueWidth();
    const bool hasBias =
        config.attentionBias || config.family == ModelFamily::Qwen2;
    if (!config.normAfterBlock)
      add("input_layernorm.weight", {d});
    addLinear("self_attn.q_proj", q, d, hasBias);
    addLinear("self_attn.k_proj", k, d, hasBias);
    addLinear("self_attn.v_proj", k, d, hasBias);
    if (config.qkNorm != QkNorm::None) {
      const bool isPerHead = config.qkNorm == QkNorm::PerHead;
      add("self_attn.q_norm.weight", {isPerHead ? config.headDim : q});
      add("self_attn.k_norm.weight", {isPerHead ? config.headDim : k});
    }
    addLinear("self_attn.o_proj", d, q, config.attentionBias);
    add("post_attention_layernorm.weight", {d});
  }

  void addFeedForward() {
    const uint64_t d = config.hiddenSize, f = config.intermediateSize;
    addLinear("mlp.gate_proj", f, d, config.mlpBias);
    if (config.layers[layer].isStem)
      addTable();
    else
      addLinear("mlp.up_proj", f, d, config.mlpBias);
    addLinear("mlp.down_proj", d, f, config.mlpBias);
    if (config.normAfterBlock)
      add("post_feedforward_layernorm.weight", {d});
  }

  void addTable() {
    const uint64_t f = config.intermediateSize;
    add("mlp.up_table.weight", {config.vocabSize, f});
    if (const uint64_t rank = config.stem->rankOf(layer)) {
      add("mlp.up_mix.a.weight", {f, rank});
      add("mlp.up_mix.b.weight", {rank, config.hiddenSize});
    }
  }

  const ModelConfig &config;
  uint64_t layer = 0;
  std::vector<ExpectedTensor> result;
};

} // namespace

std::vector<ExpectedTensor> stem::expectedTensors(const ModelConfig &config) {
  return Listing(config).make();
}
