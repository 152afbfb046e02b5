//===- ModelConfigTest.cpp - Reading and writing config.json --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelConfig.h"

#include "TestFiles.h"

#include <nlohmann/json.hpp>

using namespace stem;
using namespace stem::test;
using nlohmann::ordered_json;

namespace {

ordered_json base(const std::string &type = "llama") {
  return {{"model_type", type},       {"hidden_size", 64},
          {"intermediate_size", 96},  {"num_hidden_layers", 4},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 100},        {"max_position_embeddings", 256}};
}

ModelConfig parse(const ordered_json &json) {
  return ModelConfig::parse(json.dump(), "config.json");
}

/// base with keys set (a null value stays as null).
ordered_json with(const ordered_json &changes,
                  const std::string &type = "llama") {
  ordered_json json = base(type);
  json.update(changes);
  return json;
}

ordered_json without(const std::string &key,
                     const std::string &type = "llama") {
  ordered_json json = base(type);
  json.erase(key);
  return json;
}

TEST(ModelConfig, readsTheReferenceModels) {
  struct Expected {
    const char *folder;
    ModelFamily family;
    uint64_t headDim;
    bool isTied;
    uint64_t window;
    QkNorm qkNorm;
    RopeKind rope;
  };
  for (const Expected &expected : {
           Expected{"llama_gqa", ModelFamily::Llama, 8, false, 0, QkNorm::None,
                    RopeKind::Default},
           Expected{"llama3_rope_tied_headdim", ModelFamily::Llama, 16, true, 0,
                    QkNorm::None, RopeKind::Llama3},
           Expected{"qwen2_qkv_bias", ModelFamily::Qwen2, 8, true, 0,
                    QkNorm::None, RopeKind::Default},
           Expected{"qwen3_qk_norm", ModelFamily::Qwen3, 16, false, 0,
                    QkNorm::PerHead, RopeKind::Default},
           Expected{"mistral_sliding", ModelFamily::Mistral, 8, false, 8,
                    QkNorm::None, RopeKind::Default},
           Expected{"stem_llama", ModelFamily::Llama, 8, false, 0, QkNorm::None,
                    RopeKind::Default},
       }) {
    const std::string path = fmt::format("{}/golden/{}/config.json",
                                         STEM_TEST_DATA, expected.folder);
    const ModelConfig config = ModelConfig::parse(readText(path), path);
    EXPECT_EQ(config.family, expected.family);
    EXPECT_EQ(config.headDim, expected.headDim);
    EXPECT_EQ(config.tieEmbeddings, expected.isTied);
    EXPECT_EQ(config.qkNorm, expected.qkNorm);
    EXPECT_EQ(config.rope.kind, expected.rope);
    EXPECT_EQ(config.hiddenSize, 32u);
    EXPECT_EQ(config.intermediateSize, 80u);
    EXPECT_EQ(config.vocabSize, 96u);
    EXPECT_EQ(config.heads, 4u);
    EXPECT_EQ(config.kvHeads, 2u);
    EXPECT_EQ(config.rmsNormEps, 1e-5);
    EXPECT_EQ(config.maxPositions, 256u);
    EXPECT_EQ(config.dtype, DType::F32);
    EXPECT_EQ(config.bosToken, 1);
    EXPECT_EQ(config.eosTokens, std::vector<int64_t>{2});
    ASSERT_EQ(config.layerCount(), 3u);
    for (const LayerConfig &layer : config.layers)
      EXPECT_EQ(layer.window, expected.window);
    EXPECT_TRUE(config.warnings.empty()) << config.warnings.front();
  }
}

// Case C1.
TEST(ModelConfig, headDimNeedNotFollowFromTheHiddenSize) {
  const ModelConfig nemo = parse(with({{"hidden_size", 5120},
                                       {"num_attention_heads", 32},
                                       {"num_key_value_heads", 8},
                                       {"head_dim", 128}},
                                      "mistral"));
  EXPECT_EQ(nemo.queryWidth(), 4096u);
  EXPECT_EQ(nemo.keyValueWidth(), 1024u);
  EXPECT_EQ(parse(with({{"head_dim", nullptr}})).headDim, 16u);
  EXPECT_EQ(parse(base()).headDim, 16u);
  EXPECT_EQ(parse(base("qwen3")).headDim, 128u);
  EXPECT_EQ(parse(with({{"head_dim", nullptr}}, "qwen3")).headDim, 16u);
  EXPECT_ERROR(parse(with({{"hidden_size", 66}})), "hidden_size 66",
               "head_dim");
  EXPECT_ERROR(parse(with({{"head_dim", 15}})), "15", "odd");
}

// Case C7.
TEST(ModelConfig, headsAreAMultipleOfKvHeads) {
  EXPECT_ERROR(parse(with({{"num_key_value_heads", 3}})),
               "num_attention_heads 4", "num_key_value_heads 3");
  EXPECT_EQ(parse(with({{"num_key_value_heads", 1}})).kvHeads, 1u);
  EXPECT_EQ(parse(with({{"num_key_value_heads", 4}})).kvHeads, 4u);
}

// Case C10.
TEST(ModelConfig, missingFacts) {
  EXPECT_EQ(parse(without("num_key_value_heads")).kvHeads, 4u);
  EXPECT_ERROR(parse(without("num_key_value_heads", "qwen2")), "config.json",
               "num_key_value_heads");
  EXPECT_EQ(parse(base()).rmsNormEps, 1e-6);
  EXPECT_EQ(parse(base("olmo2")).rmsNormEps, 1e-5);
  EXPECT_EQ(parse(base()).rope.theta, 10000);
  EXPECT_EQ(parse(base("smollm3")).rope.theta, 2000000);
  EXPECT_FALSE(parse(base()).tieEmbeddings);
  EXPECT_TRUE(parse(base("smollm3")).tieEmbeddings);
  EXPECT_EQ(parse(without("max_position_embeddings")).maxPositions, 0u);
  EXPECT_EQ(parse(base()).dtype, std::nullopt);
  for (const char *key : {"hidden_size", "intermediate_size", "vocab_size",
                          "num_hidden_layers", "num_attention_heads"})
    EXPECT_ERROR(parse(without(key)), "config.json", key, "missing");

  ordered_json json = without("model_type");
  EXPECT_ERROR(parse(json), "neither model_type");
  json["architectures"] = {"Qwen2ForCausalLM", "x"};
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.family, ModelFamily::Qwen2);
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_TRUE(hasAll(config.warnings[0], {"no model_type", "qwen2"}));
}

TEST(ModelConfig, readsOldAndNewNamesOfTheType) {
  EXPECT_EQ(parse(with({{"torch_dtype", "bfloat16"}})).dtype, DType::BF16);
  EXPECT_EQ(parse(with({{"dtype", "float16"}})).dtype, DType::F16);
  const ModelConfig config = parse(with({{"dtype", "auto"}}));
  EXPECT_EQ(config.dtype, std::nullopt);
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_TRUE(hasAll(config.warnings[0], {"auto"}));
}

TEST(ModelConfig, readsNestedTextModel) {
  const ordered_json json = {{"text_config", base("mistral")},
                             {"tie_word_embeddings", true},
                             {"eos_token_id", {7, 8}},
                             {"vision_config", {{"hidden_size", 9}}}};
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.family, ModelFamily::Mistral);
  EXPECT_EQ(config.hiddenSize, 64u);
  EXPECT_TRUE(config.tieEmbeddings);
  EXPECT_EQ(config.eosTokens, (std::vector<int64_t>{7, 8}));
  EXPECT_TRUE(hasAll(config.warnings.at(0), {"text_config"}));
}

TEST(ModelConfig, refusesOtherModels) {
  EXPECT_ERROR(parse(base("gemma2")), "model_type \"gemma2\"", "llama");
  EXPECT_ERROR(parse(with({{"hidden_act", "gelu"}})), "hidden_act", "gelu",
               "silu");
  EXPECT_EQ(parse(with({{"hidden_act", "swish"}})).hiddenSize, 64u);
}

TEST(ModelConfig, refusesKeysThatChangeTheMathematics) {
  const std::pair<const char *, ordered_json> cases[] = {
      {"quantization_config", {{"bits", 4}}},
      {"quantization", {{"bits", 4}}},
      {"num_local_experts", 8},
      {"logit_scale", 0.5},
      {"embedding_multiplier", 12},
      {"final_logit_softcapping", 30.0},
      {"attn_logit_softcapping", 50.0},
      {"clip_qkv", 8},
      {"partial_rotary_factor", 0.5},
      {"use_qk_norm", true},
      {"attention_chunk_size", 8192},
      {"is_causal", false},
      {"pruned_heads", {{"0", {1}}}},
      {"rope_interleaved", true},
  };
  for (const auto &[key, value] : cases)
    EXPECT_ERROR(parse(with({{key, value}})), key, value.dump(),
                 "not supported");
  // The values that change nothing.
  const ModelConfig config =
      parse(with({{"quantization_config", nullptr},
                  {"num_local_experts", 0},
                  {"logit_scale", 1.0},
                  {"partial_rotary_factor", 1.0},
                  {"rope_interleaved", false},
                  {"pruned_heads", ordered_json::object()},
                  {"clip_qkv", nullptr}}));
  EXPECT_TRUE(config.warnings.empty());
}

TEST(ModelConfig, refusesAFloodOfKeys) {
  std::string keys;
  for (int i = 0; i < 10'001; ++i)
    keys += fmt::format("{}\"k{}\":0", i ? "," : "", i);
  EXPECT_ERROR(ModelConfig::parse("{" + keys + "}", "config.json"),
               "config.json", "10000 keys");
}

TEST(ModelConfig, warnsAboutUnknownKeys) {
  const ModelConfig config =
      parse(with({{"frobnicate", 1}, {"use_cache", true}, {"gone", nullptr}}));
  EXPECT_EQ(config.unknownKeys, std::vector<std::string>{"frobnicate"});
  EXPECT_TRUE(hasAll(config.warnings.at(0), {"frobnicate"}));
}

TEST(ModelConfig, refusesWrongTypesAndRanges) {
  EXPECT_ERROR(parse(with({{"hidden_size", "64"}})), "config.json",
               "\"hidden_size\" is \"64\"", "an integer");
  EXPECT_ERROR(parse(with({{"hidden_size", -64}})), "hidden_size", "-64");
  EXPECT_ERROR(parse(with({{"hidden_size", 64.5}})), "hidden_size");
  EXPECT_ERROR(parse(with({{"num_hidden_layers", 4000000000u}})),
               "num_hidden_layers", "10000");
  EXPECT_ERROR(parse(with({{"tie_word_embeddings", 1}})), "true or false");
  EXPECT_ERROR(parse(with({{"rms_norm_eps", "x"}})), "rms_norm_eps",
               "a number");
  EXPECT_ERROR(parse(with({{"rms_norm_eps", 0}})), "rms_norm_eps is 0");
  EXPECT_ERROR(parse(with({{"eos_token_id", "</s>"}})), "eos_token_id",
               "integer");
  EXPECT_ERROR(parse(with({{"eos_token_id", {"x"}}})),
               "list of 32-bit integers");
  EXPECT_ERROR(parse(with({{"hidden_act", 1}})), "a string");
  EXPECT_ERROR(parse(with({{"layer_types", {1}}})), "list of strings");
  EXPECT_ERROR(ModelConfig::parse("[1]", "config.json"), "object");
  EXPECT_ERROR(ModelConfig::parse("{\"a\":1,\"a\":2}", "config.json"), "\"a\"",
               "twice");
}

std::vector<uint64_t> windows(const ModelConfig &config) {
  std::vector<uint64_t> result;
  for (const LayerConfig &layer : config.layers)
    result.push_back(layer.window);
  return result;
}

TEST(ModelConfig, slidingWindowsByFamily) {
  using List = std::vector<uint64_t>;
  EXPECT_EQ(windows(parse(base("mistral"))), (List{4096, 4096, 4096, 4096}));
  EXPECT_EQ(windows(parse(with({{"sliding_window", nullptr}}, "mistral"))),
            (List{0, 0, 0, 0}));
  // Present but switched off.
  EXPECT_EQ(windows(parse(with({{"sliding_window", 32}}, "qwen2"))),
            (List{0, 0, 0, 0}));
  EXPECT_EQ(windows(parse(with({{"sliding_window", 32},
                                {"use_sliding_window", true},
                                {"max_window_layers", 3}},
                               "qwen2"))),
            (List{0, 0, 0, 32}));
  EXPECT_EQ(windows(parse(with({{"sliding_window", 32},
                                {"use_sliding_window", true},
                                {"layer_types",
                                 {"sliding_attention", "full_attention",
                                  "sliding_attention", "full_attention"}}},
                               "qwen3"))),
            (List{32, 0, 32, 0}));
  const ordered_json full = ordered_json::array(
      {"full_attention", "full_attention", "full_attention"});
  EXPECT_ERROR(parse(with({{"layer_types", full}})), "layer_types has 3",
               "num_hidden_layers is 4");
  EXPECT_ERROR(parse(with({{"layer_types",
                            {"full_attention", "linear_attention",
                             "full_attention", "full_attention"}}})),
               "linear_attention", "not supported");
  EXPECT_ERROR(parse(with({{"layer_types",
                            {"full_attention", "sliding_attention",
                             "full_attention", "full_attention"}}})),
               "layer_types[1]", "no sliding window", "llama");
}

TEST(ModelConfig, layersWithoutRope) {
  const auto rope = [](const ModelConfig &config) {
    std::vector<bool> result;
    for (const LayerConfig &layer : config.layers)
      result.push_back(layer.usesRope);
    return result;
  };
  EXPECT_EQ(rope(parse(base("smollm3"))),
            (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(rope(parse(with({{"no_rope_layer_interval", 2}}, "smollm3"))),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(rope(parse(with({{"no_rope_layers", {0, 1, 1, 0}}}, "smollm3"))),
            (std::vector<bool>{false, true, true, false}));
  EXPECT_ERROR(parse(with({{"no_rope_layers", {1}}}, "smollm3")),
               "no_rope_layers has 1");
  EXPECT_ERROR(parse(with({{"no_rope_layers", {1, 2, 1, 1}}}, "smollm3")),
               "no_rope_layers[1] is 2");
  // SmolLM3 slides only where there is no rotary embedding.
  EXPECT_EQ(
      windows(parse(with({{"sliding_window", 16}, {"use_sliding_window", true}},
                         "smollm3"))),
      (std::vector<uint64_t>{0, 0, 0, 16}));
}

TEST(ModelConfig, olmo2NormsAfterTheBlock) {
  const ModelConfig config = parse(base("olmo2"));
  EXPECT_TRUE(config.normAfterBlock);
  EXPECT_EQ(config.qkNorm, QkNorm::Projection);
}

// Reference values: the closed form, computed apart in double precision.
TEST(Rope, llama3Frequencies) {
  const ordered_json scaling = {{"factor", 8.0},
                                {"high_freq_factor", 4.0},
                                {"low_freq_factor", 1.0},
                                {"original_max_position_embeddings", 8192}};
  // Case C4: either key names the kind.
  for (const char *key : {"type", "rope_type"}) {
    ordered_json named = scaling;
    named[key] = "llama3";
    const ModelConfig config =
        parse(with({{"rope_scaling", named}, {"rope_theta", 500000.0}}));
    const auto f = config.rope.inverseFrequencies(128);
    ASSERT_EQ(f.size(), 64u);
    EXPECT_EQ(f[0], 1.0f);
    EXPECT_FLOAT_EQ(f[10], 0.128687373f);
    EXPECT_FLOAT_EQ(f[28], 0.00321144599f); // the last one kept
    EXPECT_FLOAT_EQ(f[29], 0.00216657076f); // blended
    EXPECT_FLOAT_EQ(f[33], 0.00031269375f);
    EXPECT_FLOAT_EQ(f[35], 0.000764496988f / 8);
    EXPECT_FLOAT_EQ(f[63], 3.06892599e-07f);
    EXPECT_EQ(config.rope.attentionScaling, 1.0);
  }
}

TEST(Rope, yarnFrequencies) {
  const ModelConfig config =
      parse(with({{"rope_scaling",
                   {{"type", "yarn"},
                    {"factor", 4.0},
                    {"original_max_position_embeddings", 32768}}},
                  {"rope_theta", 1e6}}));
  const auto f = config.rope.inverseFrequencies(128);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[20], 0.0133352143f);
  EXPECT_FLOAT_EQ(f[25], 0.00413173802f);
  EXPECT_FLOAT_EQ(f[35], 0.000246258407f);
  EXPECT_FLOAT_EQ(f[39], 6.49039432e-05f);
  EXPECT_FLOAT_EQ(f[45], 1.51074098e-05f);
  EXPECT_NEAR(config.rope.attentionScaling, 1.138629436111989, 1e-12);
}

TEST(Rope, yarnParameters) {
  const auto scaling = [](const ordered_json &more) {
    ordered_json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
    yarn.update(more);
    return parse(with({{"rope_parameters", yarn}})).rope;
  };
  EXPECT_EQ(scaling(ordered_json::object()).originalMaxPositions,
            256u); // the model's own
  EXPECT_EQ(scaling({{"attention_factor", 1.25}}).attentionScaling, 1.25);
  EXPECT_EQ(
      scaling({{"mscale", 0.7}, {"mscale_all_dim", 0.7}}).attentionScaling,
      1.0);
  EXPECT_EQ(scaling({{"beta_fast", 16}}).betaFast, 16);
  EXPECT_FALSE(scaling({{"truncate", false}}).truncate);
  ordered_json json = with({{"rope_scaling", {{"type", "yarn"}}}});
  json.erase("max_position_embeddings");
  EXPECT_ERROR(parse(json), "original_max_position_embeddings");
}

TEST(Rope, linearAndDefault) {
  const ModelConfig config =
      parse(with({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}));
  EXPECT_FLOAT_EQ(config.rope.inverseFrequencies(16)[0], 0.5f);
  EXPECT_EQ(config.rope.inverseFrequencies(16).size(), 8u);
  const ModelConfig plain =
      parse(with({{"rope_parameters",
                   {{"rope_type", "default"}, {"rope_theta", 500.0}}}}));
  EXPECT_EQ(plain.rope.theta, 500);
  EXPECT_FLOAT_EQ(plain.rope.inverseFrequencies(4)[1],
                  static_cast<float>(1 / std::sqrt(500.0)));
}

TEST(Rope, refusesByName) {
  const auto scaling = [](const ordered_json &value) {
    return with({{"rope_scaling", value}});
  };
  for (const char *kind : {"dynamic", "longrope", "mrope"})
    EXPECT_ERROR(parse(scaling({{"type", kind}, {"factor", 2}})),
                 std::string("\"") + kind + "\"", "not supported");
  EXPECT_ERROR(parse(scaling({{"type", "linear"}, {"rope_type", "yarn"}})),
               "rope_type is \"yarn\"", "type is \"linear\"");
  EXPECT_ERROR(parse(scaling({{"type", "linear"}})), "factor", "missing");
  EXPECT_ERROR(parse(scaling({{"type", "linear"}, {"factor", -1}})), "factor",
               "-1");
  EXPECT_ERROR(parse(scaling({{"type", "default"}, {"mrope_section", {1}}})),
               "mrope_section");
  EXPECT_ERROR(parse(scaling({{"full_attention", {{"rope_type", "default"}}}})),
               "full_attention", "differ by kind of layer");
  EXPECT_ERROR(parse(scaling("linear")), "rope_scaling", "an object");
  EXPECT_ERROR(parse(scaling({{"rope_type", "llama3"}, {"factor", 8}})),
               "low_freq_factor", "missing");
  EXPECT_ERROR(parse(scaling({{"rope_type", "llama3"},
                              {"factor", 8},
                              {"low_freq_factor", 4},
                              {"high_freq_factor", 4},
                              {"original_max_position_embeddings", 64}})),
               "high_freq_factor 4", "must exceed");
  EXPECT_ERROR(parse(scaling({{"partial_rotary_factor", 0.5}})),
               "partial_rotary_factor");
  EXPECT_ERROR(parse(with({{"rope_scaling", {{"type", "default"}}},
                           {"rope_parameters", {{"rope_type", "linear"}}}})),
               "rope_parameters and rope_scaling differ");
  // Case C4.
  EXPECT_ERROR(parse(scaling({{"factor", 2}})), "rope_scaling", "factor",
               "\"rope_type\" is missing");
  EXPECT_ERROR(parse(scaling({{"low_freq_factor", 1}})), "low_freq_factor",
               "\"rope_type\" is missing");
  EXPECT_ERROR(parse(with({{"rope_theta", 500},
                           {"rope_parameters", {{"rope_theta", 1000}}}})),
               "rope_theta is 500", "rope_parameters.rope_theta is 1000");
  EXPECT_ERROR(parse(with({{"rope_theta", 0}})), "rope_theta", "positive");
  EXPECT_ERROR(parse(with({{"rope_theta", 1}})), "rope_theta is 1");
}

ordered_json stemSection(const ordered_json &changes = ordered_json::object()) {
  ordered_json section = {
      {"version", 1},
      {"base",
       {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM", "y"}}}},
      {"layers", {3, 1}},
      {"rank", 0},
      {"select", false},
      {"row_dtype", "bfloat16"}};
  section.update(changes);
  return with({{"stem", section}}, "stem_llama");
}

TEST(StemSection, isRead) {
  const ModelConfig config = parse(stemSection());
  EXPECT_EQ(config.family, ModelFamily::Qwen3);
  ASSERT_TRUE(config.stem);
  EXPECT_EQ(config.stem->layers, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(config.stem->rowDType, "bfloat16");
  EXPECT_TRUE(config.layers[1].isStem);
  EXPECT_FALSE(config.layers[2].isStem);
}

TEST(StemSection, refusesWhatItDoesNotKnow) {
  EXPECT_ERROR(parse(stemSection({{"version", 2}})), "stem.version is 2",
               "reads 1");
  EXPECT_ERROR(parse(stemSection({{"version", nullptr}})), "version",
               "missing");
  EXPECT_ERROR(parse(stemSection({{"extra", 1}})), "stem.extra");
  EXPECT_ERROR(
      parse(stemSection({{"base", {{"model_type", "llama"}, {"more", 1}}}})),
      "stem.base.more");
  EXPECT_ERROR(parse(stemSection({{"base", {{"architectures", {"a", "b"}}}}})),
               "stem.base.model_type");
  EXPECT_ERROR(parse(stemSection({{"base", 1}})), "stem.base");
  EXPECT_ERROR(parse(stemSection({{"base", {{"model_type", "gpt2"}}}})),
               "gpt2");
  EXPECT_ERROR(parse(stemSection({{"layers", {4, 1}}})), "layer 4", "0 to 3");
  EXPECT_ERROR(parse(stemSection({{"layers", {-1, 1}}})), "-1");
  EXPECT_ERROR(parse(stemSection({{"layers", {1, 1}}})), "1 twice");
  EXPECT_ERROR(parse(stemSection({{"layers", ordered_json::array()}})),
               "missing or empty");
  EXPECT_ERROR(parse(stemSection({{"row_dtype", "int4"}})), "int4", "uint8");
  EXPECT_ERROR(parse(stemSection({{"provenance", 1}})), "provenance");
  EXPECT_ERROR(parse(base("stem_llama")), "no \"stem\" section");
  EXPECT_ERROR(parse(with({{"stem", {{"version", 1}}}})),
               "model_type is not \"stem_llama\"");
}

TEST(StemSection, oneRankHoldsForAllLayers) {
  const StemSection stem = *parse(stemSection({{"rank", 8}})).stem;
  EXPECT_EQ(stem.ranks, (std::vector<uint64_t>{8, 8}));
  EXPECT_EQ(stem.rankOf(1), 8u);
  EXPECT_EQ(stem.rankOf(2), 0u);
  EXPECT_EQ(stem.commonRank(), 8u);
  EXPECT_EQ(parse(stemSection({{"rank", nullptr}})).stem->commonRank(), 0u);
  // The hidden size, which is no more than a low-rank term may have.
  EXPECT_EQ(parse(stemSection({{"rank", 64}})).stem->rankOf(3), 64u);
}

// The section's layers are 3 and 1, in this order.
TEST(StemSection, aListGivesEachLayerItsRank) {
  const StemSection stem = *parse(stemSection({{"rank", {16, 4}}})).stem;
  EXPECT_EQ(stem.layers, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(stem.ranks, (std::vector<uint64_t>{4, 16}));
  EXPECT_EQ(stem.rankOf(0), 0u);
  EXPECT_EQ(stem.rankOf(1), 4u);
  EXPECT_EQ(stem.rankOf(2), 0u);
  EXPECT_EQ(stem.rankOf(3), 16u);
  EXPECT_EQ(stem.rankOf(4), 0u);
  EXPECT_EQ(stem.commonRank(), std::nullopt);
  EXPECT_EQ(parse(stemSection({{"rank", {0, 64}}})).stem->rankOf(1), 64u);
  EXPECT_EQ(parse(stemSection({{"rank", {4, 4}}})).stem->commonRank(), 4u);
}

TEST(StemSection, refusesRanks) {
  const auto refuse = [](const ordered_json &rank, auto... parts) {
    EXPECT_ERROR(parse(stemSection({{"rank", rank}})), "config.json", "stem",
                 "rank", parts...);
  };
  const auto list = [](auto... ranks) {
    return ordered_json::array({ranks...});
  };
  refuse(list(), "0 entries", "\"layers\" 2");
  refuse(list(4), "1 entries", "\"layers\" 2", "one number for all");
  refuse(list(4, 4, 4), "3 entries");
  refuse(list(4, -1), "-1 at 1", "an integer from 0");
  refuse(list(4.0, 4), "4.0 at 0", "an integer");
  refuse(list(4, "4"), "\"4\" at 1", "an integer");
  refuse(list(4, nullptr), "null at 1", "an integer");
  refuse(list(4, true), "true at 1", "an integer");
  refuse(list(4, list(4)), "at 1", "an integer");
  refuse(list(4, uint64_t(1) << 32), "4294967296 at 1", "to 4294967295");
  refuse(list(65, 4), "65 for layer 3", "hidden_size 64");
  refuse(65, "65 for layer 1", "hidden_size 64");
  refuse(-1, "-1", "an integer from 0");
  refuse(4.5, "4.5", "an integer");
  refuse("4", "\"4\"", "an integer");
}

TEST(StemSection, layersAreAddedInPlace) {
  StemSection stem;
  stem.layers = {4};
  stem.addLayer(6, 16);
  stem.addLayer(1, 8);
  stem.addLayer(5, 0);
  EXPECT_EQ(stem.layers, (std::vector<uint64_t>{1, 4, 5, 6}));
  EXPECT_EQ(stem.ranks, (std::vector<uint64_t>{8, 0, 0, 16}));
}

// Folders that one rank describes keep their bytes.
TEST(StemSection, writesAListWhereRanksDiffer) {
  const std::string text = base().dump();
  StemSection stem;
  stem.baseModelType = "llama";
  stem.rowDType = "float32";
  const auto written = [&] {
    return ordered_json::parse(configWithStem(text, stem))["stem"]["rank"];
  };
  stem.layers = {1};
  EXPECT_EQ(written(), 0);
  stem.ranks = {8};
  EXPECT_EQ(written(), 8);
  stem.addLayer(2, 8);
  EXPECT_EQ(written(), 8);
  stem.addLayer(0, 4);
  EXPECT_EQ(written(), ordered_json::array({4, 8, 8}));
  EXPECT_EQ(ModelConfig::parse(configWithStem(text, stem), "out").stem->ranks,
            stem.ranks);
}

// Case C14: every other key stays, in its order.
TEST(StemSection, isWrittenBack) {
  const std::string text = with({{"frobnicate", {1, 2}}}, "qwen3").dump();
  StemSection stem;
  stem.baseModelType = "qwen3";
  stem.baseArchitectures = {"Qwen3ForCausalLM"};
  stem.layers = {1, 2};
  stem.rowDType = "float32";
  stem.provenance = R"({"command":"convert"})";
  const std::string written = configWithStem(text, stem);
  const ordered_json json = ordered_json::parse(written);
  EXPECT_EQ(json["model_type"], "stem_llama");
  EXPECT_EQ(json["architectures"],
            ordered_json::array({"StemLlamaForCausalLM"}));
  EXPECT_EQ(json["auto_map"]["AutoModelForCausalLM"],
            "modeling_stem_llama.StemLlamaForCausalLM");
  EXPECT_EQ(json["stem"]["base"]["architectures"],
            ordered_json::array({"Qwen3ForCausalLM"}));
  const ordered_json original = ordered_json::parse(text);
  for (const auto &[key, value] : original.items())
    if (key != "model_type")
      EXPECT_EQ(json[key], value) << key;
  EXPECT_EQ(json.begin().key(), "model_type");
  const ModelConfig config = ModelConfig::parse(written, "out");
  EXPECT_EQ(config.stem->layers, stem.layers);
  EXPECT_EQ(config.stem->provenance, stem.provenance);
  EXPECT_EQ(config.family, ModelFamily::Qwen3);
  EXPECT_ERROR(configWithStem(R"({"text_config":{}})", stem), "text_config");
}

TEST(ModelConfig, dtypeIsWrittenUnderTheKeyInUse) {
  EXPECT_EQ(ordered_json::parse(
                configWithDType(R"({"torch_dtype":"float32"})", DType::BF16)),
            ordered_json({{"torch_dtype", "bfloat16"}}));
  EXPECT_EQ(ordered_json::parse(configWithDType("{}", DType::F32)),
            ordered_json({{"dtype", "float32"}}));
}

TEST(ModelConfig, endTokensOfTheGenerationConfig) {
  ModelConfig config;
  config.vocabSize = 10;
  EXPECT_EQ(GenerationConfig::parse(R"({"eos_token_id":[1,2]})", "g", config)
                .endTokens,
            (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(
      GenerationConfig::parse(R"({"eos_token_id":5})", "g", config).endTokens,
      std::vector<int64_t>{5});
  EXPECT_TRUE(GenerationConfig::parse("{}", "g", config).endTokens.empty());
  EXPECT_ERROR(
      GenerationConfig::parse(R"({"eos_token_id":"x"})", "g.json", config)
          .endTokens,
      "g.json", "eos_token_id");
  EXPECT_TRUE(config.warnings.empty());
}

TEST(ModelConfig, penaltyOfTheGenerationConfig) {
  ModelConfig config;
  EXPECT_FALSE(GenerationConfig::parse("{}", "g", config).repetitionPenalty);
  const std::string text = generationConfigWithPenalty(
      R"({"eos_token_id":2,"top_k":5})", "g.json", 1.1);
  EXPECT_EQ(
      ordered_json::parse(text),
      ordered_json(
          {{"eos_token_id", 2}, {"top_k", 5}, {"repetition_penalty", 1.1}}));
  EXPECT_EQ(GenerationConfig::parse(text, "g", config).repetitionPenalty, 1.1);
  EXPECT_ERROR(
      GenerationConfig::parse(R"({"repetition_penalty":0})", "g.json", config),
      "g.json", "repetition_penalty", "is 0 but must be positive");
  EXPECT_ERROR(GenerationConfig::parse(R"({"repetition_penalty":"x"})",
                                       "g.json", config),
               "g.json", "repetition_penalty", "a number");
}

TEST(ModelConfig, endTokensWithoutARow) {
  ModelConfig config;
  config.vocabSize = 10;
  EXPECT_EQ(
      GenerationConfig::parse(R"({"eos_token_id":[3,10,-1]})", "g.json", config)
          .endTokens,
      std::vector<int64_t>{3});
  ASSERT_EQ(config.warnings.size(), 2u);
  EXPECT_TRUE(hasAll(config.warnings[0],
                     {"g.json", "eos_token_id", "10 is no", "10 rows"}));
  EXPECT_TRUE(hasAll(config.warnings[1], {"-1 is no"}));
  const ModelConfig own = parse(with({{"eos_token_id", {7, 100}}}));
  EXPECT_EQ(own.eosTokens, std::vector<int64_t>{7});
  ASSERT_EQ(own.warnings.size(), 1u);
  EXPECT_TRUE(hasAll(own.warnings[0], {"eos_token_id", "100 is no id"}));
}

// Numbers beyond int64_t are unsigned in JSON; as signed ones they would wrap.
TEST(ModelConfig, integersThatDoNotFit) {
  for (const uint64_t value :
       {uint64_t(1) << 31, uint64_t(1) << 63, UINT64_MAX}) {
    EXPECT_ERROR(parse(with({{"eos_token_id", value}})), "eos_token_id",
                 "a 32-bit integer");
    EXPECT_ERROR(parse(with({{"eos_token_id", {1, value}}})), "eos_token_id",
                 "32-bit integers");
    EXPECT_ERROR(parse(with({{"bos_token_id", value}})), "bos_token_id",
                 "a 32-bit integer");
  }
}

} // namespace
