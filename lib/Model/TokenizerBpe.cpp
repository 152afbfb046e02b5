//===- TokenizerBpe.cpp - Byte-pair encoding of one word ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerBpe.h"

#include "FileIO.h"
#include "TokenizerUnicode.h"

#include <queue>

namespace stem {

Bpe::Bpe(const JsonNode &node) {
  node.requireObject();
  // Files older than the key hold BPE when they hold merges.
  std::optional<JsonNode> type = node.find("type");
  if (!type && !node.find("merges"))
    node.refuse("'type' is missing; expected BPE");
  if (type && type->string() != "BPE")
    type->refuse("the model '{}' is not supported; only BPE is",
                 type->string());
  node.allowKeys({"type", "dropout", "unk_token", "continuing_subword_prefix",
                  "end_of_word_suffix", "fuse_unk", "byte_fallback",
                  "ignore_merges", "vocab", "merges"});
  if (std::optional<JsonNode> dropout = node.find("dropout"))
    if (!dropout->value().is_number() || dropout->value().get<double>() != 0)
      dropout->refuse("dropout makes ids random and is not supported; set it "
                      "to null");
  for (const char *key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (std::optional<JsonNode> affix = node.find(key))
      if (!affix->string().empty())
        affix->refuse("the affix '{}' is not supported; only an empty one is",
                      affix->string());

  readVocabulary(node.at("vocab"));
  readMerges(node.at("merges"));
  fuseUnknown = node.getBool("fuse_unk", false);
  ignoreMerges = node.getBool("ignore_merges", false);
  if (std::optional<JsonNode> unknown = node.find("unk_token")) {
    auto it = vocab.find(unknown->string());
    if (it == vocab.end())
      unknown->refuse("the unknown token '{}' is not in the vocabulary",
                      unknown->string());
    unknownId = it->second;
  }
  if (node.getBool("byte_fallback", false))
    for (unsigned byte = 0; byte < 256; ++byte) {
      auto it = vocab.find(fmt::format("<0x{:02X}>", byte));
      if (it != vocab.end())
        byteTokens[byte] = it->second;
    }
}

void Bpe::readVocabulary(const JsonNode &node) {
  node.requireObject();
  const auto &object = node.value().get_ref<const nlohmann::json::object_t &>();
  vocab.reserve(object.size());
  std::unordered_map<int32_t, const std::string *> tokenOfId;
  tokenOfId.reserve(object.size());
  for (const auto &[token, value] : object) {
    // The place is spelled out for bad entries only: there are 10^5 of them.
    int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (id < 0 || id > INT32_MAX)
      JsonNode(value, node.place() + " token '" + printable(token) + "'").id();
    auto [other, isNew] = tokenOfId.emplace(static_cast<int32_t>(id), &token);
    if (!isNew)
      node.refuse("the tokens '{}' and '{}' have the same id {}",
                  printable(*other->second), printable(token), id);
    vocab.emplace(token, static_cast<int32_t>(id));
  }
}

/// A merge as "left right" or as ["left", "right"].
static std::pair<std::string, std::string>
readMerge(const JsonNode &node, const nlohmann::json &entry, size_t index) {
  if (entry.is_string()) {
    const std::string &text = entry.get_ref<const std::string &>();
    size_t space = text.find(' ');
    if (space == std::string::npos ||
        text.find(' ', space + 1) != std::string::npos)
      node.refuse("entry {}: expected two tokens with one space between, found "
                  "'{}'; tokens that contain spaces need the list form",
                  index, printable(text));
    return {text.substr(0, space), text.substr(space + 1)};
  }
  if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
      !entry[1].is_string())
    node.refuse("entry {}: expected two tokens, found {}", index,
                printable(entry.dump()));
  return {entry[0].get<std::string>(), entry[1].get<std::string>()};
}

void Bpe::readMerges(const JsonNode &node) {
  if (!node.value().is_array())
    node.refuse("expected an array, found {}", node.value().type_name());
  const auto &entries = node.value().get_ref<const nlohmann::json::array_t &>();
  merges.reserve(entries.size());
  uint32_t rank = 0;
  for (size_t index = 0; index < entries.size(); ++index) {
    const nlohmann::json &entry = entries[index];
    if (entry.is_string() &&
        entry.get_ref<const std::string &>().starts_with("#version"))
      continue;
    auto [left, right] = readMerge(node, entry, index);
    auto idOf = [&](const std::string &token) {
      auto it = vocab.find(token);
      if (it == vocab.end())
        node.refuse("entry {}: the merge of '{}' and '{}' needs the token "
                    "'{}', which is not in the vocabulary",
                    index, printable(left), printable(right), printable(token));
      return it->second;
    };
    auto key = static_cast<uint64_t>(idOf(left)) << 32 |
               static_cast<uint64_t>(idOf(right));
    // A pair listed twice has its later rank, as in the reference.
    merges[key] = {rank++, idOf(left + right)};
  }
}

void Bpe::excludeSpecial(std::unordered_set<int32_t> ids) {
  specialIds = std::move(ids);
  std::erase_if(merges, [&](const auto &entry) {
    return specialIds.contains(entry.second.id);
  });
}

const Bpe::Merge *Bpe::findMerge(int32_t left, int32_t right) const {
  auto it = merges.find(static_cast<uint64_t>(left) << 32 |
                        static_cast<uint64_t>(right));
  return it == merges.end() ? nullptr : &it->second;
}

bool Bpe::addByteTokens(std::string_view character,
                        std::vector<int32_t> &symbols) const {
  for (char byte : character)
    if (!byteTokens[static_cast<unsigned char>(byte)])
      return false;
  for (char byte : character)
    symbols.push_back(*byteTokens[static_cast<unsigned char>(byte)]);
  return true;
}

size_t Bpe::splitIntoSymbols(std::string_view word,
                             std::vector<int32_t> &symbols) const {
  size_t dropped = 0;
  bool afterUnknown = false;
  for (size_t i = 0; i < word.size();) {
    std::string_view character =
        word.substr(i, unicode::characterLength(word[i]));
    i += character.size();
    auto it = vocab.find(character);
    bool isUnknown = false;
    if (it != vocab.end()) {
      symbols.push_back(it->second);
    } else if (!addByteTokens(character, symbols)) {
      isUnknown = unknownId.has_value();
      if (!isUnknown)
        ++dropped;
      else if (!afterUnknown || !fuseUnknown)
        symbols.push_back(*unknownId);
    }
    afterUnknown = isUnknown;
  }
  return dropped;
}

size_t Bpe::encodeWord(std::string_view word, std::vector<int32_t> &ids) const {
  if (ignoreMerges)
    if (auto it = vocab.find(word);
        it != vocab.end() && !specialIds.contains(it->second)) {
      ids.push_back(it->second);
      return 0;
    }
  std::vector<int32_t> symbols;
  size_t dropped = splitIntoSymbols(word, symbols);
  merge(symbols, ids);
  return dropped;
}

/// A node of the list that links the symbols not yet merged away.
struct Bpe::Symbol {
  int32_t id;
  uint32_t previous, next;
};

void Bpe::merge(const std::vector<int32_t> &symbols,
                std::vector<int32_t> &ids) const {
  constexpr uint32_t None = UINT32_MAX;
  constexpr int32_t Gone = -1;
  if (symbols.size() >= None)
    fail("a word of {} symbols is too long to tokenize; split the text",
         symbols.size());
  auto count = static_cast<uint32_t>(symbols.size());
  std::vector<Symbol> list(count);
  for (uint32_t i = 0; i < count; ++i)
    list[i] = {symbols[i], i == 0 ? None : i - 1,
               i + 1 == count ? None : i + 1};

  // Lowest rank first, then leftmost.
  struct Candidate {
    uint32_t rank, position;
    int32_t id;
    bool operator<(const Candidate &other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  std::priority_queue<Candidate> queue;
  auto propose = [&](uint32_t left) {
    if (left == None || list[left].next == None)
      return;
    if (const Merge *merge = findMerge(list[left].id, list[list[left].next].id))
      queue.push({merge->rank, left, merge->id});
  };
  for (uint32_t i = 0; i < count; ++i)
    propose(i);
  while (!queue.empty()) {
    Candidate best = queue.top();
    queue.pop();
    Symbol &left = list[best.position];
    // Either symbol may have changed since the merge was proposed.
    if (left.id == Gone || left.next == None)
      continue;
    Symbol &right = list[left.next];
    const Merge *merge = findMerge(left.id, right.id);
    if (!merge || merge->id != best.id)
      continue;
    left.id = merge->id;
    left.next = right.next;
    right.id = Gone;
    if (left.next != None)
      list[left.next].previous = best.position;
    propose(left.previous);
    propose(best.position);
  }
  for (const Symbol &symbol : list)
    if (symbol.id != Gone)
      ids.push_back(symbol.id);
}

} // namespace stem
