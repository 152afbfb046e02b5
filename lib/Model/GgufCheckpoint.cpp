//===- GgufCheckpoint.cpp - A GGUF file as a Hugging Face checkpoint ------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileIO.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

using namespace stem;
using nlohmann::ordered_json;

namespace {

constexpr std::string_view ropeFactorsName = "rope_freqs.weight";

struct Architecture {
  std::string_view name; ///< also config.json's model_type
  std::string_view className;
  /// The exporter interleaved the two halves of each head's rows of q and k.
  bool isInterleaved;
};

constexpr Architecture architectures[] = {
    {"llama", "LlamaForCausalLM", true},
    {"qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "Qwen3ForCausalLM", false},
    {"olmo2", "Olmo2ForCausalLM", false},
    {"smollm3", "SmolLM3ForCausalLM", true},
};

const Architecture &architectureOf(const GgufFile &file) {
  const auto name = file.getString("general.architecture");
  if (!name)
    fail("{}: metadata \"general.architecture\" is missing", file.fileName());
  for (const Architecture &architecture : architectures)
    if (architecture.name == *name)
      return architecture;
  fail("{}: architecture \"{}\" is not supported; llama, qwen2, qwen3, olmo2 "
       "and "
       "smollm3 are",
       file.fileName(), printable(*name));
}

struct NamePair {
  std::string_view gguf;
  std::string_view huggingFace;
};

constexpr NamePair modelNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};

/// Without ".weight" and ".bias".
constexpr NamePair layerNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

/// "blk.3.attn_q.weight" in parts; empty parts for another form.
struct LayerTensorName {
  std::string_view layer, stem, suffix;
};

LayerTensorName splitLayerName(std::string_view name) {
  if (!name.starts_with("blk."))
    return {};
  name.remove_prefix(4);
  const size_t first = name.find('.'), last = name.rfind('.');
  if (first == std::string_view::npos || first == last)
    return {};
  return {name.substr(0, first), name.substr(first + 1, last - first - 1),
          name.substr(last + 1)};
}

/// The Hugging Face name; a name that has none stays as it is and is refused
/// later as a tensor without a role.
std::string huggingFaceName(const std::string &name) {
  for (const NamePair &pair : modelNames)
    if (pair.gguf == name)
      return std::string(pair.huggingFace);
  const LayerTensorName parts = splitLayerName(name);
  for (const NamePair &pair : layerNames)
    if (pair.gguf == parts.stem)
      return fmt::format("model.layers.{}.{}.{}", parts.layer, pair.huggingFace,
                         parts.suffix);
  return name;
}

/// Row r of a head (h) in Hugging Face order, half j, index i in the half, lies
/// at row h × headDim + 2 i + j of the file.
uint64_t interleavedRow(uint64_t row, uint64_t headDim) {
  const uint64_t inHead = row % headDim, half = headDim / 2;
  return row - inHead + 2 * (inHead % half) + inHead / half;
}

class GgufSource : public TensorSource {
public:
  explicit GgufSource(std::shared_ptr<const GgufFile> ggufFile);

private:
  /// The head dimension of the tensor's rows when the file has them
  /// interleaved, else 0.
  uint64_t interleavedHeadDim(const GgufTensor &tensor) const;

  std::span<const std::byte> stored(size_t tensor) const override {
    return found[tensor].data;
  }
  uint64_t storedRow(size_t tensor, uint64_t row) const override {
    const uint64_t headDim = found[tensor].headDim;
    return headDim ? interleavedRow(row, headDim) : row;
  }
  bool isReordered(size_t tensor) const override {
    return found[tensor].headDim != 0;
  }
  void releaseBytes(size_t, std::span<const std::byte> data) const override {
    file->release(data);
  }

  struct Found {
    TensorInfo info;
    std::span<const std::byte> data;
    uint64_t headDim;
    /// A bias put in order (few bytes); `data` points here.
    std::vector<std::byte> ordered;
  };

  static void orderBias(Found &bias);

  std::shared_ptr<const GgufFile> file;
  std::vector<Found> found;
};

uint64_t GgufSource::interleavedHeadDim(const GgufTensor &tensor) const {
  const Architecture &architecture = architectureOf(*file);
  const std::string_view part = splitLayerName(tensor.name).stem;
  if (!architecture.isInterleaved || (part != "attn_q" && part != "attn_k"))
    return 0;
  const std::string prefix = std::string(architecture.name) + ".attention.";
  const auto heads = file->getUnsigned(prefix + "head_count");
  const auto kvHeads = file->getUnsigned(prefix + "head_count_kv");
  const uint64_t count =
      (part == "attn_k" && kvHeads ? kvHeads : heads).value_or(0);
  const uint64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (count == 0 || rows == 0 || rows % count || rows / count % 2)
    fail("{}: tensor \"{}\": {} rows do not divide into {} heads of even size",
         file->fileName(), printable(tensor.name), rows, count);
  return rows / count;
}

void GgufSource::orderBias(Found &bias) {
  const uint64_t elementBytes = dtypeBlockBytes(bias.info.dtype);
  if (dtypeBlockElements(bias.info.dtype) != 1)
    fail("{}: tensor \"{}\": a bias of type {} is not supported",
         bias.info.file.string(), bias.info.name, dtypeName(bias.info.dtype));
  bias.ordered.resize(bias.data.size());
  for (uint64_t i = 0; i < bias.info.shape[0]; ++i)
    std::memcpy(bias.ordered.data() + i * elementBytes,
                bias.data.data() +
                    interleavedRow(i, bias.headDim) * elementBytes,
                elementBytes);
  bias.data = bias.ordered;
  bias.headDim = 0;
}

GgufSource::GgufSource(std::shared_ptr<const GgufFile> ggufFile)
    : file(std::move(ggufFile)) {
  origin = file->fileName();
  if (file->getUnsigned("split.count").value_or(0) > 1)
    fail("{}: one of {} parts of a split model; merge the parts with "
         "`llama-gguf-split --merge` first",
         origin, *file->getUnsigned("split.count"));
  for (const GgufTensor &tensor : file->tensors()) {
    if (tensor.name == ropeFactorsName)
      continue; // ggufConfigText accounts for it
    TensorInfo info{huggingFaceName(tensor.name), tensor.dtype, tensor.shape,
                    tensor.data.size(), origin};
    found.push_back(
        {std::move(info), tensor.data, interleavedHeadDim(tensor), {}});
    if (found.back().headDim && tensor.shape.size() == 1)
      orderBias(found.back());
  }
  std::sort(found.begin(), found.end(), [](const Found &a, const Found &b) {
    return a.info.name < b.info.name;
  });
  for (const Found &tensor : found) {
    if (!infos.empty() && infos.back().name == tensor.info.name)
      fail("{}: two tensors stand for \"{}\"", origin, tensor.info.name);
    infos.push_back(tensor.info);
  }
}

/// Metadata of one architecture to config.json.
class ConfigBuilder {
public:
  explicit ConfigBuilder(const GgufFile &file)
      : file(file), architecture(architectureOf(file)),
        prefix(std::string(architecture.name) + ".") {}

  std::string build();

private:
  std::optional<uint64_t> count(std::string_view key) {
    return file.getUnsigned(prefix + std::string(key));
  }
  std::optional<double> number(std::string_view key) {
    return file.getDouble(prefix + std::string(key));
  }
  template <typename T>
  T require(std::optional<T> value, std::string_view key) {
    if (!value)
      fail("{}: metadata \"{}{}\" is missing", file.fileName(), prefix, key);
    return *value;
  }

  void refuseUnknownKeys() const;
  void addSizes();
  void addRope();
  void addLlama3Rope(const GgufTensor &factors);
  void addTokens();
  void addType();

  const GgufFile &file;
  const Architecture &architecture;
  std::string prefix;
  ordered_json config;
  uint64_t headDim = 0;
  double theta = 0;
};

/// Nearly every key under the architecture's name is a hyper-parameter, so an
/// unknown one is refused rather than passed over.
void ConfigBuilder::refuseUnknownKeys() const {
  static constexpr std::string_view known[] = {
      "context_length",
      "embedding_length",
      "block_count",
      "feed_forward_length",
      "attention.head_count",
      "attention.head_count_kv",
      "attention.key_length",
      "attention.value_length",
      "attention.sliding_window",
      "attention.layer_norm_rms_epsilon",
      "rope.dimension_count",
      "rope.freq_base",
      "rope.scaling.type",
      "rope.scaling.factor",
      "rope.scaling.original_context_length",
      "rope.scaling.finetuned",
      "rope.scaling.yarn_beta_fast",
      "rope.scaling.yarn_beta_slow",
      "rope.scale_linear",
      "vocab_size",
      "tensor_data_layout",
  };
  static constexpr std::string_view zero[] = {"expert_count",
                                              "expert_used_count"};
  for (const auto &[key, value] : file.metadata()) {
    if (!key.starts_with(prefix))
      continue;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    const bool isKnown =
        std::find(std::begin(known), std::end(known), name) != std::end(known);
    const bool isZero =
        std::find(std::begin(zero), std::end(zero), name) != std::end(zero) &&
        file.getUnsigned(key) == 0u;
    if (!isKnown && !isZero)
      fail("{}: metadata \"{}\" changes what the model computes and is not "
           "supported",
           file.fileName(), printable(key));
  }
}

void ConfigBuilder::addSizes() {
  const uint64_t hidden =
      require(count("embedding_length"), "embedding_length");
  const uint64_t heads =
      require(count("attention.head_count"), "attention.head_count");
  config["hidden_size"] = hidden;
  config["intermediate_size"] =
      require(count("feed_forward_length"), "feed_forward_length");
  config["num_hidden_layers"] = require(count("block_count"), "block_count");
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] =
      count("attention.head_count_kv").value_or(heads);
  headDim = count("attention.key_length").value_or(heads ? hidden / heads : 0);
  if (count("attention.value_length").value_or(headDim) != headDim ||
      count("rope.dimension_count").value_or(headDim) != headDim)
    fail("{}: key length {}, value length {} and rotary dimension {} differ, "
         "which is not supported",
         file.fileName(), headDim,
         count("attention.value_length").value_or(headDim),
         count("rope.dimension_count").value_or(headDim));
  config["head_dim"] = headDim;
  config["hidden_act"] = "silu";
  if (const auto positions = count("context_length"))
    config["max_position_embeddings"] = *positions;
  // The float of the metadata, in the digits that it was written from.
  const std::string_view epsilon = "attention.layer_norm_rms_epsilon";
  const auto eps = static_cast<float>(require(number(epsilon), epsilon));
  char digits[32];
  *std::to_chars(digits, digits + sizeof(digits), eps).ptr = '\0';
  config["rms_norm_eps"] = std::strtod(digits, nullptr);
  const GgufTensor *embedding = file.findTensor("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    fail("{}: tensor \"token_embd.weight\" is missing or not a matrix",
         file.fileName());
  config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = !file.findTensor("output.weight");
  // llama.cpp knows no window for this architecture; Mistral's exports are it.
  if (const auto window = count("attention.sliding_window");
      window && architecture.name == "llama") {
    config["model_type"] = "mistral";
    config["architectures"] = ordered_json::array({"MistralForCausalLM"});
    config["sliding_window"] = *window;
  } else if (window) {
    fail(
        "{}: metadata \"{}attention.sliding_window\" is not supported for this "
        "architecture",
        file.fileName(), prefix);
  }
}

void ConfigBuilder::addRope() {
  theta = number("rope.freq_base").value_or(10000);
  config["rope_theta"] = theta;
  const std::string kind =
      file.getString(prefix + "rope.scaling.type").value_or("none");
  const double linear = number("rope.scale_linear").value_or(1);
  if (kind == "linear" || linear != 1) {
    const double factor = number("rope.scaling.factor").value_or(linear);
    if (factor != 1)
      config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  } else if (kind == "yarn") {
    ordered_json scaling = {{"rope_type", "yarn"}};
    scaling["factor"] =
        require(number("rope.scaling.factor"), "rope.scaling.factor");
    scaling["original_max_position_embeddings"] =
        require(count("rope.scaling.original_context_length"),
                "rope.scaling.original_context_length");
    if (const auto fast = number("rope.scaling.yarn_beta_fast"))
      scaling["beta_fast"] = *fast;
    if (const auto slow = number("rope.scaling.yarn_beta_slow"))
      scaling["beta_slow"] = *slow;
    config["rope_scaling"] = scaling;
  } else if (kind != "none") {
    fail(
        "{}: metadata \"{}rope.scaling.type\" is \"{}\"; none, linear and yarn "
        "are supported",
        file.fileName(), prefix, printable(kind));
  }
  if (const GgufTensor *factors = file.findTensor(ropeFactorsName))
    addLlama3Rope(*factors);
}

/// The file has only the divisors that llama3 scaling gives each frequency; the
/// parameters are those of the Llama 3 releases, checked against the divisors.
void ConfigBuilder::addLlama3Rope(const GgufTensor &factors) {
  const uint64_t pairs = headDim / 2;
  if (factors.shape != std::vector<uint64_t>{pairs} || pairs == 0 ||
      config.contains("rope_scaling"))
    fail("{}: tensor \"{}\" has shape {}, [{}] was expected, and no other "
         "rotary "
         "scaling",
         file.fileName(), ropeFactorsName, formatShape(factors.shape), pairs);
  std::vector<float> divisors(pairs);
  decodeToF32(factors.dtype, factors.data.data(), pairs, divisors.data());

  RopeConfig rope;
  rope.theta = theta;
  const auto plain = rope.inverseFrequencies(headDim);
  rope.kind = RopeKind::Llama3;
  rope.factor = *std::max_element(divisors.begin(), divisors.end());
  rope.originalMaxPositions = 8192;
  const auto scaled = rope.inverseFrequencies(headDim);
  for (uint64_t i = 0; i < pairs; ++i)
    if (!(std::abs(plain[i] / divisors[i] - scaled[i]) <= 1e-4f * scaled[i]))
      fail("{}: tensor \"{}\" is not the scaling of Llama 3 (factor {}, low 1, "
           "high 4, original context 8192): entry {} is {}",
           file.fileName(), ropeFactorsName, rope.factor, i, divisors[i]);
  config["rope_scaling"] = {
      {"rope_type", "llama3"},
      {"factor", rope.factor},
      {"low_freq_factor", rope.lowFrequencyFactor},
      {"high_freq_factor", rope.highFrequencyFactor},
      {"original_max_position_embeddings", rope.originalMaxPositions}};
}

void ConfigBuilder::addTokens() {
  static constexpr NamePair tokens[] = {
      {"tokenizer.ggml.bos_token_id", "bos_token_id"},
      {"tokenizer.ggml.eos_token_id", "eos_token_id"},
      {"tokenizer.ggml.padding_token_id", "pad_token_id"},
  };
  for (const NamePair &token : tokens)
    if (const auto id = file.getUnsigned(token.gguf))
      config[std::string(token.huggingFace)] = *id;
}

void ConfigBuilder::addType() {
  const bool hasOutputBias = file.findTensor("blk.0.attn_output.bias");
  const bool isQwen2 = architecture.name == "qwen2";
  if (!isQwen2)
    config["attention_bias"] =
        hasOutputBias && file.findTensor("blk.0.attn_q.bias");
  if (architecture.name == "llama" || architecture.name == "smollm3")
    config["mlp_bias"] = file.findTensor("blk.0.ffn_up.bias") != nullptr;
  DType type = file.findTensor("token_embd.weight")->dtype;
  for (const GgufTensor &tensor : file.tensors())
    if (isQuantized(tensor.dtype))
      type = DType::BF16;
  config["torch_dtype"] = std::string(dtypeConfigName(type));
}

std::string ConfigBuilder::build() {
  config["architectures"] =
      ordered_json::array({std::string(architecture.className)});
  config["model_type"] = std::string(architecture.name);
  refuseUnknownKeys();
  addSizes();
  addRope();
  addTokens();
  addType();
  return config.dump(2) + "\n";
}

} // namespace

std::unique_ptr<TensorSource>
stem::openGgufTensors(std::shared_ptr<const GgufFile> file) {
  return std::make_unique<GgufSource>(std::move(file));
}

std::string stem::ggufConfigText(const GgufFile &file) {
  return ConfigBuilder(file).build();
}

std::string stem::ggufGenerationConfigText(const GgufFile &file) {
  ordered_json config = ordered_json::object();
  if (const auto id = file.getUnsigned("tokenizer.ggml.bos_token_id"))
    config["bos_token_id"] = *id;
  std::vector<uint64_t> ends;
  for (const char *key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (const auto id = file.getUnsigned(key);
        id && std::find(ends.begin(), ends.end(), *id) == ends.end())
      ends.push_back(*id);
  if (ends.size() == 1)
    config["eos_token_id"] = ends[0];
  else if (!ends.empty())
    config["eos_token_id"] = ends;
  return config.dump(2) + "\n";
}
