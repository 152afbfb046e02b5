//===- Tokenizing.cpp - The tokenizer of a model, and text files --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tokenizing.h"

#include "CommandLine.h"
#include "stem/Data/TextDocuments.h"
#include "stem/Model/TokenizerGguf.h"
#include "stem/Model/Utf8.h"
#include "stem/Runtime/Context.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"
#include "stem/Support/Files.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <set>

using namespace stem;
namespace fs = std::filesystem;

bool stem::hasTokenizer(const Checkpoint &checkpoint) {
  if (const GgufFile *file = checkpoint.gguf())
    return file->has("tokenizer.ggml.model");
  return pathExists(checkpoint.path() / "tokenizer.json");
}

std::optional<Tokenizer> stem::loadTokenizer(const Checkpoint &checkpoint) {
  if (!hasTokenizer(checkpoint))
    return std::nullopt;
  if (const GgufFile *file = checkpoint.gguf())
    return tokenizerFromGguf(*file);
  return Tokenizer::fromFolder(checkpoint.path());
}

void stem::warnOfTokenizer(const Checkpoint &checkpoint) {
  if (checkpoint.gguf())
    return;
  try {
    loadTokenizer(checkpoint);
  } catch (const Error &error) {
    printWarning(fmt::format("{}; it is copied as it is, and no text can be "
                             "read with it",
                             error.what()));
  }
}

Tokenizer stem::requireTokenizer(const Checkpoint &checkpoint,
                                 std::string_view instead) {
  std::optional<Tokenizer> tokenizer = loadTokenizer(checkpoint);
  if (!tokenizer)
    fail("{}: there is no tokenizer ({}), so text cannot be read; {}",
         checkpoint.path().string(),
         checkpoint.gguf() ? "tokenizer.ggml.model in its metadata"
                           : "tokenizer.json",
         instead);
  tokenizer->checkFits(static_cast<int64_t>(checkpoint.config().vocabSize),
                       checkpoint.path().string());
  return std::move(*tokenizer);
}

/// Sorted, each once, without those that have no row; the checkpoint has warned
/// of them.
static std::vector<int32_t> idsWithRows(const std::vector<int64_t> &ids,
                                        const Checkpoint &checkpoint) {
  std::set<int32_t> result;
  for (const int64_t id : ids)
    if (id >= 0 && static_cast<uint64_t>(id) < checkpoint.config().vocabSize)
      result.insert(static_cast<int32_t>(id));
  return {result.begin(), result.end()};
}

std::vector<int32_t> stem::endIds(const Checkpoint &checkpoint,
                                  const Tokenizer *tokenizer) {
  std::vector<int64_t> ids = checkpoint.endTokens();
  if (tokenizer)
    ids.insert(ids.end(), tokenizer->endIds().begin(),
               tokenizer->endIds().end());
  return idsWithRows(ids, checkpoint);
}

std::vector<int32_t> stem::specialIds(const Checkpoint &checkpoint,
                                      const Tokenizer &tokenizer) {
  const ModelConfig &config = checkpoint.config();
  const std::vector<int32_t> ends = endIds(checkpoint, &tokenizer);
  std::vector<int64_t> ids(ends.begin(), ends.end());
  for (int32_t id = 0; id < tokenizer.vocabSize(); ++id)
    if (tokenizer.isSpecial(id))
      ids.push_back(id);
  ids.push_back(tokenizer.beginId().value_or(-1));
  ids.push_back(config.bosToken.value_or(-1));
  ids.push_back(config.padToken.value_or(-1));
  return idsWithRows(ids, checkpoint);
}

std::vector<int32_t> stem::checkedIds(std::span<const int64_t> ids,
                                      uint64_t vocabSize,
                                      std::string_view where) {
  std::vector<int32_t> result;
  result.reserve(ids.size());
  for (size_t position = 0; position < ids.size(); ++position) {
    const int64_t id = ids[position];
    if (id < 0 || static_cast<uint64_t>(id) >= vocabSize)
      fail("{}: token id {} at position {} is out of range; the model's tables "
           "have {} rows, ids 0 to {}",
           where, id, position, vocabSize, vocabSize - 1);
    result.push_back(static_cast<int32_t>(id));
  }
  return result;
}

std::vector<int32_t> stem::encodeQuietly(const Tokenizer &tokenizer,
                                         std::span<const TextPart> parts,
                                         bool addSpecialTokens,
                                         const std::string &where,
                                         EncodeReport &report) {
  EncodeOptions options;
  options.addSpecialTokens = addSpecialTokens;
  try {
    return tokenizer.encode(parts, options, &report);
  } catch (const Error &error) {
    fail("{}: {}", where, error.what());
  }
}

void stem::addReport(EncodeReport &sum, const EncodeReport &report) {
  sum.droppedSymbols += report.droppedSymbols;
  for (const std::string &token : report.specialTokensAsText)
    if (std::ranges::find(sum.specialTokensAsText, token) ==
        sum.specialTokensAsText.end())
      sum.specialTokensAsText.push_back(token);
}

void stem::warnOfEncoding(const EncodeReport &report, const std::string &where,
                          const std::string &hint) {
  if (!report.specialTokensAsText.empty())
    printWarning(fmt::format("{}: {} taken as text, not as special tokens{}",
                             where, fmt::join(report.specialTokensAsText, " "),
                             hint));
  if (report.droppedSymbols)
    printWarning(fmt::format("{}: {} characters have no token and were left "
                             "out",
                             where, report.droppedSymbols));
}

std::vector<int32_t> stem::encodeText(const Tokenizer &tokenizer,
                                      std::span<const TextPart> parts,
                                      bool addSpecialTokens,
                                      const std::string &where,
                                      const std::string &hint) {
  EncodeReport report;
  std::vector<int32_t> ids =
      encodeQuietly(tokenizer, parts, addSpecialTokens, where, report);
  warnOfEncoding(report, where, hint);
  return ids;
}

std::vector<std::vector<int32_t>>
stem::encodeTexts(const Tokenizer &tokenizer,
                  std::span<const std::string> texts, const std::string &where,
                  const EncodeTextsOptions &options) {
  std::vector<std::vector<int32_t>> ids(texts.size());
  std::vector<EncodeReport> reports(texts.size());
  std::vector<std::string> faults(texts.size());
  const ContextPtr context = createContext(options.threads);
  parallelFor(
      context.get(), static_cast<int64_t>(texts.size()), [&](int64_t task) {
        const auto i = static_cast<size_t>(task);
        const TextPart part{texts[i], options.parseSpecial};
        try {
          ids[i] = encodeQuietly(tokenizer, {&part, 1},
                                 options.addSpecialTokens, where, reports[i]);
        } catch (const Error &error) {
          faults[i] = error.what();
        }
      });
  EncodeReport sum;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!faults[i].empty())
      fail("{}", faults[i]);
    addReport(sum, reports[i]);
  }
  warnOfEncoding(sum, where, options.hint);
  return ids;
}

std::string stem::readText(const fs::path &path) {
  if (!pathExists(path))
    fail("{}: no such file", path.string());
  std::string text = readWholeFile(path, uint64_t(1) << 30);
  // Here, and not where documents are encoded, a byte's number is that in the
  // file.
  if (const std::optional<size_t> offset = findInvalidUtf8(text)) {
    const std::string name = path.string();
    const auto line = static_cast<size_t>(
        std::ranges::count(std::string_view(text).substr(0, *offset), '\n'));
    fail("{}: {}", isJsonLines(name) ? linePlace(name, line) : name,
         describeInvalidUtf8(text, *offset));
  }
  return text;
}
