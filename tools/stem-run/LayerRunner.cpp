//===- LayerRunner.cpp - A model, one layer at a time ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerRunner.h"

#include "EngineMemory.h"
#include "EngineWeights.h"
#include "EntryRunner.h"

#include "stem/Graph/CalibrationGraph.h"
#include "stem/Runtime/Pack.h"
#include "stem/Support/Error.h"

#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <map>

using namespace stem;

namespace {

/// A weight in the form that an entry reads.
struct Parameter {
  Parameter(const std::string &key, const stem_argument &argument)
      : memory(parameterBytes(key.c_str(), argument), "a weight") {
    if (argument.packed) {
      packed = {memory.data(), argument.dtype, 0, argument.sizes[0],
                argument.sizes[1]};
      tensor = handleTensor(&packed);
    } else {
      tensor = denseTensor(memory.data(), argument.dtype, argument.sizes,
                           argument.rank);
    }
  }
  // The tensor points here.
  Parameter(const Parameter &) = delete;
  Parameter &operator=(const Parameter &) = delete;

  Arena memory;
  stem_packed packed;
  stem_tensor tensor;
};

/// The entries of a layer; a STEM layer has the first two.
constexpr const char *kParts[] = {"attention", "ffn", "taps", "product",
                                  "project"};
constexpr size_t kStemParts = 2;

/// What a vector of ids is loaded as.
stem_argument idArgument(uint64_t count) {
  stem_argument argument = {};
  argument.kind = STEM_ARG_PARAM;
  argument.dtype = STEM_I32;
  argument.rank = 1;
  argument.sizes[0] = static_cast<int64_t>(count);
  return argument;
}

/// The rows of a table that one step reads, each once: tables stay in their
/// files.
class StagedRows {
public:
  /// The most that a step with so many tokens takes.
  static int64_t bytes(const TensorInfo &table, int64_t tokens) {
    return std::min(static_cast<int64_t>(table.rows()), tokens) *
           rowBytes(table);
  }

  void read(const TensorSource &source, const TensorInfo &table,
            std::span<const int32_t> ids);
  stem_tensor rows() const { return staged; }
  /// For each of the ids, its row.
  std::span<const int32_t> index() const { return places; }

private:
  static int64_t rowBytes(const TensorInfo &table) {
    return static_cast<int64_t>(table.bytes / table.rows());
  }

  Arena memory;
  stem_tensor staged = {};
  std::vector<int32_t> distinct, places;
};

void StagedRows::read(const TensorSource &source, const TensorInfo &table,
                      std::span<const int32_t> ids) {
  distinct.assign(ids.begin(), ids.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const int64_t count = static_cast<int64_t>(distinct.size());
  if (count * rowBytes(table) > memory.size())
    memory = Arena(bytes(table, static_cast<int64_t>(ids.size())),
                   "the rows of a step");
  std::byte *out = static_cast<std::byte *>(memory.data());
  for (int32_t id : distinct) {
    source.readRaw(table.name, static_cast<uint64_t>(id), 1, out);
    source.release(table.name, static_cast<uint64_t>(id), 1);
    out += rowBytes(table);
  }
  const int32_t dtype = table.dtype == DType::F32    ? STEM_F32
                        : table.dtype == DType::BF16 ? STEM_BF16
                                                     : STEM_F16;
  staged = denseTensor(memory.data(), dtype,
                       {count, static_cast<int64_t>(table.rowElements())});
  places.clear();
  for (int32_t id : ids)
    places.push_back(static_cast<int32_t>(
        std::lower_bound(distinct.begin(), distinct.end(), id) -
        distinct.begin()));
}

} // namespace

struct LayerRunner::Impl : EntryRunner {
  Impl(const Checkpoint &checkpoint, const EngineOptions &options);

  void compileParts();
  void plan();
  std::span<const char *const> partsOf(uint64_t layer) const {
    return std::span(kParts).first(
        config.layers[layer].isStem ? kStemParts : std::size(kParts));
  }
  const stem_entry &entryOf(std::string_view part, uint64_t layer) const;
  std::string keyOf(const stem_entry &entry, const stem_argument &argument,
                    uint64_t layer) const {
    return correspondingKey(checkpoint.weights(),
                            kinds[kindOfLayer[layer]].representative, layer,
                            entry.texts + argument.key);
  }
  const Parameter &parameter(const std::string &key,
                             const stem_argument &argument);
  using Values = std::map<std::string_view, stem_tensor>;
  void run(const stem_entry &entry, uint64_t layer, int64_t tokens,
           const Values &values);
  void addTableValues(uint64_t layer, int64_t count,
                      std::span<const int32_t> ids, Values &values);
  stem_tensor matrix(const float *data, int64_t rows, int64_t columns) const {
    return denseTensor(const_cast<float *>(data), STEM_F32, {rows, columns});
  }
  stem_tensor hidden(const float *data, int64_t tokens) const {
    return matrix(data, tokens, static_cast<int64_t>(config.hiddenSize));
  }
  stem_tensor wide(const float *data, int64_t tokens) const {
    return matrix(data, tokens, static_cast<int64_t>(config.intermediateSize));
  }

  const Checkpoint &checkpoint;
  std::vector<CalibrationKind> kinds;
  std::vector<size_t> kindOfLayer;
  /// By key and whether it is packed.
  std::map<std::pair<std::string, bool>, std::unique_ptr<Parameter>> parameters;
  std::map<std::string, std::unique_ptr<Parameter>> replaced; ///< W_down
  StagedRows staged;
  int64_t oneLayerWeights = 0;
};

LayerRunner::Impl::Impl(const Checkpoint &checkpoint,
                        const EngineOptions &options)
    : EntryRunner(checkpoint, options), checkpoint(checkpoint) {
  compileParts();
  plan();
  makeCache(cacheOptions(/*layers=*/1));
}

void LayerRunner::Impl::compileParts() {
  compile([&](mlir::MLIRContext &mlirContext, const GraphOptions &options) {
    CalibrationGraph graph =
        buildCalibrationGraph(mlirContext, config, checkpoint.weights(),
                              checkpoint.tensors(), options);
    kinds = std::move(graph.kinds);
    kindOfLayer = std::move(graph.kindOfLayer);
    return std::move(graph.module);
  });
}

/// As if every entry ran on every layer: what is read then stays.
void LayerRunner::Impl::plan() {
  std::map<std::pair<std::string, bool>, int64_t> weights;
  auto sum = [&] {
    int64_t bytes = 0;
    for (const auto &[key, size] : weights)
      bytes = sumOfBytes({bytes, size});
    return bytes;
  };
  auto add = [&](const stem_entry &entry, uint64_t layer) {
    for (int64_t i = 0; i < entry.argument_count; ++i) {
      const stem_argument &argument = entry.arguments[i];
      if (argument.kind != STEM_ARG_PARAM)
        continue;
      const std::string key = keyOf(entry, argument, layer);
      weights[{key, argument.packed != 0}] =
          parameterBytes(key.c_str(), argument);
    }
    report.plan.arena =
        std::max(report.plan.arena,
                 arenaBytes(entry, options.maxStepTokens, 0, report.threads));
  };
  for (const char *name : {"embed", "score"})
    add(entry(name), 0);
  const int64_t shared = sum();
  int64_t before = shared, largestLayer = 0;
  for (uint64_t layer = 0; layer < config.layerCount(); ++layer) {
    for (const char *part : partsOf(layer))
      add(entryOf(part, layer), layer);
    const LayerWeights &names = checkpoint.weights().layers[layer];
    if (const std::string &key = names.upSelectIds; !key.empty()) {
      const uint64_t count = checkpoint.tensors().get(key).elements();
      weights[{key, false}] = parameterBytes(key.c_str(), idArgument(count));
    }
    if (!names.upTable.empty())
      report.plan.tables =
          std::max(report.plan.tables,
                   StagedRows::bytes(checkpoint.tensors().get(names.upTable),
                                     options.maxStepTokens));
    const int64_t now = sum();
    largestLayer = std::max(largestLayer, now - before);
    before = now;
  }
  report.plan.weights = before;
  oneLayerWeights = sumOfBytes({shared, largestLayer});
  report.plan.cache = cacheBytes(cacheOptions(/*layers=*/1));
}

const stem_entry &LayerRunner::Impl::entryOf(std::string_view part,
                                             uint64_t layer) const {
  const std::span<const char *const> parts = partsOf(layer);
  if (std::find(parts.begin(), parts.end(), part) == parts.end())
    fail("layer {} is STEM and has no '{}': only a dense layer is fitted",
         layer, part);
  return entry(fmt::format("{}_{}", part, kinds[kindOfLayer[layer]].suffix));
}

const Parameter &LayerRunner::Impl::parameter(const std::string &key,
                                              const stem_argument &argument) {
  if (auto it = replaced.find(key); it != replaced.end())
    return *it->second;
  const std::pair place(key, argument.packed != 0);
  if (auto it = parameters.find(place); it != parameters.end())
    return *it->second;
  auto made = std::make_unique<Parameter>(key, argument);
  loadParameter(checkpoint.tensors(), key, argument,
                static_cast<std::byte *>(made->memory.data()), context.get());
  return *(parameters[place] = std::move(made));
}

void LayerRunner::Impl::run(const stem_entry &entry, uint64_t layer,
                            int64_t tokens, const Values &values) {
  call(entry, tokens, /*outputRows=*/0, [&](const stem_argument &argument) {
    if (argument.kind == STEM_ARG_PARAM)
      return parameter(keyOf(entry, argument, layer), argument).tensor;
    const char *name = entry.texts + argument.name;
    auto value = values.find(name);
    if (value == values.end())
      fail("the compiled module takes an input '{}', which {} does not have",
           name, entry.name);
    return value->second;
  });
}

/// What the FFN of a STEM layer takes beside the hidden states.
void LayerRunner::Impl::addTableValues(uint64_t layer, int64_t count,
                                       std::span<const int32_t> ids,
                                       Values &values) {
  if (static_cast<int64_t>(ids.size()) != count)
    fail("layer {} is STEM: its rows are chosen by the ids of the {} tokens, "
         "but {} were given",
         layer, count, ids.size());
  const LayerWeights &names = checkpoint.weights().layers[layer];
  const TensorSource &tensors = checkpoint.tensors();
  staged.read(tensors, tensors.get(names.upTable), ids);
  values["rows"] = staged.rows();
  values["index"] = vectorTensor(staged.index());
  if (names.upSelectIds.empty())
    return;
  values["ids"] = vectorTensor(ids);
  values["selected"] =
      parameter(names.upSelectIds,
                idArgument(tensors.get(names.upSelectIds).elements()))
          .tensor;
}

//===----------------------------------------------------------------------===//
// The interface
//===----------------------------------------------------------------------===//

LayerRunner::LayerRunner(const Checkpoint &checkpoint,
                         const EngineOptions &options)
    : impl(std::make_unique<Impl>(checkpoint, options)) {}

LayerRunner::~LayerRunner() = default;

stem_context *LayerRunner::context() const { return impl->context.get(); }
const EngineReport &LayerRunner::report() const { return impl->report; }
stem_dtype LayerRunner::productType() const {
  return report().dtype == DType::BF16 ? STEM_BF16 : STEM_F32;
}

int64_t LayerRunner::maxStepTokens() const {
  return impl->options.maxStepTokens;
}

void LayerRunner::embed(std::span<const int32_t> ids, float *x) {
  int64_t count = static_cast<int64_t>(ids.size());
  impl->run(impl->entry("embed"), 0, count,
            {{"ids", vectorTensor(ids)}, {"x", impl->hidden(x, count)}});
}

void LayerRunner::attention(uint64_t layer, const StepTokens &tokens,
                            const float *x, float *middle) {
  std::map<int32_t, int64_t> lengths;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.sequences[i] < 0)
      continue;
    int64_t &length = lengths[tokens.sequences[i]];
    if (tokens.positions[i] != length)
      fail("token {} of the step has position {} of window {}, wanted {}: "
           "each window of a step is a sequence of its own, from position 0",
           i, tokens.positions[i], tokens.sequences[i], length);
    ++length;
  }
  stem_kv_cache *cache = impl->cache.get();
  for (auto [sequence, length] : lengths) {
    throwIfFailed(context(), stem_kv_truncate(context(), cache, sequence, 0));
    throwIfFailed(context(),
                  stem_kv_reserve(context(), cache, sequence, length));
  }
  int64_t count = tokens.count();
  impl->run(impl->entryOf("attention", layer), layer, count,
            {{"x", impl->hidden(x, count)},
             {"positions", vectorTensor(tokens.positions)},
             {"sequences", vectorTensor(tokens.sequences)},
             {"middle", impl->hidden(middle, count)}});
}

void LayerRunner::feedForward(uint64_t layer, const float *middle,
                              int64_t count, float *out,
                              std::span<const int32_t> ids) {
  Impl::Values values = {{"middle", impl->hidden(middle, count)},
                         {"out", impl->hidden(out, count)}};
  if (impl->config.layers[layer].isStem)
    impl->addTableValues(layer, count, ids, values);
  impl->run(impl->entryOf("ffn", layer), layer, count, values);
}

void LayerRunner::taps(uint64_t layer, const float *middle, int64_t count,
                       float *hidden, float *gate, float *up) {
  impl->run(impl->entryOf("taps", layer), layer, count,
            {{"middle", impl->hidden(middle, count)},
             {"hidden", impl->hidden(hidden, count)},
             {"gate", impl->wide(gate, count)},
             {"up", impl->wide(up, count)}});
}

void LayerRunner::product(uint64_t layer, const float *z, int64_t count,
                          float *out) {
  impl->run(impl->entryOf("product", layer), layer, count,
            {{"z", impl->wide(z, count)}, {"out", impl->hidden(out, count)}});
}

void LayerRunner::project(uint64_t layer, const float *middle, const float *z,
                          int64_t count, float *out) {
  impl->run(impl->entryOf("project", layer), layer, count,
            {{"middle", impl->hidden(middle, count)},
             {"z", impl->wide(z, count)},
             {"out", impl->hidden(out, count)}});
}

void LayerRunner::score(const float *x, std::span<const int32_t> labels,
                        float *nll) {
  int64_t count = static_cast<int64_t>(labels.size());
  impl->run(impl->entry("score"), 0, count,
            {{"x", impl->hidden(x, count)},
             {"labels", vectorTensor(labels)},
             {"nll", denseTensor(nll, STEM_F32, {count})}});
}

void LayerRunner::replaceDown(uint64_t layer, std::span<const float> down) {
  const std::string &key = impl->checkpoint.weights().layers[layer].downProj;
  const stem_entry &entry = impl->entryOf("product", layer);
  for (int64_t i = 0; i < entry.argument_count; ++i) {
    const stem_argument &argument = entry.arguments[i];
    if (argument.kind != STEM_ARG_PARAM)
      continue;
    auto made = std::make_unique<Parameter>(key, argument);
    int64_t k = argument.sizes[0], n = argument.sizes[1];
    if (static_cast<int64_t>(down.size()) != k * n)
      fail("a new \"{}\" has {} elements, wanted {} x {}", key, down.size(), n,
           k);
    PackTarget target{made->memory.data(),
                      static_cast<stem_dtype>(argument.dtype), k, n};
    packWeight(target, 0, n, {down.data(), STEM_F32, k});
    impl->replaced[key] = std::move(made);
  }
}

void LayerRunner::restoreDown(uint64_t layer) {
  impl->replaced.erase(impl->checkpoint.weights().layers[layer].downProj);
}

void LayerRunner::releaseLayer(uint64_t layer) {
  const std::string prefix = layerTensorName(layer, "");
  std::erase_if(impl->parameters, [&](const auto &entry) {
    return entry.first.first.starts_with(prefix);
  });
}

int64_t LayerRunner::oneLayerWeights() const { return impl->oneLayerWeights; }
