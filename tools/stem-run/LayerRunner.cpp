//===- LayerRunner.cpp - A dense model, one layer at a time ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerRunner.h"

#include "EngineWeights.h"

#include "stem/Graph/CalibrationGraph.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/KVCache.h"
#include "stem/Runtime/Module.h"
#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Runtime/Tensor.h"
#include "stem/Support/Error.h"
#include "stem/Target/HostCompiler.h"

#include "mlir/IR/MLIRContext.h"

#include <map>

using namespace stem;

namespace {

struct CacheDeleter {
  void operator()(stem_kv_cache *cache) const { stem_kv_destroy(cache); }
};

/// A weight in the form that an entry reads.
struct Parameter {
  Arena memory;
  stem_packed packed;
  stem_tensor tensor;
};

} // namespace

struct LayerRunner::Impl {
  Impl(const Checkpoint &checkpoint, const EngineOptions &options);

  void compile();
  void makeCache();
  const stem_entry &entry(const std::string &name) const;
  const stem_entry &entry(const char *part, uint64_t layer) const;
  const Parameter &parameter(const std::string &key,
                             const stem_argument &argument);
  void adopt(Parameter &parameter, const stem_argument &argument);
  void run(const stem_entry &entry, uint64_t layer, int64_t tokens,
           std::map<std::string_view, stem_tensor> values);
  stem_tensor matrix(const float *data, int64_t rows, int64_t columns) const {
    return denseTensor(const_cast<float *>(data), STEM_F32, {rows, columns});
  }
  stem_tensor vector(std::span<const int32_t> values) const {
    return denseTensor(const_cast<int32_t *>(values.data()), STEM_I32,
                       {static_cast<int64_t>(values.size())});
  }
  stem_tensor hidden(const float *data, int64_t tokens) const {
    return matrix(data, tokens, static_cast<int64_t>(config.hiddenSize));
  }
  stem_tensor wide(const float *data, int64_t tokens) const {
    return matrix(data, tokens, static_cast<int64_t>(config.intermediateSize));
  }

  const Checkpoint &checkpoint;
  const ModelConfig &config;
  EngineOptions options;
  EngineReport report;
  ContextPtr context;
  std::vector<CalibrationKind> kinds;
  std::vector<size_t> kindOfLayer;
  std::unique_ptr<Module> module;
  std::unique_ptr<stem_kv_cache, CacheDeleter> cache;
  /// By key and whether it is packed; of a replaced W_down under its own key
  /// with a prefix.
  std::map<std::pair<std::string, bool>, Parameter> parameters;
  std::map<std::string, Parameter> replaced;
  Arena arena;
};

LayerRunner::Impl::Impl(const Checkpoint &checkpoint,
                        const EngineOptions &options)
    : checkpoint(checkpoint), config(checkpoint.config()), options(options) {
  context = createContext(options.threads, options.maxIsa);
  stem_isa isa = stem_context_isa(context.get());
  ComputeType type = chooseComputeType(config, options.dtype, isa);
  report.dtype = type.dtype;
  report.dtypeNote = type.note;
  report.threads = stem_context_threads(context.get());
  report.isa = isaName(isa);
  compile();
  makeCache();
}

void LayerRunner::Impl::compile() {
  mlir::DialectRegistry registry;
  registerHostCompiler(registry);
  mlir::MLIRContext mlirContext(registry,
                                mlir::MLIRContext::Threading::DISABLED);
  GraphOptions graphOptions;
  graphOptions.compute = report.dtype;
  CalibrationGraph graph =
      buildCalibrationGraph(mlirContext, config, checkpoint.weights(),
                            checkpoint.tensors(), graphOptions);
  kinds = std::move(graph.kinds);
  kindOfLayer = std::move(graph.kindOfLayer);
  HostCompileOptions compile;
  compile.target = hostTarget(stem_context_isa(context.get()));
  compile.cacheDirectory = options.cacheDirectory;
  compile.useCache = options.useCache;
  HostCompileResult result = compileForHost(*graph.module, compile);
  report.cacheHit = result.cacheHit;
  module = std::make_unique<Module>(result.path.string(), context.get());
}

/// One layer's keys and values for the windows of one step.
void LayerRunner::Impl::makeCache() {
  stem_kv_options kv = {};
  kv.struct_size = sizeof(kv);
  kv.layers = 1;
  kv.heads = static_cast<int64_t>(config.kvHeads);
  kv.head_dim = static_cast<int64_t>(config.headDim);
  kv.max_positions = options.maxPositions;
  kv.max_sequences = options.maxSequences;
  kv.dtype = report.dtype == DType::BF16 ? STEM_BF16 : STEM_F32;
  stem_kv_cache *made = nullptr;
  throwIfFailed(context.get(), stem_kv_create(context.get(), &kv, &made));
  cache.reset(made);
}

const stem_entry &LayerRunner::Impl::entry(const std::string &name) const {
  const stem_entry *found = module->find(name);
  if (!found)
    fail("the compiled module '{}' has no entry '{}'", module->path(), name);
  return *found;
}

const stem_entry &LayerRunner::Impl::entry(const char *part,
                                           uint64_t layer) const {
  return entry(part + ("_" + kinds[kindOfLayer[layer]].suffix));
}

void LayerRunner::Impl::adopt(Parameter &parameter,
                              const stem_argument &argument) {
  void *data = parameter.memory.data();
  if (argument.packed) {
    parameter.packed = {data, argument.dtype, 0, argument.sizes[0],
                        argument.sizes[1]};
    parameter.tensor = handleTensor(&parameter.packed);
  } else {
    parameter.tensor =
        denseTensor(data, argument.dtype, argument.sizes, argument.rank);
  }
}

const Parameter &LayerRunner::Impl::parameter(const std::string &key,
                                              const stem_argument &argument) {
  if (auto it = replaced.find(key); it != replaced.end())
    return it->second;
  auto [entry, isNew] =
      parameters.try_emplace({key, argument.packed != 0}, Parameter());
  Parameter &parameter = entry->second;
  if (isNew) {
    parameter.memory = Arena(parameterBytes(key.c_str(), argument), "a weight");
    loadParameter(checkpoint.tensors(), key, argument,
                  static_cast<std::byte *>(parameter.memory.data()),
                  context.get());
    adopt(parameter, argument);
  }
  return parameter;
}

void LayerRunner::Impl::run(const stem_entry &entry, uint64_t layer,
                            int64_t tokens,
                            std::map<std::string_view, stem_tensor> values) {
  int64_t needed = arenaBytes(entry, tokens, 0, report.threads);
  if (needed > arena.size())
    arena = Arena(needed, "the arena of a step");
  std::vector<stem_tensor> arguments;
  for (int64_t i = 0; i < entry.argument_count; ++i) {
    const stem_argument &argument = entry.arguments[i];
    if (argument.kind == STEM_ARG_PARAM)
      arguments.push_back(
          parameter(correspondingKey(checkpoint.weights(),
                                     kinds[kindOfLayer[layer]].representative,
                                     layer, entry.texts + argument.key),
                    argument)
              .tensor);
    else if (argument.kind == STEM_ARG_CACHE)
      arguments.push_back(handleTensor(cache.get()));
    else
      arguments.push_back(values.at(entry.texts + argument.name));
  }
  throwIfFailed(context.get(),
                entry.function(context.get(), arguments.data(),
                               static_cast<int64_t>(arguments.size()),
                               arena.data(), arena.size()));
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
int64_t LayerRunner::maxStepTokens() const {
  return impl->options.maxStepTokens;
}

void LayerRunner::embed(std::span<const int32_t> ids, float *x) {
  int64_t count = static_cast<int64_t>(ids.size());
  impl->run(impl->entry("embed"), 0, count,
            {{"ids", impl->vector(ids)}, {"x", impl->hidden(x, count)}});
}

void LayerRunner::attention(uint64_t layer, const StepTokens &tokens,
                            const float *x, float *middle) {
  std::map<int32_t, int64_t> lengths;
  for (size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.sequences[i] >= 0)
      lengths[tokens.sequences[i]] = tokens.positions[i] + 1;
  stem_kv_cache *cache = impl->cache.get();
  for (auto [sequence, length] : lengths) {
    throwIfFailed(context(), stem_kv_truncate(context(), cache, sequence, 0));
    throwIfFailed(context(),
                  stem_kv_reserve(context(), cache, sequence, length));
  }
  int64_t count = tokens.count();
  impl->run(impl->entry("attention", layer), layer, count,
            {{"x", impl->hidden(x, count)},
             {"positions", impl->vector(tokens.positions)},
             {"sequences", impl->vector(tokens.sequences)},
             {"middle", impl->hidden(middle, count)}});
}

void LayerRunner::feedForward(uint64_t layer, const float *middle,
                              int64_t count, float *out) {
  impl->run(impl->entry("ffn", layer), layer, count,
            {{"middle", impl->hidden(middle, count)},
             {"out", impl->hidden(out, count)}});
}

void LayerRunner::taps(uint64_t layer, const float *middle, int64_t count,
                       float *gate, float *up) {
  impl->run(impl->entry("taps", layer), layer, count,
            {{"middle", impl->hidden(middle, count)},
             {"gate", impl->wide(gate, count)},
             {"up", impl->wide(up, count)}});
}

void LayerRunner::product(uint64_t layer, const float *z, int64_t count,
                          float *out) {
  impl->run(impl->entry("product", layer), layer, count,
            {{"z", impl->wide(z, count)}, {"out", impl->hidden(out, count)}});
}

void LayerRunner::project(uint64_t layer, const float *middle, const float *z,
                          int64_t count, float *out) {
  impl->run(impl->entry("project", layer), layer, count,
            {{"middle", impl->hidden(middle, count)},
             {"z", impl->wide(z, count)},
             {"out", impl->hidden(out, count)}});
}

void LayerRunner::score(const float *x, std::span<const int32_t> labels,
                        float *nll) {
  int64_t count = static_cast<int64_t>(labels.size());
  impl->run(impl->entry("score"), 0, count,
            {{"x", impl->hidden(x, count)},
             {"labels", impl->vector(labels)},
             {"nll", denseTensor(nll, STEM_F32, {count})}});
}

void LayerRunner::replaceDown(uint64_t layer, std::span<const float> down) {
  const std::string &key = impl->checkpoint.weights().layers[layer].downProj;
  const stem_entry &entry = impl->entry("product", layer);
  for (int64_t i = 0; i < entry.argument_count; ++i) {
    const stem_argument &argument = entry.arguments[i];
    if (argument.kind != STEM_ARG_PARAM)
      continue;
    int64_t k = argument.sizes[0], n = argument.sizes[1];
    Parameter &parameter = impl->replaced[key];
    parameter.memory = Arena(parameterBytes(key.c_str(), argument), "W_down");
    PackTarget target{parameter.memory.data(),
                      static_cast<stem_dtype>(argument.dtype), k, n};
    packWeight(target, 0, n, {down.data(), STEM_F32, k});
    impl->adopt(parameter, argument);
  }
}

void LayerRunner::restoreDown(uint64_t layer) {
  impl->replaced.erase(impl->checkpoint.weights().layers[layer].downProj);
}
