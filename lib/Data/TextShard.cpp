//===- TextShard.cpp - From texts to a token shard ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/TextShard.h"

#include "stem/Model/TokenizerGguf.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>

using namespace stem;

std::string stem::tokenizerSha256(const Checkpoint &checkpoint) {
  if (const GgufFile *file = checkpoint.gguf())
    return hashText(tokenizerJsonText(*file));
  return hashFile(checkpoint.path() / "tokenizer.json");
}

ShardSettings stem::shardSettings(const Tokenizer &tokenizer,
                                  std::string tokenizerSha256) {
  ShardSettings settings;
  settings.tokenizerSha256 = std::move(tokenizerSha256);
  settings.vocabulary = tokenizer.vocabSize();
  // What the tokenizer puts around nothing.
  const std::vector<int32_t> added = tokenizer.encode("");
  const bool addsBegin = tokenizer.addsBeginToken(),
             addsEnd = tokenizer.addsEndToken();
  if (added.size() > size_t{addsBegin} + size_t{addsEnd})
    fail("the tokenizer adds {} tokens around a text; training data can have "
         "one before and one after it",
         added.size());
  if (addsBegin)
    settings.beginToken = added.front();
  if (addsEnd)
    settings.endToken = added.back();
  else if (!tokenizer.endIds().empty())
    settings.endToken = tokenizer.endIds().front();
  return settings;
}

namespace {

/// A piece and what became of it.
struct Work {
  TextPiece piece;
  std::vector<int32_t> ids;
  EncodeReport report;
  std::exception_ptr error;
};

/// Collects pieces, tokenizes them together and writes them in order.
class BatchTokenizer {
public:
  BatchTokenizer(const Tokenizer &tokenizer, const ShardSettings &settings,
                 const TokenizeOptions &options, TokenShardWriter &writer)
      : tokenizer(tokenizer), settings(settings), options(options),
        writer(writer) {}

  void add(TextPiece piece) {
    bytes += sizeof(Work) + piece.text.size();
    batch.push_back({std::move(piece), {}, {}, nullptr});
    if (bytes >= options.batchBytes)
      flush();
  }

  void flush() {
    parallelFor(options.context, static_cast<int64_t>(batch.size()),
                [&](int64_t i) { encode(batch[static_cast<size_t>(i)]); });
    for (Work &work : batch)
      write(work);
    batch.clear();
    bytes = 0;
  }

  TokenizeReport report;

private:
  /// Errors wait, so that the first in the text is the one that is reported.
  void encode(Work &work) const {
    try {
      const TextPart part = {work.piece.text, settings.parsesSpecial};
      work.ids = tokenizer.encode({&part, 1}, {.addSpecialTokens = false},
                                  &work.report);
    } catch (const Error &error) {
      work.error = std::make_exception_ptr(
          Error(fmt::format("{}: {}", work.piece.place, error.what())));
    }
  }

  void write(const Work &work) {
    if (work.error)
      std::rethrow_exception(work.error);
    writer.append(work.ids);
    report.textBytes += work.piece.text.size();
    report.droppedSymbols += work.report.droppedSymbols;
    for (const std::string &token : work.report.specialTokensAsText)
      if (std::ranges::find(report.specialTokensAsText, token) ==
          report.specialTokensAsText.end())
        report.specialTokensAsText.push_back(token);
    if (work.piece.endsDocument && writer.endDocument() == 0)
      ++report.emptyDocuments;
  }

  const Tokenizer &tokenizer;
  const ShardSettings &settings;
  const TokenizeOptions &options;
  TokenShardWriter &writer;
  std::vector<Work> batch;
  size_t bytes = 0;
};

} // namespace

TokenizeReport
stem::writeTextShard(const std::filesystem::path &path,
                     const std::vector<std::filesystem::path> &files,
                     const Tokenizer &tokenizer, const ShardSettings &settings,
                     const TokenizeOptions &options) {
  TokenShardWriter writer(path, settings);
  BatchTokenizer batches(tokenizer, settings, options, writer);
  std::vector<SourceText> sources;
  uint64_t bytesBefore = 0;
  for (const std::filesystem::path &file : files) {
    const uint64_t documentsBefore = writer.documentCount();
    DocumentReader reader(file, {.separator = settings.separator,
                                 .pieceBytes = options.pieceBytes});
    for (TextPiece piece; reader.next(piece);) {
      batches.add(std::move(piece));
      if (options.onProgress)
        options.onProgress(bytesBefore + reader.bytesRead());
    }
    batches.flush();
    bytesBefore += reader.bytesRead();
    if (writer.documentCount() == documentsBefore)
      fail("{}: has {} bytes and no text; give files that hold some",
           file.string(), reader.bytesRead());
    sources.push_back(reader.source());
  }
  writer.finish(sources);
  batches.report.tokens = writer.tokenCount();
  batches.report.documents = writer.documentCount();
  return std::move(batches.report);
}

PreparedShard stem::prepareShard(const ShardRequest &request,
                                 const Tokenizer &tokenizer,
                                 const TokenizeOptions &options) {
  std::optional<TokenizeReport> written;
  if (!request.files.empty() && !pathExists(request.path))
    written = writeTextShard(request.path, request.files, tokenizer,
                             request.settings, options);
  TokenShard shard = TokenShard::open(request.path);
  shard.requireModel(request.settings.tokenizerSha256, request.vocabSize,
                     request.modelName);
  if (!request.files.empty() && !written) {
    shard.requireSettings(request.settings);
    shard.requireSources(request.files);
  }
  return {std::move(shard), std::move(written)};
}
