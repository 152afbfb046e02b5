//===- ModelConfig.cpp - Reading config.json ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelConfig.h"

#include "ConfigReader.h"
#include "FileIO.h"
#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;
using nlohmann::ordered_json;

namespace {

struct FamilyTraits {
  ModelFamily family;
  std::string_view modelType;
  std::string_view architecture;
};

constexpr FamilyTraits families[] = {
    {ModelFamily::Llama, "llama", "LlamaForCausalLM"},
    {ModelFamily::Mistral, "mistral", "MistralForCausalLM"},
    {ModelFamily::Qwen2, "qwen2", "Qwen2ForCausalLM"},
    {ModelFamily::Qwen3, "qwen3", "Qwen3ForCausalLM"},
    {ModelFamily::SmolLM3, "smollm3", "SmolLM3ForCausalLM"},
    {ModelFamily::Olmo2, "olmo2", "Olmo2ForCausalLM"},
};

ModelFamily familyFromType(const std::string &type, const std::string &file) {
  for (const FamilyTraits &traits : families)
    if (traits.modelType == type)
      return traits.family;
  fail("{}: model_type \"{}\" is not supported; supported are llama, mistral, "
       "qwen2, qwen3, smollm3, olmo2 and stem_llama",
       file, printable(type));
}

/// From model_type, else from architectures.
ModelFamily readFamily(ConfigReader &reader, ModelConfig &config) {
  if (config.stem)
    return familyFromType(config.stem->baseModelType, reader.file());
  if (const auto type = reader.text("model_type"))
    return familyFromType(*type, reader.file());
  for (const std::string &architecture : reader.texts("architectures"))
    for (const FamilyTraits &traits : families)
      if (traits.architecture == architecture) {
        config.warnings.push_back(
            fmt::format("{}: no model_type; taken from architectures: {}",
                        reader.file(), traits.modelType));
        return traits.family;
      }
  fail("{}: neither model_type nor a supported name in architectures; add "
       "\"model_type\" (llama, mistral, qwen2, qwen3, smollm3, olmo2)",
       reader.file());
}

void readSizes(ConfigReader &reader, ModelConfig &config) {
  constexpr uint64_t limit = 1u << 30;
  config.hiddenSize = reader.requiredCount("hidden_size", limit);
  config.intermediateSize = reader.requiredCount("intermediate_size", limit);
  config.vocabSize = reader.requiredCount("vocab_size", limit);
  config.heads = reader.requiredCount("num_attention_heads", limit);
  // An allocation follows from this one.
  config.layers.resize(reader.requiredCount("num_hidden_layers", 10000));

  if (const auto kvHeads = reader.count("num_key_value_heads", limit))
    config.kvHeads = *kvHeads;
  else if (config.family == ModelFamily::Llama ||
           reader.isNull("num_key_value_heads"))
    config.kvHeads = config.heads;
  else
    fail("{}: \"num_key_value_heads\" is missing", reader.file());
  if (config.heads % config.kvHeads)
    fail("{}: num_attention_heads {} is not a multiple of num_key_value_heads "
         "{}",
         reader.file(), config.heads, config.kvHeads);

  if (const auto headDim = reader.count("head_dim", limit))
    config.headDim = *headDim;
  else if (config.family == ModelFamily::Qwen3 && !reader.isNull("head_dim"))
    config.headDim = 128;
  else if (config.hiddenSize % config.heads)
    fail("{}: hidden_size {} is not a multiple of num_attention_heads {} and "
         "there is no head_dim",
         reader.file(), config.hiddenSize, config.heads);
  else
    config.headDim = config.hiddenSize / config.heads;
  if (config.headDim % 2)
    fail("{}: the head dimension {} is odd; rotary embedding needs pairs",
         reader.file(), config.headDim);
  config.maxPositions =
      reader.count("max_position_embeddings", UINT32_MAX).value_or(0);
}

/// layer_types when the file has it: one kind a layer.
std::optional<std::vector<bool>> readLayerTypes(ConfigReader &reader,
                                                const ModelConfig &config) {
  if (!reader.has("layer_types"))
    return std::nullopt;
  const auto types = reader.texts("layer_types");
  if (types.size() != config.layerCount())
    fail("{}: layer_types has {} entries, num_hidden_layers is {}",
         reader.file(), types.size(), config.layerCount());
  std::vector<bool> isSliding;
  for (const std::string &type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      fail("{}: layer_types: \"{}\" is not supported (full_attention or "
           "sliding_attention is)",
           reader.file(), printable(type));
    isSliding.push_back(type == "sliding_attention");
  }
  return isSliding;
}

/// Which layers slide, by the rules of each family's own config class.
void readWindows(ConfigReader &reader, ModelConfig &config) {
  const auto types = readLayerTypes(reader, config);
  const ModelFamily family = config.family;
  const bool hasWindows =
      family != ModelFamily::Llama && family != ModelFamily::Olmo2;
  std::optional<uint64_t> window;
  if (hasWindows) {
    window = reader.count("sliding_window", UINT32_MAX);
    if (family == ModelFamily::Mistral) {
      if (!window && !reader.isNull("sliding_window"))
        window = 4096;
    } else if (!reader.boolean("use_sliding_window").value_or(false)) {
      window.reset();
    }
  }
  const uint64_t maxWindowLayers =
      reader.count("max_window_layers", UINT32_MAX, 0).value_or(28);
  for (uint64_t i = 0; i < config.layerCount(); ++i) {
    LayerConfig &layer = config.layers[i];
    bool isSliding = window.has_value();
    if (types)
      isSliding = (*types)[i];
    else if (family == ModelFamily::Qwen2 || family == ModelFamily::Qwen3)
      isSliding &= i >= maxWindowLayers;
    else if (family == ModelFamily::SmolLM3)
      isSliding &= !layer.usesRope;
    if (isSliding && !window)
      fail("{}: layer_types[{}] is sliding_attention, but no sliding window is "
           "in force for model_type {}; set sliding_window (and "
           "use_sliding_window)",
           reader.file(), i, familyName(family));
    layer.window = isSliding ? *window : 0;
  }
}

/// SmolLM3's no_rope_layers has 1 for layers that do use rotary embedding.
void readRopeLayers(ConfigReader &reader, ModelConfig &config) {
  if (config.family != ModelFamily::SmolLM3)
    return;
  const uint64_t interval =
      reader.count("no_rope_layer_interval", UINT32_MAX).value_or(4);
  for (uint64_t i = 0; i < config.layerCount(); ++i)
    config.layers[i].usesRope = (i + 1) % interval != 0;
  const auto flags = reader.integers("no_rope_layers");
  if (!flags)
    return;
  if (flags->size() != config.layerCount())
    fail("{}: no_rope_layers has {} entries, num_hidden_layers is {}",
         reader.file(), flags->size(), config.layerCount());
  for (uint64_t i = 0; i < config.layerCount(); ++i) {
    if ((*flags)[i] != 0 && (*flags)[i] != 1)
      fail("{}: no_rope_layers[{}] is {}, 0 or 1 was expected", reader.file(),
           i, (*flags)[i]);
    config.layers[i].usesRope = (*flags)[i] == 1;
  }
}

void readNormAndActivation(ConfigReader &reader, ModelConfig &config) {
  const bool isOlmo2 = config.family == ModelFamily::Olmo2;
  config.rmsNormEps =
      reader.number("rms_norm_eps").value_or(isOlmo2 ? 1e-5 : 1e-6);
  if (!(config.rmsNormEps > 0 && config.rmsNormEps < 1))
    fail("{}: rms_norm_eps is {}, a small positive number was expected",
         reader.file(), config.rmsNormEps);
  config.normAfterBlock = isOlmo2;
  config.qkNorm = isOlmo2                               ? QkNorm::Projection
                  : config.family == ModelFamily::Qwen3 ? QkNorm::PerHead
                                                        : QkNorm::None;
  for (const char *key : {"hidden_act", "hidden_activation"})
    if (const auto activation = reader.text(key))
      if (*activation != "silu" && *activation != "swish")
        fail("{}: {} \"{}\" is not supported; silu is", reader.file(), key,
             printable(*activation));
}

/// Without the ids that have no row, which never come.
std::vector<int64_t> idsOfModel(std::vector<int64_t> ids,
                                const std::string &file, ModelConfig &config) {
  std::erase_if(ids, [&](int64_t id) {
    const bool isNone = id < 0 || static_cast<uint64_t>(id) >= config.vocabSize;
    if (isNone)
      config.warnings.push_back(fmt::format(
          "{}: \"eos_token_id\": {} is no id of the model, whose tables have "
          "{} rows; it is left out",
          file, id, config.vocabSize));
    return isNone;
  });
  return ids;
}

void readTokensAndType(ConfigReader &reader, ModelConfig &config) {
  config.bosToken = reader.integer("bos_token_id");
  config.padToken = reader.integer("pad_token_id");
  config.eosTokens =
      idsOfModel(reader.integerOrList("eos_token_id"), reader.file(), config);
  for (const char *key : {"dtype", "torch_dtype"}) {
    const auto name = reader.text(key);
    if (!name || config.dtype)
      continue;
    config.dtype = dtypeFromConfigName(*name);
    if (!config.dtype)
      config.warnings.push_back(
          fmt::format("{}: {} \"{}\" is unknown; the tensors' own types count",
                      reader.file(), key, printable(*name)));
  }
}

} // namespace

std::string_view stem::familyName(ModelFamily family) {
  return families[static_cast<size_t>(family)].modelType;
}

ModelConfig ModelConfig::parse(std::string_view text, const std::string &name) {
  const ordered_json json = parseJsonObject(text, name);
  ModelConfig config;
  config.sourceText = text;
  ConfigReader reader(json, name);
  if (reader.isNested())
    config.warnings.push_back(
        fmt::format("{}: the model in text_config is read", name));
  config.stem = readStemSection(reader);
  config.family = readFamily(reader, config);
  refuseUnsupportedKeys(reader);
  readSizes(reader, config);
  readNormAndActivation(reader, config);
  readRopeLayers(reader, config);
  readWindows(reader, config);
  config.rope = readRope(reader, config);
  config.tieEmbeddings = reader.boolean("tie_word_embeddings")
                             .value_or(config.family == ModelFamily::SmolLM3);
  config.attentionBias = reader.boolean("attention_bias").value_or(false);
  config.mlpBias = reader.boolean("mlp_bias").value_or(false);
  readTokensAndType(reader, config);
  if (config.stem) {
    for (const uint64_t layer : config.stem->layers) {
      if (layer >= config.layerCount())
        fail("{}: stem.layers names layer {}, the model has {} (0 to {})", name,
             layer, config.layerCount(), config.layerCount() - 1);
      const uint64_t rank = config.stem->rankOf(layer);
      if (rank > config.hiddenSize)
        fail("{}: stem.rank is {} for layer {}, which is more than hidden_size "
             "{}; a low-rank term has at most that rank",
             name, rank, layer, config.hiddenSize);
      config.layers[layer].isStem = true;
    }
  }
  config.unknownKeys = reader.unknownKeys();
  for (const std::string &key : config.unknownKeys)
    config.warnings.push_back(fmt::format(
        "{}: key \"{}\" is unknown and has no effect", name, printable(key)));
  return config;
}

GenerationConfig GenerationConfig::parse(std::string_view text,
                                         const std::string &name,
                                         ModelConfig &config) {
  const ordered_json json = parseJsonObject(text, name);
  ConfigReader reader(json, name);
  GenerationConfig result;
  result.endTokens =
      idsOfModel(reader.integerOrList("eos_token_id"), name, config);
  result.repetitionPenalty = reader.number("repetition_penalty");
  if (result.repetitionPenalty && *result.repetitionPenalty <= 0)
    fail("{}: \"repetition_penalty\" is {} but must be positive; 1 changes "
         "nothing",
         name, *result.repetitionPenalty);
  return result;
}

std::string stem::generationConfigWithPenalty(std::string_view text,
                                              const std::string &name,
                                              double repetitionPenalty) {
  ordered_json json = parseJsonObject(text, name);
  json["repetition_penalty"] = repetitionPenalty;
  return json.dump(2) + "\n";
}
