//===- Tokenizer.cpp - Text to token ids and back -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Tokenizer.h"

#include "FileIO.h"
#include "TokenizerAddedTokens.h"
#include "TokenizerBpe.h"
#include "TokenizerDecoder.h"
#include "TokenizerPostProcessor.h"
#include "TokenizerPreTokenizer.h"
#include "TokenizerUnicode.h"
#include "stem/Model/Utf8.h"

#include <algorithm>

namespace stem {

struct TokenizerImpl {
  struct TokenInfo {
    std::string_view text; ///< of the vocabulary or of the added token
    bool isAdded, isSpecial;
  };

  Normalizer normalizer;
  PreTokenizer preTokenizer;
  Bpe model;
  AddedTokens added;
  PostProcessor postProcessor;
  Decoder decoder;
  std::unordered_map<int32_t, TokenInfo> tokens;
  int64_t vocabSize = 0;

  std::optional<int32_t> beginId;
  std::vector<int32_t> endIds;
  std::optional<std::string> chatTemplate;

  explicit TokenizerImpl(const JsonNode &root);
  const TokenInfo *find(int32_t id) const {
    auto it = tokens.find(id);
    return it == tokens.end() ? nullptr : &it->second;
  }
};

template <typename Component>
static Component parseOptional(const JsonNode &root, const char *key) {
  std::optional<JsonNode> node = root.find(key);
  return node ? Component(*node) : Component();
}

TokenizerImpl::TokenizerImpl(const JsonNode &root)
    : normalizer(parseOptional<Normalizer>(root, "normalizer")),
      preTokenizer(parseOptional<PreTokenizer>(root, "pre_tokenizer")),
      model(root.at("model")),
      added(root.find("added_tokens"), model.vocabulary(), normalizer),
      decoder(parseOptional<Decoder>(root, "decoder")) {
  // Truncation and padding say how batches are built, not what a text's ids
  // are.
  root.allowKeys({"version", "truncation", "padding", "added_tokens",
                  "normalizer", "pre_tokenizer", "post_processor", "decoder",
                  "model"});
  std::unordered_set<int32_t> specialIds;
  for (const AddedTokens::Token &token : added.tokens())
    if (token.isSpecial)
      specialIds.insert(token.id);
  model.excludeSpecial(std::move(specialIds));
  for (const auto &[text, id] : model.vocabulary())
    tokens[id] = {text, false, false};
  for (const AddedTokens::Token &token : added.tokens())
    tokens[token.id] = {token.content, true, token.isSpecial};
  for (const auto &[id, info] : tokens)
    vocabSize = std::max<int64_t>(vocabSize, int64_t{id} + 1);
  if (std::optional<JsonNode> node = root.find("post_processor"))
    postProcessor =
        PostProcessor(*node, [&](int32_t id) { return find(id) != nullptr; });
}

Tokenizer::Tokenizer(std::unique_ptr<TokenizerImpl> impl)
    : impl(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer &&) noexcept = default;
Tokenizer &Tokenizer::operator=(Tokenizer &&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::fromJson(std::string_view text, std::string sourceName) {
  nlohmann::json json = parseJson(text, sourceName);
  JsonNode root(json, std::move(sourceName));
  root.requireObject();
  return Tokenizer(std::make_unique<TokenizerImpl>(root));
}

static void addOnce(std::vector<std::string> &list, std::string text) {
  if (std::find(list.begin(), list.end(), text) == list.end())
    list.push_back(std::move(text));
}

std::optional<size_t> findInvalidUtf8(std::string_view text) {
  return unicode::findInvalidUtf8(text);
}

std::string describeInvalidUtf8(std::string_view text, size_t offset) {
  return fmt::format("the text is not valid UTF-8: byte {} (0x{:02X}) does not "
                     "belong to a character; convert the text to UTF-8",
                     offset, static_cast<unsigned char>(text[offset]));
}

static void requireUtf8(std::string_view text) {
  if (const std::optional<size_t> offset = findInvalidUtf8(text))
    fail("{}", describeInvalidUtf8(text, *offset));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text,
                                       const EncodeOptions &options,
                                       EncodeReport *report) const {
  TextPart part{text, options.parseSpecial};
  return encode(std::span(&part, 1), options, report);
}

std::vector<int32_t> Tokenizer::encode(std::span<const TextPart> parts,
                                       const EncodeOptions &options,
                                       EncodeReport *report) const {
  std::string text;
  AddedTokens::Ranges plain;
  for (const TextPart &part : parts) {
    if (!part.parseSpecial && !part.text.empty())
      plain.push_back({text.size(), text.size() + part.text.size()});
    text += part.text;
  }
  requireUtf8(text);

  std::vector<int32_t> ids;
  size_t dropped = 0;
  for (AddedTokens::Segment &segment :
       impl->added.split(text, plain, impl->normalizer)) {
    if (segment.token) {
      ids.push_back(segment.token->id);
      continue;
    }
    PieceList pieces(std::move(segment.text), segment.atInputStart);
    impl->preTokenizer.apply(pieces);
    for (PieceList::Span span : pieces.spans)
      dropped += impl->model.encodeWord(pieces.piece(span), ids);
  }
  if (options.addSpecialTokens)
    impl->postProcessor.apply(ids);
  if (report) {
    report->droppedSymbols = dropped;
    report->specialTokensAsText.clear();
    for (AddedTokens::Range range : plain)
      for (std::string &token : specialTokensIn(std::string_view(text).substr(
               range.begin, range.end - range.begin)))
        addOnce(report->specialTokensAsText, std::move(token));
  }
  return ids;
}

std::vector<std::string>
Tokenizer::specialTokensIn(std::string_view text) const {
  requireUtf8(text);
  std::vector<std::string> result;
  for (const AddedTokens::Segment &segment :
       impl->added.split(text, /*plain=*/{}, impl->normalizer))
    if (segment.token && segment.token->isSpecial)
      addOnce(result, segment.token->content);
  return result;
}

std::string Tokenizer::decode(const std::vector<int32_t> &ids,
                              bool skipSpecial) const {
  StreamDecoder stream(*this, skipSpecial);
  std::string result;
  for (int32_t id : ids)
    result += stream.push(id);
  return result + stream.flush();
}

int64_t Tokenizer::vocabSize() const { return impl->vocabSize; }

int64_t Tokenizer::tokenCount() const {
  return static_cast<int64_t>(impl->tokens.size());
}

std::optional<std::string_view> Tokenizer::tokenText(int32_t id) const {
  const TokenizerImpl::TokenInfo *token = impl->find(id);
  return token ? std::optional(token->text) : std::nullopt;
}

std::optional<int32_t> Tokenizer::idOf(std::string_view token) const {
  const TokenMap &vocab = impl->model.vocabulary();
  if (auto it = vocab.find(token); it != vocab.end())
    return it->second;
  for (const AddedTokens::Token &added : impl->added.tokens())
    if (added.content == token)
      return added.id;
  return std::nullopt;
}

bool Tokenizer::isSpecial(int32_t id) const {
  const TokenizerImpl::TokenInfo *token = impl->find(id);
  return token && token->isSpecial;
}

bool Tokenizer::addsBeginToken() const {
  return impl->postProcessor.addsBegin();
}
bool Tokenizer::addsEndToken() const { return impl->postProcessor.addsEnd(); }

std::optional<int32_t> Tokenizer::beginId() const { return impl->beginId; }
const std::vector<int32_t> &Tokenizer::endIds() const { return impl->endIds; }
const std::optional<std::string> &Tokenizer::chatTemplate() const {
  return impl->chatTemplate;
}
void Tokenizer::setBeginId(std::optional<int32_t> id) { impl->beginId = id; }
void Tokenizer::setEndIds(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  impl->endIds = std::move(ids);
}
void Tokenizer::setChatTemplate(std::optional<std::string> text) {
  impl->chatTemplate = std::move(text);
}

void Tokenizer::checkFits(int64_t rows, std::string_view modelName) const {
  std::vector<int32_t> outside;
  for (const auto &[id, token] : impl->tokens)
    if (id >= rows)
      outside.push_back(id);
  if (outside.empty())
    return;
  std::sort(outside.begin(), outside.end());
  constexpr size_t MaxNamed = 8;
  std::string names;
  for (size_t i = 0; i < std::min(outside.size(), MaxNamed); ++i)
    names += fmt::format("{}'{}' ({})", i ? ", " : "",
                         printable(*tokenText(outside[i])), outside[i]);
  if (outside.size() > MaxNamed)
    names += fmt::format(" and {} more", outside.size() - MaxNamed);
  fail("{}: the tokenizer has {} tokens whose ids lie outside the model's {} "
       "rows: {}; use the tokenizer that belongs to the model",
       modelName, outside.size(), rows, names);
}

struct StreamDecoder::State {
  const TokenizerImpl &tokenizer;
  bool skipSpecial;
  Decoder::Stream stream;
};

StreamDecoder::StreamDecoder(const Tokenizer &tokenizer, bool skipSpecial)
    : state(new State{*tokenizer.impl, skipSpecial,
                      Decoder::Stream(tokenizer.impl->decoder)}) {}
StreamDecoder::StreamDecoder(StreamDecoder &&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(int32_t id) {
  const TokenizerImpl::TokenInfo *token = state->tokenizer.find(id);
  if (!token)
    return state->stream.push("\xEF\xBF\xBD", /*isLiteral=*/true);
  if (token->isSpecial && state->skipSpecial)
    return {};
  return state->stream.push(token->text, token->isAdded);
}

std::string StreamDecoder::flush() { return state->stream.flush(); }

} // namespace stem
