//===- ConfigReader.cpp - Typed access to config.json ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConfigReader.h"

#include "FileIO.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>

using namespace stem;
using nlohmann::ordered_json;

namespace {

/// Keys that every config may have and that do not touch the forward pass.
constexpr std::string_view harmlessKeys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_window_layers",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "no_rope_layer_interval",
    "no_rope_layers",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_logits_to_keep",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "qkv_bias",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "embd_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "rope_theta",
    "sep_token_id",
    "sliding_window",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "text_config",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_sliding_window",
    "decoder_start_token_id",
    "cross_attention_hidden_size",
    "attention_out_bias",
};

enum class Neutral { Null, False, True, Zero, One, Empty };

struct UnsupportedKey {
  std::string_view key;
  Neutral neutral; ///< the value that changes nothing
};

/// Keys of other models or variants that change the forward pass.
constexpr UnsupportedKey unsupportedKeys[] = {
    {"add_cross_attention", Neutral::False},
    {"alibi", Neutral::False},
    {"attention_chunk_size", Neutral::Null},
    {"attention_multiplier", Neutral::Null},
    {"attention_sink", Neutral::False},
    {"attn_logit_softcapping", Neutral::Null},
    {"attn_temperature_tuning", Neutral::False},
    {"clip_qkv", Neutral::Null},
    {"compression_config", Neutral::Null},
    {"dim_model_base", Neutral::Null},
    {"embedding_multiplier", Neutral::One},
    {"embedding_scale", Neutral::One},
    {"final_logit_softcapping", Neutral::Null},
    {"hidden_size_per_layer_input", Neutral::Zero},
    {"is_causal", Neutral::True},
    {"is_encoder_decoder", Neutral::False},
    {"kv_lora_rank", Neutral::Null},
    {"logit_scale", Neutral::One},
    {"logits_scaling", Neutral::One},
    {"moe_intermediate_size", Neutral::Zero},
    {"n_routed_experts", Neutral::Zero},
    {"num_experts", Neutral::Zero},
    {"num_kv_shared_layers", Neutral::Zero},
    {"num_local_experts", Neutral::Zero},
    {"parallel_attn", Neutral::False},
    {"partial_rotary_factor", Neutral::One},
    {"pruned_heads", Neutral::Empty},
    {"q_lora_rank", Neutral::Null},
    {"qk_layernorm", Neutral::False},
    {"qk_norm", Neutral::False},
    {"quantization", Neutral::Null},
    {"quantization_config", Neutral::Null},
    {"query_pre_attn_scalar", Neutral::Null},
    {"residual_multiplier", Neutral::One},
    {"rope_interleave", Neutral::False},
    {"rope_interleaved", Neutral::False},
    {"rope_local_base_freq", Neutral::Null},
    {"rope_ratio", Neutral::One},
    {"rotary_pct", Neutral::One},
    {"scale_depth", Neutral::Null},
    {"scale_emb", Neutral::One},
    {"sliding_window_pattern", Neutral::Null},
    {"softmax_scale", Neutral::Null},
    {"swiglu_limit", Neutral::Null},
    {"tie_encoder_decoder", Neutral::False},
    {"use_bidirectional_attention", Neutral::False},
    {"use_mrope", Neutral::False},
    {"use_parallel_residual", Neutral::False},
    {"use_qk_norm", Neutral::False},
};

/// A number beyond int64_t is unsigned; to read it as signed would wrap.
bool isInt32(const ordered_json &value) {
  return value.is_number_unsigned()
             ? value.get<uint64_t>() <= INT32_MAX
             : value.is_number_integer() && value.get<int64_t>() >= INT32_MIN &&
                   value.get<int64_t>() <= INT32_MAX;
}

bool isNeutral(const ordered_json &value, Neutral neutral) {
  switch (neutral) {
  case Neutral::Null:
    return false; // null itself never gets here
  case Neutral::False:
    return value.is_boolean() && !value.get<bool>();
  case Neutral::Zero:
    return value.is_number() && value.get<double>() == 0;
  case Neutral::One:
    return value.is_number() && value.get<double>() == 1;
  case Neutral::True:
    return value.is_boolean() && value.get<bool>();
  case Neutral::Empty:
    return value.empty();
  }
  return false;
}

} // namespace

ConfigReader::ConfigReader(const ordered_json &json, const std::string &file)
    : root(json), inner(&json), fileName(file) {
  const auto nested = json.find("text_config");
  if (nested != json.end() && nested->is_object() &&
      !json.contains("hidden_size"))
    inner = &*nested;
}

bool ConfigReader::isNull(const std::string &key) const {
  const auto found = inner->find(key);
  return found != inner->end() && found->is_null();
}

const ordered_json *ConfigReader::find(const std::string &key) {
  readKeys.insert(key);
  for (const ordered_json *object : {inner, &root}) {
    const auto found = object->find(key);
    if (found != object->end())
      return found->is_null() ? nullptr : &*found;
  }
  return nullptr;
}

void ConfigReader::wrongValue(const std::string &key, const ordered_json &value,
                              std::string_view wanted) const {
  fail("{}: \"{}\" is {}; {} was expected", fileName, key, describeJson(value),
       wanted);
}

std::optional<uint64_t> ConfigReader::count(const std::string &key,
                                            uint64_t maximum,
                                            uint64_t minimum) {
  const ordered_json *value = find(key);
  if (!value)
    return std::nullopt;
  if (!value->is_number_unsigned() || value->get<uint64_t>() > maximum ||
      value->get<uint64_t>() < minimum)
    wrongValue(key, *value,
               fmt::format("an integer from {} to {}", minimum, maximum));
  return value->get<uint64_t>();
}

uint64_t ConfigReader::requiredCount(const std::string &key, uint64_t maximum) {
  const auto value = count(key, maximum);
  if (!value)
    fail("{}: \"{}\" is missing", fileName, key);
  return *value;
}

std::optional<double> ConfigReader::number(const std::string &key) {
  const ordered_json *value = find(key);
  if (!value)
    return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    wrongValue(key, *value, "a number");
  return value->get<double>();
}

std::optional<bool> ConfigReader::boolean(const std::string &key) {
  const ordered_json *value = find(key);
  if (!value)
    return std::nullopt;
  if (!value->is_boolean())
    wrongValue(key, *value, "true or false");
  return value->get<bool>();
}

std::optional<std::string> ConfigReader::text(const std::string &key) {
  const ordered_json *value = find(key);
  if (!value)
    return std::nullopt;
  if (!value->is_string())
    wrongValue(key, *value, "a string");
  return value->get<std::string>();
}

std::optional<int64_t> ConfigReader::integer(const std::string &key) {
  const ordered_json *value = find(key);
  if (!value)
    return std::nullopt;
  if (!isInt32(*value))
    wrongValue(key, *value, "a 32-bit integer");
  return value->get<int64_t>();
}

std::vector<std::string> ConfigReader::texts(const std::string &key) {
  const ordered_json *value = find(key);
  if (!value)
    return {};
  const bool isList =
      value->is_array() &&
      std::all_of(value->begin(), value->end(),
                  [](const ordered_json &item) { return item.is_string(); });
  if (!isList)
    wrongValue(key, *value, "a list of strings");
  return value->get<std::vector<std::string>>();
}

std::optional<std::vector<int64_t>>
ConfigReader::integers(const std::string &key) {
  const ordered_json *value = find(key);
  if (!value)
    return std::nullopt;
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), isInt32))
    wrongValue(key, *value, "a list of 32-bit integers");
  return value->get<std::vector<int64_t>>();
}

std::vector<int64_t> ConfigReader::integerOrList(const std::string &key) {
  const ordered_json *value = find(key);
  if (value && value->is_array())
    return *integers(key);
  const auto single = integer(key);
  return single ? std::vector<int64_t>{*single} : std::vector<int64_t>{};
}

std::vector<std::string> ConfigReader::unknownKeys() const {
  std::vector<std::string> result;
  for (const auto &[key, value] : inner->items()) {
    const bool isHarmless =
        std::find(std::begin(harmlessKeys), std::end(harmlessKeys), key) !=
        std::end(harmlessKeys);
    if (!readKeys.count(key) && !isHarmless && !value.is_null())
      result.push_back(key);
  }
  return result;
}

void stem::refuseUnsupportedKeys(ConfigReader &reader) {
  for (const UnsupportedKey &unsupported : unsupportedKeys) {
    const std::string key(unsupported.key);
    const ordered_json *value = reader.find(key);
    if (value && !isNeutral(*value, unsupported.neutral))
      fail("{}: \"{}\": {} changes what the model computes and is not "
           "supported",
           reader.file(), key, describeJson(*value));
  }
}
