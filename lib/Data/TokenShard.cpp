//===- TokenShard.cpp - Reading tokenized texts ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/TokenShard.h"

#include "ShardHeader.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <cstring>

using namespace stem;

namespace {

/// Pages of a mapping that are looked at before they are given back.
constexpr uint64_t kScanBytes = 4 << 20;

/// The file's bytes need not be aligned.
template <typename T> T load(const std::byte *bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void copyIds(const std::byte *bytes, uint64_t first, std::span<int32_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(load<T>(bytes, first + i));
}

template <typename T>
uint64_t largest(std::span<const std::byte> bytes, uint64_t first,
                 uint64_t count) {
  T result = 0;
  for (uint64_t i = 0; i < count; ++i)
    result = std::max(result, load<T>(bytes.data(), first + i));
  return result;
}

/// Visits ranges [first, first + count) of elements, and lets their pages go.
template <typename Visit>
void scan(const SafetensorsFile &file, std::span<const std::byte> bytes,
          uint64_t elementBytes, const Visit &visit) {
  for (uint64_t at = 0; at < bytes.size(); at += kScanBytes) {
    const uint64_t size = std::min<uint64_t>(kScanBytes, bytes.size() - at);
    visit(at / elementBytes, size / elementBytes);
    file.release(bytes.subspan(at, size));
  }
}

std::span<const std::byte> getVector(const SafetensorsFile &file,
                                     const char *name, DType dtype) {
  const TensorView &view = file.get(name);
  if (view.dtype != dtype || view.shape.size() != 1)
    fail("{}: tensor \"{}\" has type {} and {} dimensions, a shard of this "
         "vocabulary has {} and one; {}",
         file.fileName(), name, dtypeName(view.dtype), view.shape.size(),
         dtypeName(dtype), shardAdvice);
  return view.data;
}

/// Enough of a SHA-256 to tell it from others.
std::string shortHash(const std::string &hash) { return hash.substr(0, 12); }

std::string tokenPhrase(std::optional<int32_t> id) {
  return id ? fmt::format("token {}", *id) : "no token";
}

} // namespace

DType stem::shardDType(int64_t vocabulary) {
  return vocabulary <= 65536 ? DType::U16 : DType::U32;
}

TokenShard TokenShard::open(const std::filesystem::path &path) {
  TokenShard shard(SafetensorsFile::open(path));
  shard.readHeader();
  shard.verifyContent();
  return shard;
}

TokenShard TokenShard::parse(std::span<const std::byte> bytes,
                             std::string name) {
  TokenShard shard(SafetensorsFile::parse(bytes, std::move(name)));
  shard.readHeader();
  return shard;
}

void TokenShard::readHeader() {
  ShardHeader header = ShardHeader::parse(file);
  shardSettings = std::move(header.settings);
  texts = std::move(header.sources);
  content = hashText(header.tokensSha256 + header.endsSha256);
  dtype = shardDType(shardSettings.vocabulary);
  ids = getVector(file, "tokens", dtype);
  ends = getVector(file, "document_ends", DType::U64);
  tokens = ids.size() / *dtypeBytes(dtype, 1);
  documents = ends.size() / sizeof(uint64_t);
  checkDocumentEnds();
  checkIds();
}

uint64_t TokenShard::documentEnd(uint64_t document) const {
  return load<uint64_t>(ends.data(), document);
}

void TokenShard::checkDocumentEnds() const {
  if (documents == 0 || tokens == 0)
    fail("{}: holds {} documents and {} ids, so there is nothing in it; {}",
         fileName(), documents, tokens, shardAdvice);
  uint64_t before = 0;
  scan(file, ends, sizeof(uint64_t), [&](uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) {
      const uint64_t end = documentEnd(i);
      if (end <= before || end > tokens)
        fail("{}: document {} ends at {}, which is not between {} and the {} "
             "ids there are; {}",
             fileName(), i, end, before + 1, tokens, shardAdvice);
      before = end;
    }
  });
  if (before != tokens)
    fail("{}: the last document ends at {}, but there are {} ids; {}",
         fileName(), before, tokens, shardAdvice);
}

void TokenShard::checkIds() const {
  const uint64_t vocabulary = static_cast<uint64_t>(shardSettings.vocabulary);
  const bool isNarrow = dtype == DType::U16;
  scan(file, ids, isNarrow ? 2 : 4, [&](uint64_t first, uint64_t count) {
    if ((isNarrow ? largest<uint16_t>(ids, first, count)
                  : largest<uint32_t>(ids, first, count)) < vocabulary)
      return;
    for (;; ++first) {
      const uint64_t id = isNarrow ? load<uint16_t>(ids.data(), first)
                                   : load<uint32_t>(ids.data(), first);
      if (id >= vocabulary)
        fail("{}: id {} at place {} (document {}) lies outside the vocabulary "
             "of {}; {}",
             fileName(), id, first, documentOf(first), vocabulary, shardAdvice);
    }
  });
}

/// The document that a token is of, for messages.
uint64_t TokenShard::documentOf(uint64_t token) const {
  uint64_t low = 0, high = documents - 1;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (documentEnd(middle) > token)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

void TokenShard::verifyContent() const {
  const ShardHeader header = ShardHeader::parse(file);
  const auto verify = [&](const char *what, std::span<const std::byte> bytes,
                          const std::string &wanted) {
    Sha256 hash;
    scan(file, bytes, 1, [&](uint64_t first, uint64_t count) {
      hash.update(bytes.subspan(first, count));
    });
    if (hash.finish() != wanted)
      fail("{}: is damaged: the SHA-256 of its {} is not the one that was "
           "written; {}",
           fileName(), what, shardAdvice);
  };
  verify("tokens", ids, header.tokensSha256);
  verify("document ends", ends, header.endsSha256);
}

void TokenShard::read(uint64_t first, std::span<int32_t> out) const {
  if (dtype == DType::U16)
    copyIds<uint16_t>(ids.data(), first, out);
  else
    copyIds<uint32_t>(ids.data(), first, out);
}

void TokenShard::requireModel(const std::string &tokenizerSha256,
                              uint64_t vocabSize,
                              const std::string &modelName) const {
  if (tokenizerSha256 != shardSettings.tokenizerSha256)
    fail("{}: was tokenized with another tokenizer than that of {} (SHA-256 "
         "{}…, the model's is {}…); {}",
         fileName(), modelName, shortHash(shardSettings.tokenizerSha256),
         shortHash(tokenizerSha256), shardAdvice);
  requireVocabulary(vocabSize, modelName);
}

void TokenShard::requireVocabulary(uint64_t vocabSize,
                                   const std::string &modelName) const {
  if (static_cast<uint64_t>(shardSettings.vocabulary) > vocabSize)
    fail("{}: has a vocabulary of {}, {} has {} rows; {}", fileName(),
         shardSettings.vocabulary, modelName, vocabSize, shardAdvice);
}

void TokenShard::requireSettings(const ShardSettings &settings) const {
  const auto require = [&](bool isEqual, const char *what,
                           const std::string &here, const std::string &asked) {
    if (!isEqual)
      fail("{}: was written with {} {}, asked for is {}; {}", fileName(), here,
           what, asked, shardAdvice);
  };
  const ShardSettings &own = shardSettings;
  require(own.beginToken == settings.beginToken, "before each document",
          tokenPhrase(own.beginToken), tokenPhrase(settings.beginToken));
  require(own.endToken == settings.endToken, "after each document",
          tokenPhrase(own.endToken), tokenPhrase(settings.endToken));
  const auto special = [](bool isParsed) {
    return isParsed ? "their tokens" : "text";
  };
  require(own.parsesSpecial == settings.parsesSpecial,
          "for special tokens that are spelled in a text",
          special(own.parsesSpecial), special(settings.parsesSpecial));
  const auto quoted = [](const std::string &text) {
    return fmt::format("\"{}\"", printable(text));
  };
  require(own.separator == settings.separator, "between documents",
          quoted(own.separator), quoted(settings.separator));
}

void TokenShard::requireSources(
    const std::vector<std::filesystem::path> &files) const {
  if (files.size() != texts.size())
    fail("{}: was made of {} texts, given are {}; {}", fileName(), texts.size(),
         files.size(), shardAdvice);
  for (size_t i = 0; i < files.size(); ++i) {
    uint64_t bytes;
    const std::string hash = hashFile(files[i], &bytes);
    if (hash != texts[i].sha256)
      fail(
          "{}: {} is not the text that it was made of, which was {} ({} bytes, "
          "SHA-256 {}…; now {} bytes, {}…); {}",
          fileName(), files[i].string(), printable(texts[i].name),
          texts[i].bytes, shortHash(texts[i].sha256), bytes, shortHash(hash),
          shardAdvice);
  }
}
