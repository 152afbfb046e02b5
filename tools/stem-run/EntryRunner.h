//===- EntryRunner.h - A compiled module and what it runs with --*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_ENTRYRUNNER_H
#define STEM_TOOLS_STEM_RUN_ENTRYRUNNER_H

#include "Engine.h"

#include "stem/Graph/ModelGraph.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/KVCache.h"
#include "stem/Runtime/Module.h"
#include "stem/Runtime/Tensor.h"
#include "stem/Target/HostCompiler.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace stem {

struct CacheDeleter {
  void operator()(stem_kv_cache *cache) const { stem_kv_destroy(cache); }
};

/// What Engine and LayerRunner share: the options as the model allows them, a
/// module compiled from a graph of the model, and calls of its entries.
struct EntryRunner {
  /// Chooses types and positions; compiles nothing yet.
  EntryRunner(const Checkpoint &checkpoint, const EngineOptions &options);

  void compile(const std::function<mlir::OwningOpRef<mlir::ModuleOp>(
                   mlir::MLIRContext &, const GraphOptions &)> &buildGraph,
               const std::optional<TrainedFunction> &trained = {});
  const stem_entry &entry(const std::string &name) const;

  /// Of a cache for the options' positions and sequences.
  stem_kv_options cacheOptions(int64_t layers) const;
  int64_t cacheBytes(const stem_kv_options &kv) const;
  void makeCache(const stem_kv_options &kv);

  /// Calls an entry; the cache, if there is one, is passed here, every other
  /// argument by `argument`.
  void call(const stem_entry &entry, int64_t tokens, int64_t outputRows,
            const std::function<stem_tensor(const stem_argument &)> &argument);

  ModelConfig config;
  std::string name; ///< of the model, for messages
  EngineOptions options;
  EngineReport report;
  ContextPtr context;
  std::unique_ptr<Module> module;
  Arena arena;
  std::unique_ptr<stem_kv_cache, CacheDeleter> cache;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_ENTRYRUNNER_H
