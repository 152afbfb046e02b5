//===- TrainingData.cpp - Where the batches of a run come from ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainingData.h"

#include "CommandLine.h"
#include "Progress.h"
#include "Tokenizing.h"
#include "stem/Data/DocumentSplit.h"
#include "stem/Data/Sequences.h"
#include "stem/Data/TextShard.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <numeric>
#include <optional>

using namespace stem;
namespace fs = std::filesystem;

namespace {

/// Ids that were seen.
class Presence {
public:
  void add(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
      const auto id = static_cast<size_t>(token);
      if (id >= isSeen.size())
        isSeen.resize(id + 1);
      isSeen[id] = true;
    }
  }
  std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (size_t id = 0; id < isSeen.size(); ++id)
      if (isSeen[id])
        ids.push_back(static_cast<int32_t>(id));
    return ids;
  }

private:
  std::vector<bool> isSeen;
};

/// The batch of --batch-ids, again and again.
class GivenBatch : public TrainingData {
public:
  GivenBatch(Batch given, std::string name)
      : batch(std::move(given)), name(std::move(name)) {}

  void next(Batch &out) override {
    out = batch;
    ++taken.index;
  }
  DataPosition position() const override { return taken; }
  void seek(const DataPosition &position) override { taken = position; }
  int64_t batchesPerEpoch() const override { return 1; }
  int64_t validationBatches() const override { return 0; }
  void readValidation(int64_t, Batch &) const override {}
  BatchBound bound(int64_t tile) const override {
    return boundOfRows(batch.rows, batch.length, tile);
  }

  std::vector<int32_t> presentIds() const override {
    Presence presence;
    presence.add(batch.ids);
    return presence.ids();
  }

  Json identity() const override {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(batch.ids)));
    hash.update(std::as_bytes(std::span(batch.labels)));
    return {{"batch_ids_sha256", hash.finish()},
            {"sequences", batch.rows},
            {"length", batch.length}};
  }
  std::string description() const override {
    return fmt::format("{}: {} x {} tokens at each step, {} labels", name,
                       batch.rows, batch.length, batch.labelCount);
  }

private:
  Batch batch;
  std::string name;
  DataPosition taken;
};

/// Sequences of a shard, shuffled.
class ShardData : public TrainingData {
public:
  ShardData(TokenShard opened, const TrainingDataOptions &options,
            uint64_t maxPositions)
      : options(options), shard(std::move(opened)),
        split(shard.documentCount(), options.validation, options.seed,
              shard.fileName()),
        training(shard, split, DataPart::Training,
                 sequenceOptions(options, maxPositions)),
        order(training.count(), options.seed) {
    if (options.validation > 0)
      validation.emplace(shard, split, DataPart::Validation,
                         sequenceOptions(options, maxPositions));
  }

  void next(Batch &batch) override {
    training.read(order.take(taken, static_cast<uint64_t>(options.rows)),
                  batch);
  }
  DataPosition position() const override { return taken; }
  void seek(const DataPosition &position) override { taken = position; }

  int64_t batchesPerEpoch() const override {
    return std::max<int64_t>(1, static_cast<int64_t>(training.count()) /
                                    options.rows);
  }

  int64_t validationBatches() const override {
    const auto count =
        static_cast<int64_t>(validation ? validation->count() : 0);
    return (count + options.rows - 1) / options.rows;
  }

  void readValidation(int64_t index, Batch &batch) const override {
    const auto first = static_cast<uint64_t>(index * options.rows);
    std::vector<uint64_t> rows(std::min(static_cast<uint64_t>(options.rows),
                                        validation->count() - first));
    std::iota(rows.begin(), rows.end(), first);
    validation->read(rows, batch);
  }

  std::vector<int32_t> presentIds() const override {
    constexpr uint64_t blockTokens = 1 << 16;
    Presence presence;
    std::vector<int32_t> block;
    for (uint64_t i = 0; i < shard.documentCount(); ++i) {
      if (split.isValidation(i))
        continue;
      const uint64_t end = shard.documentEnd(i);
      for (uint64_t at = shard.documentBegin(i); at < end; at += block.size()) {
        block.resize(std::min(blockTokens, end - at));
        shard.read(at, block);
        presence.add(block);
      }
    }
    return presence.ids();
  }

  BatchBound bound(int64_t tile) const override {
    BatchBound most = boundOf(training, tile);
    if (validation) {
      const BatchBound other = boundOf(*validation, tile);
      most = {std::max(most.tokens, other.tokens),
              std::max(most.sequences, other.sequences),
              std::max(most.longest, other.longest)};
    }
    return most;
  }

  Json identity() const override {
    return {{"data_sha256", shard.contentSha256()},
            {"sequences", options.rows},
            {"length", options.length},
            {"respect_documents", options.respectDocuments},
            {"validation", options.validation},
            {"data_seed", options.seed}};
  }

  std::string description() const override {
    std::string text =
        fmt::format("{} tokens, {} documents; {} sequences of {} to train on",
                    shard.tokenCount(), shard.documentCount(), training.count(),
                    options.length);
    if (validation)
      text += fmt::format(", {} to validate on", validation->count());
    return text;
  }

private:
  BatchBound boundOf(const Sequences &sequences, int64_t tile) const {
    const Sequences::RowBound row =
        sequences.boundOfRow(static_cast<uint64_t>(tile));
    return {options.rows * static_cast<int64_t>(row.tokens),
            options.rows * static_cast<int64_t>(row.documents),
            static_cast<int64_t>(row.longest)};
  }

  static SequenceOptions sequenceOptions(const TrainingDataOptions &options,
                                         uint64_t maxPositions) {
    return {.length = static_cast<uint64_t>(options.length),
            .maxPositions = maxPositions,
            .respectDocuments = options.respectDocuments};
  }

  TrainingDataOptions options;
  TokenShard shard;
  DocumentSplit split;
  Sequences training;
  SequenceOrder order;
  std::optional<Sequences> validation;
  DataPosition taken;
};

uint64_t bytesOf(const std::vector<fs::path> &files) {
  uint64_t bytes = 0;
  for (const fs::path &file : files) {
    std::error_code ignored; // the reader says what is wrong
    const uint64_t size = fs::file_size(file, ignored);
    bytes += ignored ? 0 : size;
  }
  return bytes;
}

void printTokenized(const TokenizeReport &report, const fs::path &path) {
  printStderr("{}: {} tokens, {} document{}\n", path.string(), report.tokens,
              report.documents, report.documents == 1 ? "" : "s");
  if (report.emptyDocuments)
    printNote(fmt::format("{} documents without text are left out",
                          report.emptyDocuments));
  if (report.droppedSymbols)
    printWarning(fmt::format("{} characters have no token and are left out",
                             report.droppedSymbols));
  if (!report.specialTokensAsText.empty())
    printWarning(fmt::format("special tokens in the texts are text: {}; "
                             "--special takes them as tokens",
                             fmt::join(report.specialTokensAsText, ", ")));
}

/// A shard that is there has ids; that they are the model's is up to the user.
std::unique_ptr<TrainingData>
openWithoutTokenizer(const Checkpoint &checkpoint,
                     const TrainingDataOptions &options) {
  const ModelConfig &config = checkpoint.config();
  TokenShard shard = TokenShard::open(options.shard);
  shard.requireVocabulary(config.vocabSize, checkpoint.path().string());
  printNote(fmt::format("{}: there is no tokenizer; {} is taken as it is",
                        checkpoint.path().string(), options.shard.string()));
  return std::make_unique<ShardData>(std::move(shard), options,
                                     config.maxPositions);
}

std::unique_ptr<TrainingData> openShard(const Checkpoint &checkpoint,
                                        const TrainingDataOptions &options,
                                        stem_context *context) {
  const ModelConfig &config = checkpoint.config();
  const uint64_t maxPositions = config.maxPositions;
  checkSequenceLength(static_cast<uint64_t>(options.length), maxPositions);
  if (options.files.empty() && !hasTokenizer(checkpoint))
    return openWithoutTokenizer(checkpoint, options);
  const Tokenizer tokenizer = requireTokenizer(
      checkpoint, "give --batch-ids, or --shard of a file that is there");
  ShardRequest request{options.shard, options.files,
                       shardSettings(tokenizer, tokenizerSha256(checkpoint)),
                       config.vocabSize, checkpoint.path().string()};
  request.settings.parsesSpecial = options.parsesSpecial;
  request.settings.separator = options.separator;
  std::optional<PreparedShard> prepared;
  {
    Progress progress("tokenizing",
                      static_cast<double>(bytesOf(options.files)));
    prepared =
        prepareShard(request, tokenizer,
                     {.context = context, .onProgress = [&](uint64_t bytes) {
                        progress.update(static_cast<double>(bytes));
                      }});
  }
  if (prepared->written)
    printTokenized(*prepared->written, options.shard);
  return std::make_unique<ShardData>(std::move(prepared->shard), options,
                                     maxPositions);
}

} // namespace

Batch stem::readGivenBatch(const Checkpoint &checkpoint, const fs::path &path) {
  return readBatchIds(path, {.vocabulary = checkpoint.config().vocabSize,
                             .maxPositions = checkpoint.config().maxPositions});
}

std::unique_ptr<TrainingData>
stem::openTrainingData(const Checkpoint &checkpoint,
                       const TrainingDataOptions &options,
                       stem_context *context) {
  if (!options.batchIds.empty())
    return std::make_unique<GivenBatch>(
        readGivenBatch(checkpoint, options.batchIds),
        options.batchIds.string());
  return openShard(checkpoint, options, context);
}
