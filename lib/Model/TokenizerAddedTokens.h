//===- TokenizerAddedTokens.h - Tokens found before all else ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERADDEDTOKENS_H
#define STEM_LIB_MODEL_TOKENIZERADDEDTOKENS_H

#include "TokenizerBpe.h"
#include "TokenizerNormalizer.h"

namespace stem {

/// "added_tokens": their text becomes a token before the model sees it.
class AddedTokens {
public:
  struct Token {
    int32_t id = 0;
    std::string content;
    bool singleWord = false, stripsLeft = false, stripsRight = false;
    bool isNormalized = false, isSpecial = false;
  };

  /// A token, or text between tokens.
  struct Segment {
    std::string text;
    const Token *token;
    bool atInputStart;
  };

  /// A part of a text.
  struct Range {
    size_t begin, end;
  };
  using Ranges = std::vector<Range>;

  AddedTokens() = default;
  AddedTokens(const std::optional<JsonNode> &node, const TokenMap &vocab,
              const Normalizer &normalizer);

  const std::vector<Token> &tokens() const { return list; }

  /// Cuts text at the tokens and normalizes what lies between. In the ranges of
  /// `plain`, which are sorted and apart, special tokens are text.
  std::vector<Segment> split(std::string_view text, const Ranges &plain,
                             const Normalizer &normalizer) const;

private:
  /// The longest token at a place of a text.
  class Trie {
  public:
    void insert(std::string_view text, uint32_t token);
    bool empty() const { return edges.empty(); }
    /// Gives the length of the longest token at `at` for which
    /// `accepts(index, end)`, and the token's index.
    template <typename Accepts>
    std::optional<std::pair<size_t, uint32_t>>
    find(std::string_view text, size_t at, Accepts accepts) const;

  private:
    std::unordered_map<uint64_t, uint32_t> edges; ///< node << 8 | byte
    std::array<bool, 256> firstBytes{};
    std::vector<std::optional<uint32_t>> tokenAt{std::nullopt};
  };

  Token read(const JsonNode &node, const TokenMap &vocab) const;
  template <typename OnText>
  void splitText(std::string_view text, const Trie &trie, const Ranges &plain,
                 std::vector<Segment> &segments, OnText onText) const;

  std::vector<Token> list;
  Trie raw;        ///< tokens looked for in the text as it is
  Trie normalized; ///< those looked for in the normalized text
};

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERADDEDTOKENS_H
