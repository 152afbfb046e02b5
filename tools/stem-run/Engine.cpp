//===- Engine.cpp - A model, compiled and ready to run --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Engine.h"

#include "EngineWeights.h"

#include "stem/Graph/ModelGraph.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/KVCache.h"
#include "stem/Runtime/Module.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Target/HostCompiler.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/FileUtilities.h"

#include <chrono>
#include <map>
#include <set>

using namespace stem;

namespace {

constexpr int64_t kTile = GraphOptions().tokenTile;

int64_t roundUp(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

struct StoreDeleter {
  void operator()(stem_table_store *store) const {
    stem_table_store_destroy(store);
  }
};
struct CacheDeleter {
  void operator()(stem_kv_cache *cache) const { stem_kv_destroy(cache); }
};

/// The tokens of one step, flat, in the order that entries take them.
struct Step {
  std::vector<int32_t> ids, positions, sequences, labels, outputRows;

  /// What an entry's argument of this name takes.
  const std::vector<int32_t> &input(std::string_view name) const {
    if (name == "ids")
      return ids;
    if (name == "positions")
      return positions;
    if (name == "sequences")
      return sequences;
    if (name == "labels")
      return labels;
    if (name == "output_rows")
      return outputRows;
    fail("the compiled module takes an input '{}', which a step does not have",
         name);
  }
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  bool empty() const { return ids.empty(); }

  /// Appends consecutive tokens of one sequence and pads them to whole tiles.
  void append(int32_t sequence, int64_t position,
              std::span<const int32_t> tokens, std::span<const int32_t> targets,
              int64_t tile) {
    int64_t count = static_cast<int64_t>(tokens.size());
    for (int64_t i = 0; i < roundUp(count, tile); ++i) {
      bool isPadding = i >= count;
      ids.push_back(isPadding ? 0 : tokens[i]);
      positions.push_back(static_cast<int32_t>(position + i));
      sequences.push_back(isPadding ? -1 : sequence);
      labels.push_back(isPadding || targets.empty() ? -100 : targets[i]);
    }
  }
};

stem_tensor vectorTensor(const std::vector<int32_t> &values) {
  stem_tensor result = {};
  result.data = const_cast<int32_t *>(values.data());
  result.dtype = STEM_I32;
  result.rank = 1;
  result.sizes[0] = static_cast<int64_t>(values.size());
  result.strides[0] = 1;
  return result;
}

stem_tensor floatTensor(float *data, int64_t rows, int64_t columns) {
  stem_tensor result = {};
  result.data = data;
  result.dtype = STEM_F32;
  result.rank = columns > 0 ? 2 : 1;
  result.sizes[0] = rows;
  result.strides[0] = columns > 0 ? columns : 1;
  if (columns > 0) {
    result.sizes[1] = columns;
    result.strides[1] = 1;
  }
  return result;
}

stem_tensor handleTensor(void *handle) {
  stem_tensor result = {};
  result.data = handle;
  result.dtype = STEM_HANDLE;
  return result;
}

std::string describePlan(const MemoryPlan &plan) {
  auto bytes = [](int64_t count) {
    return formatBytes(static_cast<double>(count));
  };
  return fmt::format("memory: weights {}, tables {}, key-value cache up to {}, "
                     "step arena {}; {} in all",
                     bytes(plan.weights), bytes(plan.tables), bytes(plan.cache),
                     bytes(plan.arena), bytes(plan.total()));
}

} // namespace

struct Engine::Impl {
  Impl(const Checkpoint &checkpoint, const EngineOptions &options)
      : config(checkpoint.config()), options(options),
        name(checkpoint.path().string()) {}

  void chooseTypes();
  void compile(const Checkpoint &checkpoint);
  void plan();
  void checkFits() const;
  void allocate(const Checkpoint &checkpoint);
  stem_kv_options cacheOptions() const;
  int64_t arenaBytes(const stem_entry &entry, int64_t tokens,
                     int64_t outputs) const;
  void run(const stem_entry &entry, Step &step, float *output,
           int64_t outputColumns);
  void checkIds(std::span<const int32_t> ids, const char *what,
                std::optional<int32_t> ignored = std::nullopt) const;
  void checkSequence(int32_t sequence) const;
  void checkLength(int64_t length) const;
  void reserve(int32_t sequence, int64_t length);

  ModelConfig config;
  EngineOptions options;
  std::string name;
  EngineReport report;
  ContextPtr context;
  std::unique_ptr<Module> module;
  std::unique_ptr<EngineWeights> weights;
  std::unique_ptr<stem_table_store, StoreDeleter> store;
  std::unique_ptr<stem_kv_cache, CacheDeleter> cache;
  std::vector<int64_t> windows;
  const stem_entry *prefill = nullptr;
  const stem_entry *decode = nullptr;
  const stem_entry *score = nullptr;
  Arena arena;
  std::vector<float> logits;
};

//===----------------------------------------------------------------------===//
// Start
//===----------------------------------------------------------------------===//

/// The compute type, and what the machine can do.
void Engine::Impl::chooseTypes() {
  context = createContext(options.threads, options.maxIsa);
  report.threads = stem_context_threads(context.get());
  stem_isa isa = stem_context_isa(context.get());
  report.isa = isaName(isa);
  DType own = config.dtype.value_or(DType::F32);
  if (options.dtype) {
    report.dtype = *options.dtype;
  } else if (own == DType::BF16 && isa != STEM_ISA_AVX512_BF16) {
    report.dtype = DType::F32;
    report.dtypeNote = "the model is bf16, but this CPU has no bf16 "
                       "arithmetic: it runs in f32 (--dtype=bf16 for bf16)";
  } else if (own == DType::BF16 || own == DType::F32) {
    report.dtype = own;
  } else {
    report.dtype = DType::F32;
    report.dtypeNote =
        fmt::format("the model's type {} is computed in f32", dtypeName(own));
  }
  if (report.dtype != DType::F32 && report.dtype != DType::BF16)
    fail("--dtype={}: the compute type is f32 or bf16",
         dtypeName(report.dtype));
}

void Engine::Impl::compile(const Checkpoint &checkpoint) {
  auto start = std::chrono::steady_clock::now();
  mlir::DialectRegistry registry;
  registerHostCompiler(registry);
  mlir::MLIRContext mlirContext(registry,
                                mlir::MLIRContext::Threading::DISABLED);
  GraphOptions graph;
  graph.compute = report.dtype;
  mlir::OwningOpRef<mlir::ModuleOp> ir = buildModelGraph(
      mlirContext, config, checkpoint.weights(), checkpoint.tensors(), graph);
  HostCompileOptions compile;
  compile.target = hostTarget(stem_context_isa(context.get()));
  compile.cacheDirectory = options.cacheDirectory;
  compile.useCache = options.useCache;
  compile.dumpDirectory = options.dumpDirectory;
  HostCompileResult result = compileForHost(*ir, compile);
  // What is loaded needs no name; what cannot be loaded is not left behind.
  llvm::FileRemover remover(result.path.string(), result.isTemporary);
  module = std::make_unique<Module>(result.path.string(), context.get());
  auto find = [&](const char *entry) {
    const stem_entry *found = module->find(entry);
    if (!found)
      fail("{}: the compiled module has no entry '{}'", result.path.string(),
           entry);
    return found;
  };
  prefill = find("prefill");
  decode = find("decode");
  score = find("score");
  report.cacheHit = result.cacheHit;
  report.compileSeconds = secondsSince(start);
}

stem_kv_options Engine::Impl::cacheOptions() const {
  stem_kv_options kv = {};
  kv.struct_size = sizeof(kv);
  kv.layers = static_cast<int64_t>(config.layerCount());
  kv.heads = static_cast<int64_t>(config.kvHeads);
  kv.head_dim = static_cast<int64_t>(config.headDim);
  kv.max_positions = options.maxPositions;
  kv.max_sequences = options.maxSequences;
  kv.dtype = report.dtype == DType::BF16 ? STEM_BF16 : STEM_F32;
  kv.windows = windows.data();
  kv.max_append = std::min(options.maxStepTokens, options.maxPositions);
  return kv;
}

int64_t Engine::Impl::arenaBytes(const stem_entry &entry, int64_t tokens,
                                 int64_t outputs) const {
  return entry.fixed_bytes + tokens * entry.bytes_per_token +
         outputs * entry.bytes_per_output +
         report.threads * entry.bytes_per_thread;
}

void Engine::Impl::plan() {
  int64_t own = static_cast<int64_t>(config.maxPositions);
  if (options.maxPositions == 0)
    options.maxPositions = own > 0 ? own : 2048;
  if (own > 0 && options.maxPositions > own)
    fail("{}: {} positions were asked for, but the model has "
         "max_position_embeddings {}",
         name, options.maxPositions, own);
  options.maxStepTokens =
      roundUp(std::min(options.maxStepTokens, options.maxPositions), kTile);
  for (const LayerConfig &layer : config.layers)
    windows.push_back(static_cast<int64_t>(layer.window));
  weights = std::make_unique<EngineWeights>(
      std::vector<const stem_entry *>{prefill, decode, score},
      module->tables());
  report.plan.weights = weights->parameterBytes();
  report.plan.tables = weights->tableBytes();
  report.plan.arena = std::max(
      {arenaBytes(*prefill, options.maxStepTokens, 1),
       arenaBytes(*score, options.maxStepTokens, 0),
       arenaBytes(*decode, options.maxSequences, options.maxSequences)});
  int64_t sequenceBytes = kvSequenceBytes(cacheOptions(), options.maxPositions);
  if (__builtin_mul_overflow(options.maxSequences, sequenceBytes,
                             &report.plan.cache))
    fail("{}: a key-value cache of {} sequences of {} bytes has no size", name,
         options.maxSequences, sequenceBytes);
  if (options.onPlan)
    options.onPlan(describePlan(report.plan));
  checkFits();
}

/// Memory is given out before it is there: too much of it ends the process
/// later, without a word.
void Engine::Impl::checkFits() const {
  int64_t available = memoryStatus().available;
  if (available < 0 || report.plan.total() <= available)
    return;
  fail("{}: {}, but {} are available; --dtype=bf16 halves the weights and the "
       "cache of f32, a shorter context (--ctx, -n) or fewer prompts make the "
       "cache smaller",
       name, describePlan(report.plan),
       formatBytes(static_cast<double>(available)));
}

void Engine::Impl::allocate(const Checkpoint &checkpoint) {
  auto start = std::chrono::steady_clock::now();
  weights->load(checkpoint.tensors(), context.get());
  report.loadSeconds = secondsSince(start);
  stem_table_store *newStore = nullptr;
  throwIfFailed(context.get(),
                stem_table_store_create(context.get(), &newStore));
  store.reset(newStore);
  weights->openTables(context.get(), store.get());
  stem_kv_options kv = cacheOptions();
  stem_kv_cache *newCache = nullptr;
  throwIfFailed(context.get(), stem_kv_create(context.get(), &kv, &newCache));
  cache.reset(newCache);
  arena = Arena(report.plan.arena, "the arena of a step");
}

std::unique_ptr<Engine> Engine::create(const Checkpoint &checkpoint,
                                       const EngineOptions &options) {
  auto impl = std::make_unique<Impl>(checkpoint, options);
  impl->chooseTypes();
  impl->compile(checkpoint);
  impl->plan();
  impl->allocate(checkpoint);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Engine::~Engine() = default;

const EngineReport &Engine::report() const { return impl->report; }
int64_t Engine::vocabSize() const {
  return static_cast<int64_t>(impl->config.vocabSize);
}
int64_t Engine::maxPositions() const { return impl->options.maxPositions; }

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void Engine::Impl::checkIds(std::span<const int32_t> ids, const char *what,
                            std::optional<int32_t> ignored) const {
  int64_t bound = static_cast<int64_t>(config.vocabSize);
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != ignored && (ids[i] < 0 || ids[i] >= bound))
      fail("{} {} at position {} is outside the model's vocabulary of {} ids "
           "(0 to {})",
           what, ids[i], i, bound, bound - 1);
}

void Engine::Impl::checkSequence(int32_t sequence) const {
  if (sequence < 0 || sequence >= options.maxSequences)
    fail("sequence {} does not exist; the engine was made for {}", sequence,
         options.maxSequences);
}

void Engine::Impl::checkLength(int64_t length) const {
  if (length > options.maxPositions)
    fail("a sequence of {} tokens is longer than the context of {} positions; "
         "shorten the prompt or raise --ctx up to the model's limit",
         length, options.maxPositions);
}

void Engine::Impl::reserve(int32_t sequence, int64_t length) {
  checkLength(length);
  throwIfFailed(context.get(),
                stem_kv_reserve(context.get(), cache.get(), sequence, length));
}

void Engine::Impl::run(const stem_entry &entry, Step &step, float *output,
                       int64_t outputColumns) {
  int64_t outputRows = outputColumns > 0
                           ? static_cast<int64_t>(step.outputRows.size())
                           : step.tokens();
  int64_t needed =
      arenaBytes(entry, step.tokens(), outputColumns > 0 ? outputRows : 0);
  if (needed > arena.size())
    arena = Arena(needed, "the arena of a step");
  std::vector<stem_tensor> arguments;
  for (int64_t i = 0; i < entry.argument_count; ++i) {
    const stem_argument &argument = entry.arguments[i];
    switch (argument.kind) {
    case STEM_ARG_PARAM:
      arguments.push_back(weights->tensor(argument));
      break;
    case STEM_ARG_STORE:
      arguments.push_back(handleTensor(store.get()));
      break;
    case STEM_ARG_CACHE:
      arguments.push_back(handleTensor(cache.get()));
      break;
    case STEM_ARG_OUTPUT:
      arguments.push_back(floatTensor(output, outputRows, outputColumns));
      break;
    default:
      arguments.push_back(vectorTensor(step.input(argument.name)));
    }
  }
  throwIfFailed(context.get(),
                entry.function(context.get(), arguments.data(),
                               static_cast<int64_t>(arguments.size()),
                               arena.data(), arena.size()));
}

int64_t Engine::length(int32_t sequence) const {
  impl->checkSequence(sequence);
  return stem_kv_length(impl->cache.get(), sequence);
}

std::span<const float> Engine::prefill(std::span<const PrefillChunk> chunks) {
  int64_t vocabulary = vocabSize();
  int64_t rows = 0;
  std::map<int32_t, int64_t> lengths; // after the call
  // All is checked before the first sequence grows.
  for (const PrefillChunk &chunk : chunks) {
    impl->checkSequence(chunk.sequence);
    impl->checkIds(chunk.ids, "token id");
    int64_t count = static_cast<int64_t>(chunk.ids.size());
    int64_t &newLength =
        lengths.try_emplace(chunk.sequence, length(chunk.sequence))
            .first->second;
    newLength += count;
    impl->checkLength(newLength);
    rows += chunk.allLogits ? count : (count > 0 ? 1 : 0);
  }
  impl->logits.resize(rows * vocabulary);
  float *output = impl->logits.data();
  Step step;
  auto flush = [&] {
    if (step.empty())
      return;
    impl->run(*impl->prefill, step, output, vocabulary);
    output += static_cast<int64_t>(step.outputRows.size()) * vocabulary;
    step = Step();
  };
  for (const PrefillChunk &chunk : chunks) {
    int64_t count = static_cast<int64_t>(chunk.ids.size());
    for (int64_t begin = 0; begin < count;) {
      int64_t room = impl->options.maxStepTokens - step.tokens();
      int64_t size = std::min(count - begin, room);
      if (size <= 0) {
        flush();
        continue;
      }
      int64_t position = length(chunk.sequence);
      impl->reserve(chunk.sequence, position + size);
      int64_t firstRow = step.tokens();
      step.append(chunk.sequence, position, chunk.ids.subspan(begin, size), {},
                  kTile);
      begin += size;
      if (chunk.allLogits)
        for (int64_t i = 0; i < size; ++i)
          step.outputRows.push_back(static_cast<int32_t>(firstRow + i));
      else if (begin == count)
        step.outputRows.push_back(static_cast<int32_t>(firstRow + size - 1));
    }
  }
  flush();
  return impl->logits;
}

std::span<const float> Engine::decode(std::span<const int32_t> sequences,
                                      std::span<const int32_t> ids) {
  if (sequences.size() != ids.size())
    fail("decode was given {} sequences and {} ids", sequences.size(),
         ids.size());
  impl->checkIds(ids, "token id");
  // All is checked before the first sequence grows.
  std::set<int32_t> distinct;
  for (int32_t sequence : sequences) {
    impl->checkSequence(sequence);
    impl->checkLength(length(sequence) + 1);
    if (!distinct.insert(sequence).second)
      fail("decode was given sequence {} twice; it takes one token for each",
           sequence);
  }
  Step step;
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t position = length(sequences[i]);
    impl->reserve(sequences[i], position + 1);
    step.append(sequences[i], position, ids.subspan(i, 1), {}, /*tile=*/1);
    step.outputRows.push_back(static_cast<int32_t>(i));
  }
  impl->logits.resize(ids.size() * vocabSize());
  if (!step.empty())
    impl->run(*impl->decode, step, impl->logits.data(), vocabSize());
  return impl->logits;
}

std::vector<float> Engine::score(std::span<const ScoreWindow> windows) {
  std::vector<float> result, stepLosses;
  Step step;
  struct Piece {
    int64_t firstRow, count;
  };
  std::vector<Piece> pieces;
  int32_t slot = 0;
  auto flush = [&] {
    if (step.empty())
      return;
    stepLosses.resize(step.tokens());
    impl->run(*impl->score, step, stepLosses.data(), /*outputColumns=*/0);
    for (Piece piece : pieces)
      result.insert(result.end(), stepLosses.begin() + piece.firstRow,
                    stepLosses.begin() + piece.firstRow + piece.count);
    pieces.clear();
    step = Step();
    slot = 0;
  };
  for (const ScoreWindow &window : windows) {
    if (window.ids.size() != window.labels.size())
      fail("a window has {} ids and {} labels", window.ids.size(),
           window.labels.size());
    impl->checkIds(window.ids, "token id");
    impl->checkIds(window.labels, "label", /*ignored=*/-100);
    int64_t count = static_cast<int64_t>(window.ids.size());
    if (slot == impl->options.maxSequences ||
        step.tokens() + roundUp(count, kTile) > impl->options.maxStepTokens)
      flush();
    truncate(slot, 0);
    for (int64_t begin = 0; begin < count;) {
      int64_t size =
          std::min(count - begin, impl->options.maxStepTokens - step.tokens());
      impl->reserve(slot, begin + size);
      pieces.push_back({step.tokens(), size});
      step.append(slot, begin, window.ids.subspan(begin, size),
                  window.labels.subspan(begin, size), kTile);
      begin += size;
      // A window longer than a step: its sequence goes on in the next one.
      if (begin < count) {
        int32_t current = slot;
        flush();
        slot = current;
      }
    }
    ++slot;
  }
  flush();
  return result;
}

void Engine::truncate(int32_t sequence, int64_t newLength) {
  impl->checkSequence(sequence);
  throwIfFailed(impl->context.get(),
                stem_kv_truncate(impl->context.get(), impl->cache.get(),
                                 sequence, newLength));
}

void Engine::fork(int32_t from, int32_t to) {
  impl->checkSequence(from);
  impl->checkSequence(to);
  throwIfFailed(impl->context.get(),
                stem_kv_fork(impl->context.get(), impl->cache.get(), from, to));
}
