//===- TokenizerAddedTokens.cpp - Tokens found before all else ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerAddedTokens.h"

#include "FileIO.h"
#include "TokenizerUnicode.h"

#include <algorithm>

namespace stem {

// Keeps the search linear in the text, whatever the file says.
static constexpr size_t MaxContentBytes = 1024;

void AddedTokens::Trie::insert(std::string_view text, uint32_t token) {
  firstBytes[static_cast<unsigned char>(text[0])] = true;
  uint32_t node = 0;
  for (char byte : text) {
    auto [edge, isNew] = edges.try_emplace(
        static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte),
        static_cast<uint32_t>(tokenAt.size()));
    if (isNew)
      tokenAt.emplace_back();
    node = edge->second;
  }
  if (!tokenAt[node])
    tokenAt[node] = token;
}

template <typename Accepts>
std::optional<std::pair<size_t, uint32_t>>
AddedTokens::Trie::find(std::string_view text, size_t at,
                        Accepts accepts) const {
  std::optional<std::pair<size_t, uint32_t>> longest;
  if (!firstBytes[static_cast<unsigned char>(text[at])])
    return longest;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    auto edge = edges.find(static_cast<uint64_t>(node) << 8 |
                           static_cast<unsigned char>(text[i]));
    if (edge == edges.end())
      break;
    node = edge->second;
    if (tokenAt[node] && accepts(*tokenAt[node], i + 1))
      longest = {i + 1 - at, *tokenAt[node]};
  }
  return longest;
}

AddedTokens::Token AddedTokens::read(const JsonNode &node,
                                     const TokenMap &vocab) const {
  node.allowKeys({"id", "content", "single_word", "lstrip", "rstrip",
                  "normalized", "special", "__type"});
  Token token;
  token.id = node.at("id").id();
  token.content = node.getString("content");
  token.singleWord = node.getBool("single_word", false);
  token.stripsLeft = node.getBool("lstrip", false);
  token.stripsRight = node.getBool("rstrip", false);
  token.isSpecial = node.getBool("special", false);
  token.isNormalized = node.getBool("normalized", !token.isSpecial);
  if (token.content.size() > MaxContentBytes)
    node.refuse("an added token of {} bytes; the limit is {}",
                token.content.size(), MaxContentBytes);
  if (auto it = vocab.find(token.content);
      it != vocab.end() && it->second != token.id)
    node.refuse("the added token '{}' has id {}, but the vocabulary gives it "
                "id {}",
                printable(token.content), token.id, it->second);
  return token;
}

AddedTokens::AddedTokens(const std::optional<JsonNode> &node,
                         const TokenMap &vocab, const Normalizer &normalizer) {
  if (!node)
    return;
  std::unordered_map<int32_t, std::string_view> textOfId;
  for (const auto &[text, id] : vocab)
    textOfId.emplace(id, text);
  std::unordered_map<std::string, int32_t> idOfText;
  for (const JsonNode &element : node->elements()) {
    Token token = read(element, vocab);
    auto [byText, isNewText] = idOfText.emplace(token.content, token.id);
    if (!isNewText)
      element.refuse("the added token '{}' is listed twice, with ids {} and {}",
                     printable(token.content), byText->second, token.id);
    auto [byId, isNewId] = textOfId.emplace(token.id, byText->first);
    if (!isNewId && byId->second != token.content)
      element.refuse("the added token '{}' has id {}, which belongs to the "
                     "token '{}'",
                     printable(token.content), token.id,
                     printable(byId->second));
    list.push_back(std::move(token));
  }
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Token &token = list[i];
    std::string text =
        token.isNormalized ? normalizer.apply(token.content) : token.content;
    if (text.size() > MaxContentBytes)
      node->refuse("the added token '{}' normalizes to {} bytes; the limit is "
                   "{}",
                   printable(token.content), text.size(), MaxContentBytes);
    if (!text.empty())
      (token.isNormalized ? normalized : raw).insert(text, i);
  }
}

static bool isWordBefore(std::string_view text, size_t at) {
  return at > 0 && unicode::isWord(unicode::decodeAt(
                       text, unicode::previousCharacter(text, at)));
}

static bool isWordAt(std::string_view text, size_t at) {
  return at < text.size() && unicode::isWord(unicode::decodeAt(text, at));
}

template <typename OnText>
void AddedTokens::splitText(std::string_view text, const Trie &trie,
                            const Ranges &plain, std::vector<Segment> &segments,
                            OnText onText) const {
  auto nextPlain = plain.begin();
  auto accepts = [&](uint32_t index, size_t end) {
    bool isPlain = nextPlain != plain.end() && nextPlain->begin < end;
    return !isPlain || !list[index].isSpecial;
  };
  size_t done = 0;
  for (size_t at = 0; !trie.empty() && at < text.size();) {
    while (nextPlain != plain.end() && nextPlain->end <= at)
      ++nextPlain;
    auto match = trie.find(text, at, accepts);
    if (!match) {
      ++at;
      continue;
    }
    const Token &token = list[match->second];
    size_t begin = at, end = at + match->first;
    at = end;
    if (token.singleWord && (isWordBefore(text, begin) || isWordAt(text, end)))
      continue;
    while (token.stripsLeft && begin > done) {
      size_t previous = unicode::previousCharacter(text, begin);
      if (!unicode::isWhitespace(unicode::decodeAt(text, previous)))
        break;
      begin = previous;
    }
    while (token.stripsRight && end < text.size() &&
           unicode::isWhitespace(unicode::decodeAt(text, end)))
      end += unicode::characterLength(text[end]);
    onText(done, begin);
    segments.push_back({std::string(), &token, false});
    at = done = end;
  }
  onText(done, text.size());
}

std::vector<AddedTokens::Segment>
AddedTokens::split(std::string_view text, const Ranges &plain,
                   const Normalizer &normalizer) const {
  std::vector<Segment> segments;
  auto nextPlain = plain.begin();
  splitText(text, raw, plain, segments, [&](size_t begin, size_t end) {
    if (begin == end)
      return;
    std::string normal =
        normalizer.apply(std::string(text.substr(begin, end - begin)));
    // Normalizing moves bytes: a part that holds plain text is plain.
    while (nextPlain != plain.end() && nextPlain->end <= begin)
      ++nextPlain;
    Ranges plainHere;
    if (nextPlain != plain.end() && nextPlain->begin < end)
      plainHere.push_back({0, normal.size()});
    splitText(normal, normalized, plainHere, segments,
              [&](size_t from, size_t to) {
                if (from < to)
                  segments.push_back({normal.substr(from, to - from), nullptr,
                                      begin == 0 && from == 0});
              });
  });
  return segments;
}

} // namespace stem
