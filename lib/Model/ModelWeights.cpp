//===- ModelWeights.cpp - Which tensor plays which role -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelWeights.h"

#include "FileIO.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

using namespace stem;

namespace {

using Shape = std::vector<uint64_t>;

class Resolver {
public:
  Resolver(const ModelConfig &config, const TensorSource &source)
      : config(config), source(source) {}

  ModelWeights resolve();

private:
  std::string require(const std::string &name, const Shape &shape);
  std::string take(const std::string &name, const Shape &shape,
                   bool isRequired);
  void checkShape(const TensorInfo &info, const Shape &shape) const;
  const TensorInfo &requireInfo(const std::string &name, const Shape &shape);
  [[noreturn]] void refuseMissing(const std::string &name,
                                  const std::string &shape) const;

  void resolveHead();
  void resolveAttention(uint64_t layer, LayerWeights &weights);
  void resolveFeedForward(uint64_t layer, LayerWeights &weights);
  void resolveTable(uint64_t layer, LayerWeights &weights);
  void resolveByteRows(uint64_t layer, LayerWeights &weights);
  std::vector<float> requireScales(const std::string &name, bool mayBeNegative);
  void resolveHotRows(uint64_t layer, LayerWeights &weights);
  void resolveSelected(uint64_t layer, LayerWeights &weights);
  const TensorInfo &requireIds(const std::string &name);
  bool equalsEmbedding(const std::string &head) const;
  void refuseMissingBiases() const;
  void refuseUnused();
  std::set<std::string> replacedUpProjections() const;

  const ModelConfig &config;
  const TensorSource &source;
  ModelWeights result;
  std::set<std::string, std::less<>> used;
};

bool isRotaryTable(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") ||
         name.ends_with("rotary_emb.cos_cached") ||
         name.ends_with("rotary_emb.sin_cached");
}

void Resolver::checkShape(const TensorInfo &info, const Shape &shape) const {
  if (info.shape != shape)
    fail("{}: tensor \"{}\" has shape {}, config.json asks for {}",
         info.file.string(), info.name, formatShape(info.shape),
         formatShape(shape));
}

const TensorInfo &Resolver::requireInfo(const std::string &name,
                                        const Shape &shape) {
  const TensorInfo *info = source.find(name);
  if (!info)
    refuseMissing(name, formatShape(shape));
  checkShape(*info, shape);
  used.insert(name);
  return *info;
}

void Resolver::refuseMissing(const std::string &name,
                             const std::string &shape) const {
  const std::string file = source.fileWithout(name);
  if (!file.empty())
    fail("{}: model.safetensors.index.json says that tensor \"{}\" is in {}, "
         "but that file does not have it; download both again, or, where "
         "another file has it, make a folder with stem-run import "
         "--ignore-index",
         source.description(), name, printable(file));
  fail("{}: tensor \"{}\" {} is missing", source.description(), name, shape);
}

std::string Resolver::require(const std::string &name, const Shape &shape) {
  const TensorInfo &info = requireInfo(name, shape);
  if (!isWeightType(info.dtype))
    fail("{}: tensor \"{}\" has type {}; weights are F64, F32, F16 or BF16 (or "
         "GGUF's block types)",
         info.file.string(), name, dtypeName(info.dtype));
  return name;
}

std::string Resolver::take(const std::string &name, const Shape &shape,
                           bool isRequired) {
  return isRequired || source.find(name) || !source.fileWithout(name).empty()
             ? require(name, shape)
             : "";
}

/// Compares without holding more than a few rows.
bool Resolver::equalsEmbedding(const std::string &head) const {
  const uint64_t width = config.hiddenSize;
  std::vector<float> a(width), b(width);
  for (uint64_t row = 0; row < config.vocabSize; ++row) {
    source.readF32(head, row, 1, a.data());
    source.readF32(result.embedding, row, 1, b.data());
    if (std::memcmp(a.data(), b.data(), width * sizeof(float)) != 0)
      return false;
    if (row % 1024 == 0) {
      source.release(head, 0, row);
      source.release(result.embedding, 0, row);
    }
  }
  source.release(head);
  source.release(result.embedding);
  return true;
}

void Resolver::resolveHead() {
  const std::string head = "lm_head.weight";
  const Shape shape = {config.vocabSize, config.hiddenSize};
  result.embedding = require("model.embed_tokens.weight", shape);
  result.finalNorm = require("model.norm.weight", {config.hiddenSize});
  result.isHeadTied = config.tieEmbeddings;
  if (!config.tieEmbeddings) {
    if (!source.find(head) && source.fileWithout(head).empty())
      fail("{}: tensor \"{}\" is missing and config.json does not tie it; if "
           "the "
           "head is the embedding, set \"tie_word_embeddings\": true",
           source.description(), head);
    result.head = require(head, shape);
    return;
  }
  result.head = result.embedding;
  if (!source.find(head))
    return;
  require(head, shape);
  if (!equalsEmbedding(head))
    fail("{}: config.json ties the head to the embedding, but \"{}\" differs "
         "from \"{}\"; set \"tie_word_embeddings\": false to use it",
         source.description(), head, result.embedding);
  result.ignored.push_back(head);
}

void Resolver::resolveAttention(uint64_t layer, LayerWeights &weights) {
  const auto name = [&](std::string_view suffix) {
    return layerTensorName(layer, suffix);
  };
  const uint64_t d = config.hiddenSize, q = config.queryWidth(),
                 k = config.keyValueWidth();
  if (!config.normAfterBlock)
    weights.inputNorm = require(name("input_layernorm.weight"), {d});
  weights.queryProj = require(name("self_attn.q_proj.weight"), {q, d});
  weights.keyProj = require(name("self_attn.k_proj.weight"), {k, d});
  weights.valueProj = require(name("self_attn.v_proj.weight"), {k, d});
  weights.outputProj = require(name("self_attn.o_proj.weight"), {d, q});
  // Qwen2 always has these three; no flag of its config says so.
  const bool hasBias =
      config.attentionBias || config.family == ModelFamily::Qwen2;
  weights.queryBias = take(name("self_attn.q_proj.bias"), {q}, hasBias);
  weights.keyBias = take(name("self_attn.k_proj.bias"), {k}, hasBias);
  weights.valueBias = take(name("self_attn.v_proj.bias"), {k}, hasBias);
  weights.outputBias =
      take(name("self_attn.o_proj.bias"), {d}, config.attentionBias);
  if (config.qkNorm != QkNorm::None) {
    const bool isPerHead = config.qkNorm == QkNorm::PerHead;
    weights.queryNorm = require(name("self_attn.q_norm.weight"),
                                {isPerHead ? config.headDim : q});
    weights.keyNorm = require(name("self_attn.k_norm.weight"),
                              {isPerHead ? config.headDim : k});
  }
  weights.postAttentionNorm =
      require(name("post_attention_layernorm.weight"), {d});
  if (config.normAfterBlock)
    weights.postFeedForwardNorm =
        require(name("post_feedforward_layernorm.weight"), {d});
}

/// What a byte of each row stands for.
std::vector<float> Resolver::requireScales(const std::string &name,
                                           bool mayBeNegative) {
  const TensorInfo &info = requireInfo(name, {config.vocabSize});
  if (info.dtype != DType::F32)
    fail("{}: tensor \"{}\" has type {}; F32 was expected", info.file.string(),
         name, dtypeName(info.dtype));
  std::vector<float> values(info.elements());
  source.readF32(name, 0, 1, values.data());
  for (size_t id = 0; id < values.size(); ++id)
    if (!std::isfinite(values[id]) || (values[id] < 0 && !mayBeNegative))
      fail("{}: tensor \"{}\" has {} for id {}; a finite number{} was "
           "expected: the file is damaged, convert or export the model again",
           info.file.string(), name, values[id], id,
           mayBeNegative ? "" : " from 0 on");
  return values;
}

void Resolver::resolveByteRows(uint64_t layer, LayerWeights &weights) {
  weights.upTableScale = layerTensorName(layer, "mlp.up_table.scale");
  weights.upTableMinimum = layerTensorName(layer, "mlp.up_table.minimum");
  const std::vector<float> scales =
      requireScales(weights.upTableScale, /*mayBeNegative=*/false);
  const std::vector<float> minima =
      requireScales(weights.upTableMinimum, /*mayBeNegative=*/true);
  for (size_t id = 0; id < scales.size(); ++id)
    if (!std::isfinite(static_cast<float>(255.0 * scales[id] + minima[id])))
      fail("{}: tensor \"{}\" has {} for id {}, whose minimum is {}: 255 times "
           "the one and the other are beyond f32; the file is damaged, convert "
           "or export the model again",
           source.get(weights.upTableScale).file.string(), weights.upTableScale,
           scales[id], id, minima[id]);
  const std::string ids = layerTensorName(layer, "mlp.up_table.hot_ids");
  const std::string rows = layerTensorName(layer, "mlp.up_table.hot_rows");
  const auto isThere = [&](const std::string &name) {
    return source.find(name) || !source.fileWithout(name).empty();
  };
  if (!isThere(ids) && !isThere(rows))
    return;
  weights.upTableHotIds = ids;
  weights.upTableHotRows = rows;
  resolveHotRows(layer, weights);
}

void Resolver::resolveTable(uint64_t layer, LayerWeights &weights) {
  const auto name = [&](std::string_view suffix) {
    return layerTensorName(layer, suffix);
  };
  const StemSection &stem = *config.stem;
  const uint64_t vocab = config.vocabSize, f = config.intermediateSize;
  weights.upTable = name("mlp.up_table.weight");
  const TensorInfo &table = requireInfo(weights.upTable, {vocab, f});
  if (dtypeConfigName(table.dtype) != stem.rowDType)
    fail("{}: tensor \"{}\" has type {}, stem.row_dtype is \"{}\"",
         table.file.string(), table.name, dtypeName(table.dtype),
         stem.rowDType);
  if (table.dtype == DType::U8)
    resolveByteRows(layer, weights);
  if (const uint64_t rank = stem.rankOf(layer)) {
    weights.upMixA = require(name("mlp.up_mix.a.weight"), {f, rank});
    weights.upMixB =
        require(name("mlp.up_mix.b.weight"), {rank, config.hiddenSize});
  }
  if (stem.select)
    resolveSelected(layer, weights);
}

/// The ids of a tensor of I32 or I64.
template <typename T>
std::vector<int64_t> readIds(const TensorSource &source,
                             const TensorInfo &info) {
  std::vector<T> ids(info.elements());
  source.readRaw(info.name, 0, info.rows(),
                 reinterpret_cast<std::byte *>(ids.data()));
  return {ids.begin(), ids.end()};
}

/// Compiled code looks ids up by halving, so they must rise.
void checkRising(const TensorSource &source, const TensorInfo &info,
                 uint64_t vocab) {
  const std::vector<int64_t> ids = info.dtype == DType::I32
                                       ? readIds<int32_t>(source, info)
                                       : readIds<int64_t>(source, info);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<uint64_t>(ids[i]) >= vocab)
      fail("{}: tensor \"{}\" has id {} at {}, the vocabulary ends at {}",
           info.file.string(), info.name, ids[i], i, vocab - 1);
    if (i > 0 && ids[i] <= ids[i - 1])
      fail("{}: tensor \"{}\" has id {} after {} at {}; ids must rise, each "
           "once: sort them and leave out what repeats",
           info.file.string(), info.name, ids[i], ids[i - 1], i);
  }
}

/// Any number of ids up to the vocabulary's.
const TensorInfo &Resolver::requireIds(const std::string &name) {
  const uint64_t vocab = config.vocabSize;
  const TensorInfo *found = source.find(name);
  if (!found)
    refuseMissing(name, "[n]");
  const TensorInfo &ids = *found;
  used.insert(name);
  if (ids.shape.size() != 1)
    fail("{}: tensor \"{}\" has shape {}; a list of ids, [n], was expected",
         ids.file.string(), ids.name, formatShape(ids.shape));
  if (ids.shape[0] > vocab)
    fail("{}: tensor \"{}\" has {} ids, the vocabulary {}", ids.file.string(),
         ids.name, ids.shape[0], vocab);
  if (ids.dtype != DType::I32 && ids.dtype != DType::I64)
    fail("{}: tensor \"{}\" has type {}; I32 or I64 was expected",
         ids.file.string(), ids.name, dtypeName(ids.dtype));
  checkRising(source, ids, vocab);
  return ids;
}

/// In any type of rows, not the same in all layers.
void Resolver::resolveHotRows(uint64_t layer, LayerWeights &weights) {
  const TensorInfo &ids = requireIds(weights.upTableHotIds);
  const Shape shape = {ids.shape[0], config.intermediateSize};
  const TensorInfo *found = source.find(weights.upTableHotRows);
  if (found && found->shape != shape)
    fail("{}: tensor \"{}\" has shape {}; {} was expected: a row of "
         "intermediate_size for each id of \"{}\" in {}",
         found->file.string(), found->name, formatShape(found->shape),
         formatShape(shape), ids.name, ids.file.string());
  const TensorInfo &rows = requireInfo(weights.upTableHotRows, shape);
  if (rows.dtype != DType::F32 && rows.dtype != DType::F16 &&
      rows.dtype != DType::BF16)
    fail("{}: tensor \"{}\" has type {}; F32, F16 or BF16 was expected",
         rows.file.string(), rows.name, dtypeName(rows.dtype));
}

void Resolver::resolveSelected(uint64_t layer, LayerWeights &weights) {
  weights.upProj = require(layerTensorName(layer, "mlp.up_proj.weight"),
                           {config.intermediateSize, config.hiddenSize});
  weights.upBias = take(layerTensorName(layer, "mlp.up_proj.bias"),
                        {config.intermediateSize}, config.mlpBias);
  weights.upSelectIds = layerTensorName(layer, "mlp.up_select.ids");
  requireIds(weights.upSelectIds);
}

void Resolver::resolveFeedForward(uint64_t layer, LayerWeights &weights) {
  const auto name = [&](std::string_view suffix) {
    return layerTensorName(layer, suffix);
  };
  const uint64_t d = config.hiddenSize, f = config.intermediateSize;
  weights.gateProj = require(name("mlp.gate_proj.weight"), {f, d});
  weights.downProj = require(name("mlp.down_proj.weight"), {d, f});
  weights.gateBias = take(name("mlp.gate_proj.bias"), {f}, config.mlpBias);
  weights.downBias = take(name("mlp.down_proj.bias"), {d}, config.mlpBias);
  if (config.layers[layer].isStem)
    return resolveTable(layer, weights);
  weights.upProj = require(name("mlp.up_proj.weight"), {f, d});
  weights.upBias = take(name("mlp.up_proj.bias"), {f}, config.mlpBias);
}

/// A dense shard that conversion left as it was still has the matrices that
/// tables replace; the index leaves them out.
std::set<std::string> Resolver::replacedUpProjections() const {
  std::set<std::string> names;
  for (uint64_t layer = 0; layer < config.layerCount(); ++layer)
    if (config.layers[layer].isStem) {
      names.insert(layerTensorName(layer, "mlp.up_proj.weight"));
      names.insert(layerTensorName(layer, "mlp.up_proj.bias"));
    }
  return names;
}

void Resolver::refuseUnused() {
  std::vector<std::string> unused;
  for (const TensorInfo &info : source.tensors()) {
    if (used.count(info.name))
      continue;
    if (isRotaryTable(info.name))
      result.ignored.push_back(info.name);
    else
      unused.push_back(info.name);
  }
  const std::set<std::string> replaced = replacedUpProjections();
  for (const TensorInfo &info : source.unlisted()) {
    if (isRotaryTable(info.name) || replaced.count(info.name))
      result.ignored.push_back(info.name);
    else
      unused.push_back(info.name + " (not in the index)");
  }
  if (unused.empty())
    return;
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(unused.size(), 5); ++i)
    list += fmt::format("{}{}", i ? ", " : "", printable(unused[i]));
  fail("{}: {} tensors have no place in a {} model of {} layers: {}{}; the "
       "model "
       "computes something that is not supported, or config.json does not "
       "belong "
       "to it",
       source.description(), unused.size(), familyName(config.family),
       config.layerCount(), list, unused.size() > 5 ? ", …" : "");
}

/// A bias that no flag of the config tells of is in every layer or in none.
void Resolver::refuseMissingBiases() const {
  std::string LayerWeights::*roles[] = {
      &LayerWeights::queryBias, &LayerWeights::keyBias,
      &LayerWeights::valueBias, &LayerWeights::outputBias,
      &LayerWeights::gateBias,  &LayerWeights::downBias};
  for (const auto role : roles) {
    const auto has = [role](const LayerWeights &layer) {
      return !(layer.*role).empty();
    };
    const auto with = std::ranges::find_if(result.layers, has);
    const auto without = std::ranges::find_if_not(result.layers, has);
    if (with != result.layers.end() && without != result.layers.end())
      fail("{}: tensor \"{}\" is there, but layer {} has none like it; a bias "
           "is in every layer or in none",
           source.description(), (*with).*role,
           without - result.layers.begin());
  }
}

ModelWeights Resolver::resolve() {
  resolveHead();
  result.layers.resize(config.layerCount());
  for (uint64_t layer = 0; layer < config.layerCount(); ++layer) {
    resolveAttention(layer, result.layers[layer]);
    resolveFeedForward(layer, result.layers[layer]);
  }
  refuseMissingBiases();
  refuseUnused();
  return std::move(result);
}

} // namespace

std::string stem::layerTensorName(uint64_t layer, std::string_view suffix) {
  return fmt::format("model.layers.{}.{}", layer, suffix);
}

ModelWeights ModelWeights::resolve(const ModelConfig &config,
                                   const TensorSource &source) {
  return Resolver(config, source).resolve();
}

std::vector<std::string> ModelWeights::layerNames(const LayerWeights &layer) {
  const std::string *roles[] = {
      &layer.inputNorm,      &layer.queryProj,     &layer.queryBias,
      &layer.keyProj,        &layer.keyBias,       &layer.valueProj,
      &layer.valueBias,      &layer.queryNorm,     &layer.keyNorm,
      &layer.outputProj,     &layer.outputBias,    &layer.postAttentionNorm,
      &layer.gateProj,       &layer.gateBias,      &layer.upProj,
      &layer.upBias,         &layer.upTable,       &layer.upTableScale,
      &layer.upTableMinimum, &layer.upTableHotIds, &layer.upTableHotRows,
      &layer.upMixA,         &layer.upMixB,        &layer.upSelectIds,
      &layer.downProj,       &layer.downBias,      &layer.postFeedForwardNorm,
  };
  std::vector<std::string> result;
  for (const std::string *name : roles)
    if (!name->empty())
      result.push_back(*name);
  return result;
}

std::vector<std::string> ModelWeights::byteRowNames(const LayerWeights &layer) {
  std::vector<std::string> result;
  for (const std::string *name : {&layer.upTableScale, &layer.upTableMinimum,
                                  &layer.upTableHotIds, &layer.upTableHotRows})
    if (!name->empty())
      result.push_back(*name);
  return result;
}

std::vector<std::string> ModelWeights::names() const {
  std::vector<std::string> result = {embedding};
  for (const LayerWeights &layer : layers)
    for (std::string &name : layerNames(layer))
      result.push_back(std::move(name));
  result.push_back(finalNorm);
  if (!isHeadTied)
    result.push_back(head);
  return result;
}
