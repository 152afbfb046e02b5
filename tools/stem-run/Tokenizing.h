//===- Tokenizing.h - The tokenizer of a model, and text files ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TOKENIZING_H
#define STEM_TOOLS_STEM_RUN_TOKENIZING_H

#include "stem/Model/Checkpoint.h"
#include "stem/Model/Tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// Whether the folder or file holds one at all.
bool hasTokenizer(const Checkpoint &checkpoint);

/// The tokenizer, or nothing when the model has none.
std::optional<Tokenizer> loadTokenizer(const Checkpoint &checkpoint);

/// For commands that copy a folder's tokenizer without reading text: a warning
/// where it cannot be read.
void warnOfTokenizer(const Checkpoint &checkpoint);

/// For commands that read text: an Error when there is none, or when a token's
/// id lies outside the model's vocabulary. `instead` says what works without.
Tokenizer requireTokenizer(const Checkpoint &checkpoint,
                           std::string_view instead);

/// End ids of the checkpoint and the tokenizer together, sorted.
std::vector<int32_t> endIds(const Checkpoint &checkpoint,
                            const Tokenizer *tokenizer);

/// Ids of tokens that control rather than spell: those that the tokenizer has
/// as special, and what begins, ends and pads a text. Rising.
std::vector<int32_t> specialIds(const Checkpoint &checkpoint,
                                const Tokenizer &tokenizer);

/// The ids as i32; an Error names id, place and table size for one outside.
std::vector<int32_t> checkedIds(std::span<const int64_t> ids,
                                uint64_t vocabSize, std::string_view where);

/// What several texts give together.
void addReport(EncodeReport &sum, const EncodeReport &report);
/// Prints warnings. `hint` ends that of special tokens.
void warnOfEncoding(const EncodeReport &report, const std::string &where,
                    const std::string &hint = "");

/// Encodes and gives what there is to warn of; an Error names `where`.
std::vector<int32_t> encodeQuietly(const Tokenizer &tokenizer,
                                   std::span<const TextPart> parts,
                                   bool addSpecialTokens,
                                   const std::string &where,
                                   EncodeReport &report);

/// Encodes and prints warnings: special tokens that were taken as text,
/// characters without a token. `hint` ends the first of these.
std::vector<int32_t> encodeText(const Tokenizer &tokenizer,
                                std::span<const TextPart> parts,
                                bool addSpecialTokens, const std::string &where,
                                const std::string &hint = "");

struct EncodeTextsOptions {
  bool parseSpecial = false;
  bool addSpecialTokens = false;
  std::string hint; ///< as of encodeText
  int threads = 0;  ///< 0: physical cores
};

/// Each text on its own; the warnings are of all, an Error is the first one's.
std::vector<std::vector<int32_t>>
encodeTexts(const Tokenizer &tokenizer, std::span<const std::string> texts,
            const std::string &where, const EncodeTextsOptions &options = {});

/// A text file, whole. An Error names the byte that is not UTF-8, and of JSON
/// lines the line.
std::string readText(const std::filesystem::path &path);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TOKENIZING_H
