//===- TokenShard.h - Tokenized texts in a file -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shard is a safetensors file: the ids of all documents one after the other,
// where each document ends, and in its metadata what both were made of. See
// docs/training-data.md.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_TOKENSHARD_H
#define STEM_DATA_TOKENSHARD_H

#include "stem/Data/DocumentReader.h"
#include "stem/Model/Safetensors.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// What decides on a shard's ids, besides the texts.
struct ShardSettings {
  std::string tokenizerSha256;
  int64_t vocabulary = 0; ///< ids lie below
  /// Put before and after each document, unless it begins or ends with it.
  std::optional<int32_t> beginToken, endToken;
  /// Whether the text of a special token is that token.
  bool parsesSpecial = false;
  /// See DocumentOptions.
  std::string separator = "\f";
};

/// A mapped shard. Ids are checked when it is opened; reading them afterwards
/// cannot fail. May be moved.
class TokenShard {
public:
  /// Throws an Error for what is no shard, has another version, or is damaged.
  /// Reads the whole file once.
  static TokenShard open(const std::filesystem::path &path);

  /// All but the comparison of contents with their SHA-256. The bytes outlive
  /// the result; `name` stands for the file in messages.
  static TokenShard parse(std::span<const std::byte> bytes, std::string name);

  const std::string &fileName() const { return file.fileName(); }
  const ShardSettings &settings() const { return shardSettings; }
  const std::vector<SourceText> &sources() const { return texts; }
  /// SHA-256 of ids and document ends: equal contents, equal data.
  const std::string &contentSha256() const { return content; }

  uint64_t tokenCount() const { return tokens; }
  uint64_t documentCount() const { return documents; }
  uint64_t documentBegin(uint64_t document) const {
    return document ? documentEnd(document - 1) : 0;
  }
  uint64_t documentEnd(uint64_t document) const;

  /// The ids from `first` on, as many as there are places.
  void read(uint64_t first, std::span<int32_t> ids) const;

  /// \name Whether the shard is what a run asks for
  /// Each throws an Error that says what differs.
  /// @{

  /// The model's tokenizer and the number of its rows. `modelName` stands for
  /// it in the message.
  void requireModel(const std::string &tokenizerSha256, uint64_t vocabSize,
                    const std::string &modelName) const;
  /// The number of its rows alone.
  void requireVocabulary(uint64_t vocabSize,
                         const std::string &modelName) const;
  /// All but the tokenizer and the vocabulary.
  void requireSettings(const ShardSettings &settings) const;
  /// These texts in this order, unchanged. Reads them.
  void requireSources(const std::vector<std::filesystem::path> &files) const;
  /// @}

private:
  explicit TokenShard(SafetensorsFile file) : file(std::move(file)) {}
  void readHeader();
  void checkDocumentEnds() const;
  void checkIds() const;
  void verifyContent() const;
  uint64_t documentOf(uint64_t token) const;

  SafetensorsFile file;
  ShardSettings shardSettings;
  std::vector<SourceText> texts;
  std::string content;
  DType dtype = DType::U32;
  std::span<const std::byte> ids, ends;
  uint64_t tokens = 0, documents = 0;
};

/// Writes a shard document by document. Until finish() the ids lie in files
/// without a lasting name beside it: memory does not grow with them, and
/// nothing appears under `path` before all is written.
class TokenShardWriter {
public:
  TokenShardWriter(std::filesystem::path path, ShardSettings settings);
  ~TokenShardWriter();

  /// Ids of the document that is open. Throws for one outside the vocabulary.
  void append(std::span<const int32_t> ids);
  /// Ends a document and gives its ids, with begin and end token. One without
  /// an id of its own is left out: 0.
  uint64_t endDocument();

  /// Ends the document and writes the shard. Throws when it holds none.
  void finish(const std::vector<SourceText> &sources);

  uint64_t tokenCount() const { return tokens; }
  uint64_t documentCount() const { return documents; }

private:
  class Spool;
  void put(int32_t id);

  std::filesystem::path path;
  ShardSettings settings;
  std::unique_ptr<Spool> idSpool, endSpool;
  uint64_t tokens = 0, documents = 0;
  bool isOpen = false; ///< the document has ids of its own
  uint64_t begin = 0;  ///< of the open document
  int32_t last = -1;   ///< id that was put
};

/// \name The header
/// @{
inline constexpr const char *shardFormat = "stem-token-shard";
inline constexpr const char *shardVersion = "1";

/// U16 where the vocabulary allows it.
DType shardDType(int64_t vocabulary);
/// @}

} // namespace stem

#endif // STEM_DATA_TOKENSHARD_H
