//===- GgufCheckpointTest.cpp - A GGUF file as a Hugging Face checkpoint --===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestFiles.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Model/Safetensors.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

using namespace stem;
using namespace stem::test;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

/// The exporter's name of a tensor.
std::string ggufName(std::string name) {
  const std::pair<std::string, std::string> replacements[] = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
  };
  for (const auto &[from, to] : replacements)
    if (const size_t at = name.find(from); at != std::string::npos)
      name.replace(at, from.size(), to);
  return name;
}

/// What the exporter does to q and k of a llama model: rows [heads, 2, half]
/// are transposed to [heads, half, 2].
std::string interleave(const TensorView &view, uint64_t heads) {
  const uint64_t rows = view.shape[0], half = rows / heads / 2;
  const uint64_t rowBytes = view.data.size() / rows;
  const char *source = reinterpret_cast<const char *>(view.data.data());
  std::string result;
  for (uint64_t h = 0; h < heads; ++h)
    for (uint64_t i = 0; i < half; ++i)
      for (uint64_t j = 0; j < 2; ++j)
        result.append(source + ((h * 2 + j) * half + i) * rowBytes, rowBytes);
  return result;
}

/// A reference model as GGUF, F32, metadata to be added by the test.
GgufBuilder exportModel(const std::string &folder, const std::string &arch) {
  const fs::path from = fs::path(STEM_TEST_DATA) / "golden" / folder;
  const auto config = ordered_json::parse(readText(from / "config.json"));
  GgufBuilder builder;
  builder.string("general.architecture", arch);
  builder.u32(arch + ".embedding_length", config["hidden_size"]);
  builder.u32(arch + ".feed_forward_length", config["intermediate_size"]);
  builder.u32(arch + ".block_count", config["num_hidden_layers"]);
  builder.u32(arch + ".attention.head_count", config["num_attention_heads"]);
  builder.u32(arch + ".attention.head_count_kv", config["num_key_value_heads"]);
  builder.f32(arch + ".attention.layer_norm_rms_epsilon",
              config["rms_norm_eps"]);
  builder.u32(arch + ".context_length", config["max_position_embeddings"]);
  builder.u32("tokenizer.ggml.bos_token_id", 1);
  builder.u32("tokenizer.ggml.eos_token_id", 2);
  if (config.contains("head_dim")) {
    builder.u32(arch + ".attention.key_length", config["head_dim"]);
    builder.u32(arch + ".attention.value_length", config["head_dim"]);
    builder.u32(arch + ".rope.dimension_count", config["head_dim"]);
  }
  const auto file = SafetensorsFile::open(from / "model.safetensors");
  for (const TensorView &view : file.tensors()) {
    const std::string name = ggufName(view.name);
    const std::vector<uint64_t> dimensions(view.shape.rbegin(),
                                           view.shape.rend());
    const bool isQuery = name.find("attn_q.") != std::string::npos;
    const bool isKey = name.find("attn_k.") != std::string::npos;
    if (arch == "llama" && (isQuery || isKey))
      builder.tensor(name, dimensions, 0,
                     bytesOf(interleave(view, isQuery ? 4 : 2)));
    else
      builder.tensor(name, dimensions, 0, view.data);
  }
  return builder;
}

Checkpoint open(const TemporaryFolder &folder, const GgufBuilder &builder) {
  writeText(folder / "m.gguf", builder.build());
  return Checkpoint::open(folder / "m.gguf");
}

void expectSameTensors(const Checkpoint &model, const std::string &name) {
  const auto file = SafetensorsFile::open(fs::path(STEM_TEST_DATA) / "golden" /
                                          name / "model.safetensors");
  ASSERT_EQ(model.tensors().tensors().size(), file.tensors().size());
  for (const TensorView &view : file.tensors()) {
    const TensorInfo &info = model.tensors().get(view.name);
    ASSERT_EQ(info.shape, view.shape);
    std::vector<float> whole(info.elements()), rows(info.elements());
    model.tensors().readF32(view.name, 0, info.rows(), whole.data());
    ASSERT_EQ(std::memcmp(whole.data(), view.data.data(), view.data.size()), 0)
        << view.name;
    for (uint64_t row = 0; row < info.rows(); ++row)
      model.tensors().readF32(view.name, row, 1,
                              rows.data() + row * info.rowElements());
    ASSERT_EQ(rows, whole) << view.name;
  }
}

// The permutation of q and k is undone: every tensor equals the original.
TEST(GgufCheckpoint, llamaComesBackAsItWas) {
  const TemporaryFolder folder;
  const Checkpoint model = open(folder, exportModel("llama_gqa", "llama"));
  expectSameTensors(model, "llama_gqa");
  const ModelConfig &config = model.config();
  EXPECT_EQ(config.family, ModelFamily::Llama);
  EXPECT_EQ(config.hiddenSize, 32u);
  EXPECT_EQ(config.intermediateSize, 80u);
  EXPECT_EQ(config.layerCount(), 3u);
  EXPECT_EQ(config.heads, 4u);
  EXPECT_EQ(config.kvHeads, 2u);
  EXPECT_EQ(config.headDim, 8u);
  EXPECT_EQ(config.vocabSize, 96u);
  EXPECT_EQ(config.maxPositions, 256u);
  EXPECT_EQ(config.rmsNormEps, 1e-5);
  EXPECT_EQ(config.dtype, DType::F32);
  EXPECT_FALSE(config.tieEmbeddings);
  EXPECT_EQ(model.endTokens(), std::vector<int64_t>{2});
  EXPECT_NE(model.gguf(), nullptr);
  EXPECT_TRUE(model.warnings().empty());
  model.tensors().release("model.layers.0.self_attn.q_proj.weight");
  EXPECT_TRUE(
      model.tensors().bytes("model.layers.0.self_attn.q_proj.weight").empty());
}

TEST(GgufCheckpoint, qwenFamilies) {
  const TemporaryFolder folder;
  const Checkpoint qwen2 = open(folder, exportModel("qwen2_qkv_bias", "qwen2"));
  expectSameTensors(qwen2, "qwen2_qkv_bias");
  EXPECT_TRUE(qwen2.weights().isHeadTied);
  const Checkpoint qwen3 = open(folder, exportModel("qwen3_qk_norm", "qwen3"));
  expectSameTensors(qwen3, "qwen3_qk_norm");
  EXPECT_EQ(qwen3.config().headDim, 16u);
}

TEST(GgufCheckpoint, interleavedBiasIsPutInOrder) {
  const TemporaryFolder folder;
  GgufBuilder builder = exportModel("llama_gqa", "llama");
  std::vector<float> ordered(32);
  for (size_t i = 0; i < ordered.size(); ++i)
    ordered[i] = static_cast<float>(i);
  const TensorView view{"b", DType::F32, {32}, bytesOf(ordered)};
  const std::string bytes = interleave(view, 4);
  for (int layer = 0; layer < 3; ++layer)
    builder.tensor(fmt::format("blk.{}.attn_q.bias", layer), {32}, 0,
                   bytesOf(bytes));
  const Checkpoint model = open(folder, builder);
  std::vector<float> read(32);
  model.tensors().readF32("model.layers.0.self_attn.q_proj.bias", 0, 1,
                          read.data());
  EXPECT_EQ(read, ordered);
}

TEST(GgufCheckpoint, slidingWindowMakesItMistral) {
  const TemporaryFolder folder;
  GgufBuilder builder = exportModel("mistral_sliding", "llama");
  builder.u32("llama.attention.sliding_window", 8);
  const Checkpoint model = open(folder, builder);
  EXPECT_EQ(model.config().family, ModelFamily::Mistral);
  EXPECT_EQ(model.config().layers[2].window, 8u);
}

TEST(GgufCheckpoint, llama3ScalingIsRecognised) {
  const TemporaryFolder folder;
  RopeConfig plain, scaled;
  scaled.kind = RopeKind::Llama3;
  scaled.factor = 32;
  scaled.originalMaxPositions = 8192;
  scaled.theta = plain.theta = 500000;
  const auto a = plain.inverseFrequencies(16),
             b = scaled.inverseFrequencies(16);
  std::vector<float> divisors;
  for (size_t i = 0; i < a.size(); ++i)
    divisors.push_back(a[i] / b[i]);
  const auto build = [&] {
    GgufBuilder builder = exportModel("llama3_rope_tied_headdim", "llama");
    builder.f32("llama.rope.freq_base", 500000);
    builder.tensor("rope_freqs.weight", {8}, 0, bytesOf(divisors));
    return builder;
  };
  const Checkpoint model = open(folder, build());
  EXPECT_EQ(model.config().rope.kind, RopeKind::Llama3);
  EXPECT_EQ(model.config().rope.factor, 32);
  EXPECT_EQ(model.config().rope.originalMaxPositions, 8192u);
  EXPECT_EQ(model.config().rope.inverseFrequencies(16), b);
  divisors[3] *= 1.01f;
  EXPECT_ERROR(open(folder, build()), "rope_freqs.weight", "entry 3");
  divisors.pop_back();
  GgufBuilder builder = exportModel("llama3_rope_tied_headdim", "llama");
  builder.tensor("rope_freqs.weight", {7}, 0, bytesOf(divisors));
  EXPECT_ERROR(open(folder, builder), "rope_freqs.weight", "[7]", "[8]");
}

TEST(GgufCheckpoint, otherScalings) {
  const TemporaryFolder folder;
  GgufBuilder yarn = exportModel("llama_gqa", "llama");
  yarn.string("llama.rope.scaling.type", "yarn");
  yarn.f32("llama.rope.scaling.factor", 4);
  yarn.u32("llama.rope.scaling.original_context_length", 64);
  EXPECT_EQ(open(folder, yarn).config().rope.kind, RopeKind::Yarn);
  GgufBuilder linear = exportModel("llama_gqa", "llama");
  linear.string("llama.rope.scaling.type", "linear");
  linear.f32("llama.rope.scaling.factor", 2);
  EXPECT_EQ(open(folder, linear).config().rope.factor, 2);
  GgufBuilder other = exportModel("llama_gqa", "llama");
  other.string("llama.rope.scaling.type", "longrope");
  EXPECT_ERROR(open(folder, other), "llama.rope.scaling.type", "longrope");
}

TEST(GgufCheckpoint, refusesWhatItCannotCompute) {
  const TemporaryFolder folder;
  const auto with = [&](auto change) {
    GgufBuilder builder = exportModel("llama_gqa", "llama");
    change(builder);
    return open(folder, builder);
  };
  EXPECT_ERROR(with([](GgufBuilder &b) { b.u32("llama.expert_count", 8); }),
               "llama.expert_count", "not supported");
  EXPECT_ERROR(with([](GgufBuilder &b) { b.f32("llama.logit_scale", 2); }),
               "llama.logit_scale");
  EXPECT_ERROR(with([](GgufBuilder &b) {
                 b.tensor("blk.0.attn_sinks", {1}, 0, bytesOf(raw(1.0f)));
               }),
               "blk.0.attn_sinks");
  EXPECT_ERROR(with([](GgufBuilder &b) { b.u32("split.count", 3); }),
               "one of 3 parts", "--merge");
  GgufBuilder bare;
  EXPECT_ERROR(open(folder, bare), "general.architecture");
  bare.string("general.architecture", "gemma");
  EXPECT_ERROR(open(folder, bare), "\"gemma\"", "llama");
  GgufBuilder empty;
  empty.string("general.architecture", "llama");
  EXPECT_ERROR(open(folder, empty), "llama.embedding_length", "missing");
  GgufBuilder window = exportModel("qwen3_qk_norm", "qwen3");
  window.u32("qwen3.attention.sliding_window", 8);
  EXPECT_ERROR(open(folder, window), "qwen3.attention.sliding_window");
}

TEST(GgufCheckpoint, generationConfigHasEveryEnd) {
  GgufBuilder builder;
  builder.u32("tokenizer.ggml.bos_token_id", 1);
  builder.u32("tokenizer.ggml.eos_token_id", 2);
  builder.u32("tokenizer.ggml.eot_token_id", 7);
  const std::string bytes = builder.build();
  const auto json = ordered_json::parse(
      ggufGenerationConfigText(GgufFile::parse(bytesOf(bytes), "x")));
  EXPECT_EQ(json["bos_token_id"], 1);
  EXPECT_EQ(json["eos_token_id"], ordered_json::array({2, 7}));
}

// Quantised rows are decoded as they are read, in any piece.
TEST(GgufCheckpoint, quantisedRowsStream) {
  GgufBuilder builder;
  builder.string("general.architecture", "qwen2");
  std::string blocks;
  for (int i = 0; i < 6; ++i) { // three rows of two blocks
    blocks += raw<uint16_t>(0x3c00);
    for (int j = 0; j < 32; ++j)
      blocks += static_cast<char>(i * 10 + j % 4);
  }
  builder.tensor("t", {64, 3}, 8, bytesOf(blocks));
  const std::string bytes = builder.build();
  const auto source = openGgufTensors(std::make_shared<const GgufFile>(
      GgufFile::parse(bytesOf(bytes), "x.gguf")));
  std::vector<float> rows(128);
  source->readF32("t", 1, 2, rows.data());
  for (int i = 0; i < 128; ++i)
    ASSERT_EQ(rows[i], (2 + i / 32) * 10 + i % 4);
  std::vector<uint16_t> rounded(64);
  source->readBF16("t", 2, 1, rounded.data());
  EXPECT_EQ(bf16ToF32(rounded[33]), 51.0f);
}

// The real file, where the environment gives it (it is not in the repository).
TEST(GgufCheckpoint, smolLM2HasAPlaceForEveryTensor) {
  const char *path = std::getenv("STEM_SMOLLM2_GGUF");
  if (!path)
    GTEST_SKIP() << "STEM_SMOLLM2_GGUF is not set";
  const Checkpoint model = Checkpoint::open(path);
  EXPECT_EQ(model.gguf()->tensors().size(), 272u);
  EXPECT_EQ(model.tensors().tensors().size(), 272u);
  EXPECT_EQ(model.weights().names().size(), 272u);
  EXPECT_TRUE(model.weights().ignored.empty());
  EXPECT_EQ(model.config().hiddenSize, 576u);
  EXPECT_EQ(model.config().layerCount(), 30u);
  EXPECT_EQ(model.config().rope.theta, 100000);
  std::vector<float> row(576);
  double squares = 0;
  for (uint64_t r = 0; r < 576; ++r) {
    model.tensors().readF32("model.layers.3.self_attn.q_proj.weight", r, 1,
                            row.data());
    for (const float x : row) {
      ASSERT_TRUE(std::isfinite(x));
      squares += static_cast<double>(x) * x;
    }
  }
  EXPECT_GT(squares, 100);
}

} // namespace
