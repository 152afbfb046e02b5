//===- TextShard.h - From texts to a token shard ----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_TEXTSHARD_H
#define STEM_DATA_TEXTSHARD_H

#include "stem/Data/TokenShard.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Model/Tokenizer.h"

#include "stem-c/Runtime.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stem {

/// SHA-256 of a model's tokenizer.json; for a GGUF file of the one that
/// `stem-run import` writes.
std::string tokenizerSha256(const Checkpoint &checkpoint);

/// The settings for a tokenizer: its begin token where it adds one, and an end
/// token: the one that it adds, else the first of those that end generation.
/// Throws for a tokenizer that adds more than one token before or after a text.
ShardSettings shardSettings(const Tokenizer &tokenizer,
                            std::string tokenizerSha256);

struct TokenizeOptions {
  size_t pieceBytes = DocumentOptions().pieceBytes;
  /// Text that is tokenized at a time, by all threads of the context.
  size_t batchBytes = 16 << 20;
  stem_context *context = nullptr; ///< null: one thread
  /// Told the bytes read so far, of all texts.
  std::function<void(uint64_t)> onProgress = {};
};

/// What a user should hear about.
struct TokenizeReport {
  uint64_t tokens = 0, documents = 0;
  uint64_t textBytes = 0;
  uint64_t emptyDocuments = 0; ///< left out
  uint64_t droppedSymbols = 0; ///< see EncodeReport
  std::vector<std::string> specialTokensAsText;
};

/// Tokenizes texts into a shard at `path`. Throws for a text without a token
/// and for text that is not UTF-8; then nothing is written. Memory: two batches
/// of text and their ids, and what the tokenizer takes for a piece on each
/// thread; a JSON line has to fit as well. The ids do not depend on the
/// batches or the threads.
TokenizeReport writeTextShard(const std::filesystem::path &path,
                              const std::vector<std::filesystem::path> &files,
                              const Tokenizer &tokenizer,
                              const ShardSettings &settings,
                              const TokenizeOptions &options = {});

/// What a shard has to be made of, and for which model.
struct ShardRequest {
  std::filesystem::path path;
  /// None: the shard has to be there already, whatever it was made of.
  std::vector<std::filesystem::path> files;
  ShardSettings settings;
  uint64_t vocabSize; ///< rows of the model
  std::string modelName;
};

struct PreparedShard {
  TokenShard shard;
  std::optional<TokenizeReport> written; ///< when it was not there
};

/// Opens the shard, written first where there is none. Throws when the one that
/// is there does not fit.
PreparedShard prepareShard(const ShardRequest &request,
                           const Tokenizer &tokenizer,
                           const TokenizeOptions &options = {});

} // namespace stem

#endif // STEM_DATA_TEXTSHARD_H
