//===- TokenizerBpe.h - Byte-pair encoding of one word ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERBPE_H
#define STEM_LIB_MODEL_TOKENIZERBPE_H

#include "TokenizerJson.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace stem {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
using TokenMap =
    std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

/// The "model" of a tokenizer.json.
class Bpe {
public:
  explicit Bpe(const JsonNode &node);

  const TokenMap &vocabulary() const { return vocab; }

  /// Words never become these ids: the text of a special token is a token only
  /// where added tokens are looked for.
  void excludeSpecial(std::unordered_set<int32_t> ids);

  /// Appends the ids of one word and returns the number of its characters that
  /// were dropped, having no token. O(n log n) in the length of the word.
  size_t encodeWord(std::string_view word, std::vector<int32_t> &ids) const;

private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  struct Symbol;

  void readVocabulary(const JsonNode &node);
  void readMerges(const JsonNode &node);
  size_t splitIntoSymbols(std::string_view word,
                          std::vector<int32_t> &symbols) const;
  bool addByteTokens(std::string_view character,
                     std::vector<int32_t> &symbols) const;
  void merge(const std::vector<int32_t> &symbols,
             std::vector<int32_t> &ids) const;
  const Merge *findMerge(int32_t left, int32_t right) const;

  TokenMap vocab;
  std::unordered_map<uint64_t, Merge> merges;
  std::array<std::optional<int32_t>, 256> byteTokens;
  std::optional<int32_t> unknownId;
  bool fuseUnknown = false;
  bool ignoreMerges = false;
  std::unordered_set<int32_t> specialIds;
};

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERBPE_H
