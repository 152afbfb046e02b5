//===- ModelConfig.h - What config.json says about a model ------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_MODELCONFIG_H
#define STEM_MODEL_MODELCONFIG_H

#include "stem/Model/DType.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// The dense family. A converted model keeps its family; see StemSection.
enum class ModelFamily { Llama, Mistral, Qwen2, Qwen3, SmolLM3, Olmo2 };

/// config.json's model_type of a family: "llama", …
std::string_view familyName(ModelFamily family);

enum class RopeKind { Default, Linear, Llama3, Yarn };

/// Rotary position embedding. Pair i of a head is (x[i], x[i + headDim / 2]).
struct RopeConfig {
  RopeKind kind = RopeKind::Default;
  double theta = 10000;
  double factor = 1;
  uint64_t originalMaxPositions = 0;
  // llama3
  double lowFrequencyFactor = 1;
  double highFrequencyFactor = 4;
  // yarn
  double betaFast = 32;
  double betaSlow = 1;
  bool truncate = true;
  /// Multiplies cos and sin of every angle; 1 unless the kind is yarn.
  double attentionScaling = 1;

  /// One frequency a pair, headDim / 2 of them: angle = position × frequency.
  std::vector<float> inverseFrequencies(uint64_t headDim) const;
};

/// Where RMSNorm is applied to queries and keys, if at all.
enum class QkNorm {
  None,
  PerHead,   ///< over headDim, one weight for all heads (Qwen3)
  Projection ///< over the whole projection (OLMo2)
};

/// What may differ from layer to layer.
struct LayerConfig {
  /// A query sees the last `window` tokens, itself included; 0 means all.
  uint64_t window = 0;
  bool usesRope = true;
  /// The up-projection is a table of rows by token id.
  bool isStem = false;

  bool operator==(const LayerConfig &) const = default;
};

/// The "stem" section of a converted model.
struct StemSection {
  static constexpr unsigned currentVersion = 1;

  std::string baseModelType;
  std::vector<std::string> baseArchitectures;
  std::vector<uint64_t> layers; ///< sorted, without duplicates
  /// Of each of `layers` the rank of its low-rank term, 0 for none; empty where
  /// no layer has one.
  std::vector<uint64_t> ranks;
  bool select = false; ///< some ids keep the matrix
  /// "float32", "float16", "bfloat16", or "uint8" (minimum and scale a row).
  std::string rowDType;
  /// A JSON object as text, free in form; empty for none.
  std::string provenance;

  /// 0 for a layer that is not STEM.
  uint64_t rankOf(uint64_t layer) const;
  /// The rank of all layers; nothing where they differ.
  std::optional<uint64_t> commonRank() const;
  /// Puts a layer that is not there yet in its place.
  void addLayer(uint64_t layer, uint64_t rank);
};

struct ModelConfig {
  ModelFamily family = ModelFamily::Llama;
  uint64_t hiddenSize = 0;
  uint64_t intermediateSize = 0;
  uint64_t vocabSize = 0;
  uint64_t heads = 0;
  uint64_t kvHeads = 0; ///< divides heads
  uint64_t headDim = 0; ///< even; need not be hiddenSize / heads
  double rmsNormEps = 1e-6;
  /// 0 when the file does not say.
  uint64_t maxPositions = 0;
  RopeConfig rope;
  QkNorm qkNorm = QkNorm::None;
  /// OLMo2: no norm before a block; one after it, before the residual sum.
  bool normAfterBlock = false;
  bool tieEmbeddings = false;
  /// What the flags announce. The tensors decide: see ModelWeights.
  bool attentionBias = false;
  bool mlpBias = false;
  std::vector<LayerConfig> layers;

  std::optional<DType> dtype;
  std::optional<int64_t> bosToken;
  std::vector<int64_t> eosTokens;
  std::optional<int64_t> padToken;

  /// Set for model_type "stem_llama".
  std::optional<StemSection> stem;

  /// Keys that this program does not know; they are kept when written back.
  std::vector<std::string> unknownKeys;
  /// What was assumed, in sentences for the user.
  std::vector<std::string> warnings;
  /// The JSON text that was read.
  std::string sourceText;

  uint64_t layerCount() const { return layers.size(); }
  /// Heads × headDim, the width of q and of the attention's output.
  uint64_t queryWidth() const { return heads * headDim; }
  uint64_t keyValueWidth() const { return kvHeads * headDim; }

  /// Reads config.json's text, in the old and the new schema. `name` stands for
  /// the file in messages. Whatever changes the mathematics and is not
  /// supported is an Error that names the key and its value.
  ///
  /// Facts that may be absent: num_key_value_heads (Llama: the number of
  /// heads), head_dim (hidden_size / num_attention_heads; Qwen3: 128),
  /// rms_norm_eps (1e-6; OLMo2: 1e-5), rope_theta (10000; SmolLM3: 2000000),
  /// hidden_act (silu), tie_word_embeddings (false; SmolLM3: true),
  /// sliding_window (Mistral: 4096; null for none), model_type (from
  /// architectures).
  static ModelConfig parse(std::string_view text, const std::string &name);
};

/// \name Writing back
/// Each takes config.json's text and gives it changed; every other key stays,
/// in its order.
/// @{

/// Makes the config of a converted model: model_type, architectures, auto_map
/// and the stem section. The text may be that of a converted model already.
std::string configWithStem(const std::string &text, const StemSection &stem);

/// Sets dtype (or torch_dtype where that key is present).
std::string configWithDType(const std::string &text, DType dtype);
/// @}

/// The Python file that a converted folder's auto_map points to, without ".py".
inline constexpr std::string_view modelingModule = "modeling_stem_llama";

/// What is read of generation_config.json.
struct GenerationConfig {
  std::vector<int64_t> endTokens; ///< empty when it has none
  std::optional<double> repetitionPenalty;

  /// An end token that the model has no row for is left out, with a warning in
  /// `config`. An Error when a value has the wrong type or the penalty is not
  /// positive.
  static GenerationConfig parse(std::string_view text, const std::string &name,
                                ModelConfig &config);
};

/// generation_config.json's text with this penalty in it.
std::string generationConfigWithPenalty(std::string_view text,
                                        const std::string &name,
                                        double repetitionPenalty);

} // namespace stem

#endif // STEM_MODEL_MODELCONFIG_H
