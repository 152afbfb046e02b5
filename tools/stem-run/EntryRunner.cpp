//===- EntryRunner.cpp - A compiled module and what it runs with ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EntryRunner.h"

#include "CommandLine.h"

#include "stem/Support/Error.h"
#include "stem/Target/HostCompiler.h"

#include "mlir/IR/MLIRContext.h"

#include <chrono>

using namespace stem;

EntryRunner::EntryRunner(const Checkpoint &checkpoint,
                         const EngineOptions &options)
    : config(checkpoint.config()), name(checkpoint.path().string()),
      options(options),
      context(createContext(options.threads, options.maxIsa)) {
  stem_isa isa = stem_context_isa(context.get());
  ComputeType type = chooseComputeType(config, options.dtype, isa);
  report.dtype = type.dtype;
  report.dtypeNote = type.note;
  report.threads = stem_context_threads(context.get());
  report.isa = isaName(isa);
  int64_t own = static_cast<int64_t>(config.maxPositions);
  if (options.maxPositions == 0)
    this->options.maxPositions = own > 0 ? own : 2048;
  if (own > 0 && options.maxPositions > own)
    fail("{}: {} positions were asked for, but the model has "
         "max_position_embeddings {}",
         name, options.maxPositions, own);
}

void EntryRunner::compile(
    const std::function<mlir::OwningOpRef<mlir::ModuleOp>(
        mlir::MLIRContext &, const GraphOptions &)> &buildGraph,
    const std::optional<TrainedFunction> &trained) {
  auto start = std::chrono::steady_clock::now();
  mlir::DialectRegistry registry;
  registerHostCompiler(registry);
  mlir::MLIRContext mlirContext(registry,
                                mlir::MLIRContext::Threading::DISABLED);
  GraphOptions graph;
  graph.compute = report.dtype;
  mlir::OwningOpRef<mlir::ModuleOp> ir = buildGraph(mlirContext, graph);
  HostCompileOptions compile;
  compile.target = hostTarget(stem_context_isa(context.get()));
  compile.cacheDirectory = options.cacheDirectory;
  compile.useCache = options.useCache;
  compile.dumpDirectory = options.dumpDirectory;
  compile.trained = trained;
  compile.prefetchDistance = options.prefetchDistance;
  HostCompileResult result = compileForHost(*ir, compile);
  for (const std::string &warning : result.warnings)
    printWarning(warning);
  module = std::make_unique<Module>(result.path.string(), context.get());
  report.cacheHit = result.cacheHit;
  report.compileSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
}

const stem_entry &EntryRunner::entry(const std::string &name) const {
  const stem_entry *found = module->find(name);
  if (!found)
    fail("{}: the compiled module has no entry '{}'", module->path(), name);
  return *found;
}

stem_kv_options EntryRunner::cacheOptions(int64_t layers) const {
  stem_kv_options kv = {};
  kv.struct_size = sizeof(kv);
  kv.layers = layers;
  kv.heads = static_cast<int64_t>(config.kvHeads);
  kv.head_dim = static_cast<int64_t>(config.headDim);
  kv.max_positions = options.maxPositions;
  kv.max_sequences = options.maxSequences;
  kv.dtype = report.dtype == DType::BF16 ? STEM_BF16 : STEM_F32;
  return kv;
}

int64_t EntryRunner::cacheBytes(const stem_kv_options &kv) const {
  int64_t sequenceBytes = kvSequenceBytes(kv, kv.max_positions), bytes = 0;
  if (__builtin_mul_overflow(kv.max_sequences, sequenceBytes, &bytes))
    fail("{}: a key-value cache of {} sequences of {} bytes has no size", name,
         kv.max_sequences, sequenceBytes);
  return bytes;
}

void EntryRunner::makeCache(const stem_kv_options &kv) {
  stem_kv_cache *made = nullptr;
  throwIfFailed(context.get(), stem_kv_create(context.get(), &kv, &made));
  cache.reset(made);
}

void EntryRunner::call(
    const stem_entry &entry, int64_t tokens, int64_t outputRows,
    const std::function<stem_tensor(const stem_argument &)> &argument) {
  int64_t needed = arenaBytes(entry, tokens, outputRows, report.threads);
  if (needed > arena.size())
    arena = Arena(needed, "the arena of a step");
  std::vector<stem_tensor> arguments;
  for (int64_t i = 0; i < entry.argument_count; ++i)
    arguments.push_back(cache && entry.arguments[i].kind == STEM_ARG_CACHE
                            ? handleTensor(cache.get())
                            : argument(entry.arguments[i]));
  throwIfFailed(context.get(),
                entry.function(context.get(), arguments.data(),
                               static_cast<int64_t>(arguments.size()),
                               arena.data(), arena.size()));
}
