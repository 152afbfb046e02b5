//===- Engine.cpp - A model, compiled and ready to run --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Engine.h"

#include "EngineMemory.h"
#include "EngineWeights.h"
#include "EntryRunner.h"
#include "FlatTokens.h"
#include "StagedIds.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

using namespace stem;

namespace {

constexpr int64_t kTile = kTokenTile;

/// That read rows of files: they wait for the disk most of the time.
constexpr int32_t kReaderThreads = 8;

int64_t roundUp(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Positions of the key-value cache that a step takes. They are reserved before
/// it runs; unless it runs to its end, every sequence has its length back.
class Reservation {
public:
  Reservation(stem_context *context, stem_kv_cache *cache)
      : context(context), cache(cache) {}
  Reservation(const Reservation &) = delete;
  Reservation &operator=(const Reservation &) = delete;
  ~Reservation() {
    // Windows keep what one step may overwrite: this cannot be refused.
    for (auto [sequence, length] : before)
      stem_kv_truncate(context, cache, sequence, length);
  }

  void grow(int32_t sequence, int64_t length) {
    before.try_emplace(sequence, stem_kv_length(cache, sequence));
    throwIfFailed(context, stem_kv_reserve(context, cache, sequence, length));
  }
  void commit() { before.clear(); }

private:
  stem_context *context;
  stem_kv_cache *cache;
  std::map<int32_t, int64_t> before;
};

/// The tokens of one step, and what makes room for them.
struct Step : FlatTokens {
  Step(stem_context *context, stem_kv_cache *cache)
      : reservation(context, cache) {}

  std::vector<int32_t> outputRows;
  Reservation reservation;

  /// What an entry's argument of this name takes.
  stem_tensor argument(std::string_view name) const {
    if (const auto tokens = input(name))
      return *tokens;
    if (name == "output_rows")
      return vectorTensor(outputRows);
    fail("the compiled module takes an input '{}', which a step does not have",
         name);
  }
  bool empty() const { return ids.empty(); }

  /// Appends consecutive tokens of one sequence and pads them to whole tiles.
  void append(int32_t sequence, int64_t position,
              std::span<const int32_t> tokens, std::span<const int32_t> targets,
              int64_t tile) {
    int64_t count = static_cast<int64_t>(tokens.size());
    reservation.grow(sequence, position + count);
    for (int64_t i = 0; i < roundUp(count, tile); ++i) {
      bool isPadding = i >= count;
      FlatTokens::append(isPadding ? kPaddingId : tokens[i], position + i,
                         isPadding ? -1 : sequence,
                         isPadding || targets.empty() ? -100 : targets[i]);
    }
  }

  /// After it ran: what it appended stays.
  void finish() {
    reservation.commit();
    for (auto *values : {&ids, &positions, &sequences, &labels, &outputRows})
      values->clear();
  }
};

} // namespace

int64_t stem::stepTokensForLogits(int64_t bytes, int64_t vocabSize) {
  const int64_t rows = bytes / static_cast<int64_t>(sizeof(float)) / vocabSize;
  return std::clamp(rows / kTile * kTile, kTile, kStepTokens);
}

struct Engine::Impl : EntryRunner {
  Impl(const Checkpoint &checkpoint, const EngineOptions &options)
      : EntryRunner(checkpoint, options) {}

  void checkStagingRows() const;
  void compileModel(const Checkpoint &checkpoint);
  void plan(const Checkpoint &checkpoint);
  void planMemory(const Checkpoint &checkpoint);
  void planTables(const Checkpoint &checkpoint);
  bool hasTablesInFiles() const {
    return std::ranges::any_of(report.tables, &PlacedTable::isInFile);
  }
  int64_t plannedBytes(const MemoryBound &bound) const {
    return sumOfBytes({bound.held, report.plan.total(),
                       readingBytes(config, report.threads)});
  }
  int64_t keptIds() const;
  int64_t leastStagedRows() const { return std::min(kTile, vocabSize()); }
  std::string memoryAdvice() const;
  void allocate(const Checkpoint &checkpoint);
  int64_t vocabSize() const { return static_cast<int64_t>(config.vocabSize); }
  stem_kv_options modelCache() const;
  Step newStep() {
    staged.clear();
    return {context.get(), cache.get()};
  }
  int64_t take(const Step &step, std::span<const int32_t> ids);
  void run(const stem_entry &entry, Step &step, float *output,
           int64_t outputColumns);
  void checkIds(std::span<const int32_t> ids, const char *what,
                std::optional<int32_t> ignored = std::nullopt) const;
  void checkSequence(int32_t sequence) const;
  void checkLength(int64_t length) const;
  int64_t checkChunks(std::span<const PrefillChunk> chunks) const;
  int64_t length(int32_t sequence) const;
  void truncate(int32_t sequence, int64_t newLength);
  class Scorer;

  std::unique_ptr<EngineWeights> weights;
  StorePtr store;
  StagedIds staged; ///< of the step at hand
  int64_t steps = 0;
  std::vector<int64_t> windows;
  const stem_entry *prefill = nullptr;
  const stem_entry *decode = nullptr;
  const stem_entry *score = nullptr;
  std::vector<float> logits;
};

//===----------------------------------------------------------------------===//
// Start
//===----------------------------------------------------------------------===//

ComputeType stem::chooseComputeType(const ModelConfig &config,
                                    std::optional<DType> wanted, stem_isa isa) {
  DType own = config.dtype.value_or(DType::F32);
  if (wanted && *wanted != DType::F32 && *wanted != DType::BF16)
    fail("--dtype={}: the compute type is f32 or bf16", dtypeName(*wanted));
  if (wanted)
    return {*wanted, ""};
  if (own == DType::BF16 && isa < STEM_ISA_AVX512_BF16)
    return {DType::F32,
            "the model is bf16, but this CPU has no bf16 arithmetic: it runs "
            "in f32 (--dtype=bf16 for bf16)"};
  if (own == DType::BF16 || own == DType::F32)
    return {own, ""};
  return {DType::F32, fmt::format("the model's type {} is computed in f32",
                                  dtypeName(own))};
}

/// A tile is computed as a whole: its rows are there together.
void Engine::Impl::checkStagingRows() const {
  const int64_t least = leastStagedRows();
  const int64_t rows = options.stagingRows.value_or(least);
  if (rows >= least)
    return;
  fail("--staging-rows={}: a tile of {} tokens is computed as a whole, and of "
       "the {} ids of {} it may have {} different ones: {} rows are needed of "
       "each table, {} more than {}; give --staging-rows={} or more",
       rows, kTile, vocabSize(), name, least, least, least - rows, rows, least);
}

void Engine::Impl::compileModel(const Checkpoint &checkpoint) {
  compile([&](mlir::MLIRContext &mlirContext, const GraphOptions &graph) {
    return buildModelGraph(mlirContext, config, checkpoint.weights(),
                           checkpoint.tensors(), graph);
  });
  prefill = &entry("prefill");
  decode = &entry("decode");
  score = &entry("score");
}

stem_kv_options Engine::Impl::modelCache() const {
  stem_kv_options kv = cacheOptions(static_cast<int64_t>(config.layerCount()));
  kv.windows = windows.data();
  kv.max_append = std::min(options.maxStepTokens, options.maxPositions);
  return kv;
}

int64_t Engine::Impl::keptIds() const {
  const auto share = static_cast<int64_t>(options.cacheShare *
                                          static_cast<double>(vocabSize()));
  return std::min(vocabSize(), sumOfBytes({options.cacheIds, share}));
}

/// What tables take in memory whose rows are staged, or that lie in files.
void Engine::Impl::planTables(const Checkpoint &checkpoint) {
  MemoryPlan &plan = report.plan;
  report.tables = weights->placedTables(checkpoint.weights());
  plan.tables = weights->tableBytes();
  plan.scales = weights->scaleBytes();
  plan.tablesInFiles = weights->tableBytesInFiles();
  const int64_t count = weights->stagedTables();
  if (count == 0)
    return;
  const int64_t all = weights->tableCount();
  const int64_t distance =
      std::min(options.prefetchDistance.value_or(all), all);
  report.prefetchDistance = distance;
  // One in use, and those that are asked for meanwhile, which all may be staged
  // ones.
  plan.stagedTables = std::min(distance + 1, count);
  const int64_t different = std::min(
      std::max(options.maxStepTokens, options.maxSequences), vocabSize());
  plan.stagedRows =
      std::min(options.stagingRows.value_or(different), different);
  plan.staging = weights->stagingBytes(plan.stagedRows, plan.stagedTables);
  staged = plan.stagedRows < different ? StagedIds(plan.stagedRows, vocabSize())
                                       : StagedIds();
  if (hasTablesInFiles())
    plan.keptIds = keptIds();
  plan.kept = weights->keptBytes(plan.keptIds);
  plan.counts = stem_table_count_bytes(vocabSize(), plan.keptIds);
}

void Engine::Impl::planMemory(const Checkpoint &checkpoint) {
  report.plan = {};
  weights = std::make_unique<EngineWeights>(
      std::vector<const stem_entry *>{prefill, decode, score}, module->tables(),
      TablePlaces(options.tables, options.layerPlaces, checkpoint),
      std::filesystem::path(), &checkpoint.tensors());
  report.plan.weights = weights->parameterBytes();
  planTables(checkpoint);
  report.plan.arena =
      std::max({arenaBytes(*prefill, options.maxStepTokens, 1, report.threads),
                arenaBytes(*score, options.maxStepTokens, 0, report.threads),
                arenaBytes(*decode, options.maxSequences, options.maxSequences,
                           report.threads)});
  report.plan.cache = cacheBytes(modelCache());
  if (__builtin_mul_overflow(options.maxSequences,
                             vocabSize() * int64_t(sizeof(float)),
                             &report.plan.logits))
    report.plan.logits = INT64_MAX;
}

std::string Engine::Impl::memoryAdvice() const {
  const MemoryPlan &plan = report.plan;
  const int64_t least = leastStagedRows();
  std::string advice;
  if (!std::ranges::all_of(report.tables, &PlacedTable::isInFile))
    advice = options.tables == TablePlacement::File
                 ? "--table-place for fewer layers leaves more tables in the "
                   "model's files, "
                 : "--tables=file leaves the tables in the model's files, ";
  if (plan.staging > 0 && plan.stagedRows > least)
    advice += fmt::format(
        "--staging-rows={} stages {} in place of {}, ", least,
        formatBytes(double(weights->stagingBytes(least, plan.stagedTables))),
        formatBytes(double(plan.staging)));
  return advice + options.memoryAdvice;
}

void Engine::Impl::plan(const Checkpoint &checkpoint) {
  // As many places as all sequences can fill.
  int64_t places = 0;
  if (!__builtin_mul_overflow(roundUp(options.maxPositions, kTile),
                              options.maxSequences, &places))
    options.maxStepTokens = std::min(options.maxStepTokens, places);
  options.maxStepTokens = roundUp(options.maxStepTokens, kTile);
  for (const LayerConfig &layer : config.layers)
    windows.push_back(static_cast<int64_t>(layer.window));
  planMemory(checkpoint);
  const MemoryBound bound(options.memory);
  if (options.tablesMayStayInFiles && report.plan.tables > 0 &&
      plannedBytes(bound) > bound.bytes) {
    options.tables = TablePlacement::File;
    planMemory(checkpoint);
  }
  // A plan that is refused is told by the error alone.
  const std::string text = report.plan.describe(report.tables);
  bound.require(plannedBytes(bound), fmt::format("{}: {}", name, text),
                memoryAdvice());
  if (options.onPlan)
    options.onPlan(text);
}

void Engine::Impl::allocate(const Checkpoint &checkpoint) {
  auto start = std::chrono::steady_clock::now();
  weights->load(checkpoint.tensors(), context.get());
  report.loadSeconds = secondsSince(start);
  stem_table_store_options storeOptions = {};
  storeOptions.struct_size = sizeof(storeOptions);
  storeOptions.staging_bytes = report.plan.staging;
  storeOptions.cache_ids = report.plan.keptIds;
  storeOptions.reader_threads = hasTablesInFiles() ? kReaderThreads : 0;
  stem_table_store *newStore = nullptr;
  throwIfFailed(context.get(), stem_table_store_create(
                                   context.get(), &storeOptions, &newStore));
  store.reset(newStore);
  weights->openTables(context.get(), store.get());
  makeCache(modelCache());
  arena = Arena(report.plan.arena, "the arena of a step");
}

std::unique_ptr<Engine> Engine::create(const Checkpoint &checkpoint,
                                       const EngineOptions &options) {
  auto impl = std::make_unique<Impl>(checkpoint, options);
  // What cannot be is refused before it is compiled.
  [[maybe_unused]] const TablePlaces places(options.tables, options.layerPlaces,
                                            checkpoint);
  impl->checkStagingRows();
  impl->compileModel(checkpoint);
  impl->plan(checkpoint);
  impl->allocate(checkpoint);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Engine::~Engine() = default;

const EngineReport &Engine::report() const { return impl->report; }
int64_t Engine::vocabSize() const { return impl->vocabSize(); }
int64_t Engine::steps() const { return impl->steps; }
int64_t Engine::stagingCuts() const { return impl->staged.cuts(); }
stem_table_statistics Engine::tableStatistics() const {
  stem_table_statistics statistics = {};
  statistics.struct_size = sizeof(statistics);
  throwIfFailed(impl->context.get(),
                stem_table_get_statistics(impl->store.get(), &statistics));
  return statistics;
}
int64_t Engine::maxPositions() const { return impl->options.maxPositions; }

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void Engine::Impl::checkIds(std::span<const int32_t> ids, const char *what,
                            std::optional<int32_t> ignored) const {
  int64_t bound = vocabSize();
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

int64_t Engine::Impl::length(int32_t sequence) const {
  checkSequence(sequence);
  return stem_kv_length(cache.get(), sequence);
}

/// How many of the next tokens the step has room for, whole tiles but for the
/// last.
int64_t Engine::Impl::take(const Step &step, std::span<const int32_t> ids) {
  const int64_t places = options.maxStepTokens - step.tokens();
  const int64_t count = std::min(static_cast<int64_t>(ids.size()), places);
  return staged.take(ids.first(static_cast<size_t>(count)), kTile);
}

void Engine::Impl::run(const stem_entry &entry, Step &step, float *output,
                       int64_t outputColumns) {
  if (step.empty())
    return;
  int64_t outputRows = outputColumns > 0
                           ? static_cast<int64_t>(step.outputRows.size())
                           : step.tokens();
  auto argument = [&](const stem_argument &argument) {
    switch (argument.kind) {
    case STEM_ARG_PARAM:
      return weights->tensor(entry, argument);
    case STEM_ARG_STORE:
      return handleTensor(store.get());
    case STEM_ARG_OUTPUT:
      return outputColumns > 0
                 ? denseTensor(output, STEM_F32, {outputRows, outputColumns})
                 : denseTensor(output, STEM_F32, {outputRows});
    default:
      return step.argument(entry.texts + argument.name);
    }
  };
  call(entry, step.tokens(), outputColumns > 0 ? outputRows : 0, argument);
  step.finish();
  staged.clear();
  ++steps;
}

int64_t Engine::length(int32_t sequence) const {
  return impl->length(sequence);
}

/// All is checked before the first sequence grows. Gives the rows of logits.
int64_t Engine::Impl::checkChunks(std::span<const PrefillChunk> chunks) const {
  int64_t rows = 0;
  std::map<int32_t, int64_t> lengths; // after the call
  for (const PrefillChunk &chunk : chunks) {
    checkSequence(chunk.sequence);
    checkIds(chunk.ids, "token id");
    int64_t count = static_cast<int64_t>(chunk.ids.size());
    int64_t &newLength =
        lengths.try_emplace(chunk.sequence, length(chunk.sequence))
            .first->second;
    newLength += count;
    checkLength(newLength);
    rows += chunk.allLogits ? count : (count > 0 ? 1 : 0);
  }
  return rows;
}

std::span<const float> Engine::prefill(std::span<const PrefillChunk> chunks) {
  impl->logits.resize(impl->checkChunks(chunks) * vocabSize());
  float *output = impl->logits.data();
  Step step = impl->newStep();
  auto flush = [&] {
    int64_t rows = static_cast<int64_t>(step.outputRows.size());
    impl->run(*impl->prefill, step, output, vocabSize());
    output += rows * vocabSize();
  };
  for (const PrefillChunk &chunk : chunks) {
    for (std::span<const int32_t> rest = chunk.ids; !rest.empty();) {
      const int64_t size = impl->take(step, rest);
      if (size == 0) {
        flush();
        continue;
      }
      int64_t firstRow = step.tokens();
      step.append(chunk.sequence, length(chunk.sequence), rest.first(size), {},
                  kTile);
      rest = rest.subspan(size);
      int64_t row = chunk.allLogits ? 0
                    : rest.empty()  ? size - 1 // the last token's
                                    : size;
      for (; row < size; ++row)
        step.outputRows.push_back(static_cast<int32_t>(firstRow + row));
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
  impl->logits.resize(ids.size() * vocabSize());
  float *output = impl->logits.data();
  Step step = impl->newStep();
  auto flush = [&] {
    const int64_t rows = step.tokens();
    impl->run(*impl->decode, step, output, vocabSize());
    output += rows * vocabSize();
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::span<const int32_t> id = ids.subspan(i, 1);
    if (impl->staged.take(id, /*tile=*/1) == 0) {
      flush();
      impl->staged.take(id, /*tile=*/1);
    }
    step.outputRows.push_back(static_cast<int32_t>(step.tokens()));
    step.append(sequences[i], length(sequences[i]), id, {}, /*tile=*/1);
  }
  flush();
  return impl->logits;
}

/// Windows side by side in one step, a sequence slot for each.
class Engine::Impl::Scorer {
public:
  explicit Scorer(Impl &impl) : impl(impl), step(impl.newStep()) {}

  void add(const ScoreWindow &window);
  std::vector<float> finish() {
    flush();
    return std::move(losses);
  }

private:
  struct Piece {
    int64_t firstRow, count;
  };

  void check(const ScoreWindow &window) const;
  void flush();

  Impl &impl;
  Step step;
  std::vector<Piece> pieces; ///< of the step: where its rows are not padding
  int32_t slot = 0;
  std::vector<float> stepLosses, losses;
};

void Engine::Impl::Scorer::check(const ScoreWindow &window) const {
  if (window.ids.size() != window.labels.size())
    fail("a window has {} ids and {} labels", window.ids.size(),
         window.labels.size());
  impl.checkLength(static_cast<int64_t>(window.ids.size()));
  impl.checkIds(window.ids, "token id");
  impl.checkIds(window.labels, "label", /*ignored=*/-100);
}

void Engine::Impl::Scorer::flush() {
  stepLosses.resize(step.tokens());
  impl.run(*impl.score, step, stepLosses.data(), /*outputColumns=*/0);
  for (Piece piece : pieces)
    losses.insert(losses.end(), stepLosses.begin() + piece.firstRow,
                  stepLosses.begin() + piece.firstRow + piece.count);
  pieces.clear();
  slot = 0;
}

void Engine::Impl::Scorer::add(const ScoreWindow &window) {
  check(window);
  int64_t maxTokens = impl.options.maxStepTokens;
  int64_t count = static_cast<int64_t>(window.ids.size());
  if (slot == impl.options.maxSequences ||
      step.tokens() + roundUp(count, kTile) > maxTokens)
    flush();
  impl.truncate(slot, 0);
  for (int64_t begin = 0; begin < count;) {
    const int64_t size = impl.take(step, window.ids.subspan(begin));
    // What a step has no room for goes on in the next one, in its sequence.
    if (size == 0) {
      int32_t current = slot;
      flush();
      slot = current;
      continue;
    }
    pieces.push_back({step.tokens(), size});
    step.append(slot, begin, window.ids.subspan(begin, size),
                window.labels.subspan(begin, size), kTile);
    begin += size;
  }
  ++slot;
}

std::vector<float> Engine::score(std::span<const ScoreWindow> windows) {
  Impl::Scorer scorer(*impl);
  for (const ScoreWindow &window : windows)
    scorer.add(window);
  return scorer.finish();
}

void Engine::Impl::truncate(int32_t sequence, int64_t newLength) {
  checkSequence(sequence);
  throwIfFailed(context.get(), stem_kv_truncate(context.get(), cache.get(),
                                                sequence, newLength));
}

void Engine::truncate(int32_t sequence, int64_t newLength) {
  impl->truncate(sequence, newLength);
}

void Engine::fork(int32_t from, int32_t to) {
  impl->checkSequence(from);
  impl->checkSequence(to);
  throwIfFailed(impl->context.get(),
                stem_kv_fork(impl->context.get(), impl->cache.get(), from, to));
}
