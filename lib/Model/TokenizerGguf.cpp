//===- TokenizerGguf.cpp - tokenizer.json from GGUF metadata --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/TokenizerGguf.h"

#include "FileIO.h"
#include "TokenizerUnicode.h"
#include "stem/Model/Gguf.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace stem {

namespace {

using Json = nlohmann::ordered_json;

/// tokenizer.ggml.token_type
enum TokenType {
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6,
};

// Longer tokens would make rebuilding the merges quadratic.
constexpr size_t MaxTokenBytes = 1024;

constexpr const char *Mark = "\xE2\x96\x81"; // U+2581 stands for a space

/// The vocabulary of a GGUF file, checked.
struct Vocabulary {
  const GgufFile &file;
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::unordered_map<std::string_view, int64_t> idOf;

  explicit Vocabulary(const GgufFile &file);

  std::optional<int64_t> id(const char *key) const {
    std::optional<int64_t> id = file.getSigned(key);
    // Some writers put -1 or 2^32 - 1 for "none".
    if (!id || *id == -1 || *id == UINT32_MAX)
      return std::nullopt;
    if (*id < 0 || static_cast<size_t>(*id) >= tokens.size())
      fail("{}: {} is {}, but there are {} tokens", file.fileName(), key, *id,
           tokens.size());
    return id;
  }
  const std::string &text(int64_t id) const {
    return tokens[static_cast<size_t>(id)];
  }
};

/// JSON holds valid UTF-8 only.
void requireText(const GgufFile &file, std::string_view key,
                 std::string_view text) {
  if (unicode::findInvalidUtf8(text))
    fail("{}: {}: '{}' is not valid UTF-8", file.fileName(), key,
         printable(text));
}

Vocabulary::Vocabulary(const GgufFile &file) : file(file) {
  auto strings = file.getStrings("tokenizer.ggml.tokens");
  if (!strings || strings->empty())
    fail("{}: tokenizer.ggml.tokens is missing or empty; the file holds no "
         "tokenizer",
         file.fileName());
  tokens = std::move(*strings);
  types = file.getIntegers("tokenizer.ggml.token_type")
              .value_or(std::vector<int64_t>(tokens.size(), Normal));
  if (types.size() != tokens.size())
    fail("{}: tokenizer.ggml.token_type has {} entries for {} tokens",
         file.fileName(), types.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].size() > MaxTokenBytes)
      fail("{}: the token {} has {} bytes; the limit is {}", file.fileName(), i,
           tokens[i].size(), MaxTokenBytes);
    requireText(file, "tokenizer.ggml.tokens", tokens[i]);
    auto [other, isNew] = idOf.emplace(tokens[i], static_cast<int64_t>(i));
    if (!isNew)
      fail("{}: the token '{}' appears twice, with ids {} and {}",
           file.fileName(), printable(tokens[i]), other->second, i);
  }
}

/// Appends without looking for an equal key, which would take quadratic time.
void append(Json::object_t &object, std::string key, Json value) {
  static_cast<Json::object_t::Container &>(object).emplace_back(
      std::move(key), std::move(value));
}

Json vocabularyJson(const Vocabulary &vocabulary) {
  Json::object_t object;
  object.reserve(vocabulary.tokens.size());
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i)
    append(object, vocabulary.tokens[i], i);
  return object;
}

Json addedTokensJson(const Vocabulary &vocabulary) {
  Json::array_t list;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    int64_t type = vocabulary.types[i];
    if (type != Control && type != UserDefined && type != Unknown)
      continue;
    list.push_back({{"id", i},
                    {"content", vocabulary.tokens[i]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", type != UserDefined}});
  }
  return list;
}

/// The post-processor that adds the begin and end tokens, or null.
Json templateJson(const Vocabulary &vocabulary, bool addsBegin, bool addsEnd) {
  Json single = Json::array(), specials = Json::object();
  auto add = [&](const char *idKey, const char *flagKey) {
    std::optional<int64_t> id = vocabulary.id(idKey);
    if (!id)
      fail("{}: {} asks for a token that {} does not name",
           vocabulary.file.fileName(), flagKey, idKey);
    const std::string &text = vocabulary.text(*id);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    specials[text] = {{"id", text},
                      {"ids", Json::array({*id})},
                      {"tokens", Json::array({text})}};
  };
  if (addsBegin)
    add("tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (addsEnd)
    add("tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_eos_token");
  if (!addsBegin && !addsEnd)
    return nullptr;
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", specials}};
}

/// What a name in tokenizer.ggml.pre stands for.
struct PreTokenizerKind {
  std::vector<std::string_view> names;
  /// Splits that come before the byte-level step.
  std::vector<std::string> patterns;
  bool splitsDigits = false;
  bool usesByteLevelRegex = false;
  bool ignoresMerges = false;
  bool composes = false; ///< text is brought to NFC first
  bool addsBegin = false;
};

const std::vector<PreTokenizerKind> &preTokenizerKinds() {
  // What comes after words and numbers in most of them.
  const std::string rest =
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const std::string word = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
                           "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|";
  const std::string lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
  const std::string upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
  const std::string lead = "[^\\r\\n\\p{L}\\p{N}]?";
  static const std::vector<PreTokenizerKind> kinds = {
      {.names = {"gpt-2", "gpt2", "olmo", "mpt", "phi-2", "roberta-bpe"},
       .patterns = {},
       .usesByteLevelRegex = true},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell"},
       .patterns = {},
       .splitsDigits = true,
       .usesByteLevelRegex = true},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral-bpe"},
       .patterns = {word + "\\p{N}{1,3}|" + rest},
       .ignoresMerges = true,
       .addsBegin = true},
      {.names = {"dbrx", "smaug-bpe"},
       .patterns = {word + "\\p{N}{1,3}|" + rest}},
      {.names = {"qwen2", "deepseek-r1-qwen", "megrez"},
       .patterns = {word + "\\p{N}|" + rest},
       .composes = true},
      {.names = {"stablelm2"}, .patterns = {word + "\\p{N}|" + rest}},
      {.names = {"tekken"},
       .patterns = {lead + upper + "*" + lower + "+|" + lead + upper + "+" +
                    lower +
                    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"
                    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
       .ignoresMerges = true},
      {.names = {"default"},
       .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|]+",
                    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|"
                    " ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
                    "\\p{N}+", "[0-9][0-9][0-9]"}},
  };
  return kinds;
}

const PreTokenizerKind &findKind(const GgufFile &file) {
  std::string name = file.getString("tokenizer.ggml.pre").value_or("default");
  std::string known;
  for (const PreTokenizerKind &kind : preTokenizerKinds())
    for (std::string_view candidate : kind.names) {
      if (candidate == name)
        return kind;
      known += (known.empty() ? "" : ", ") + std::string(candidate);
    }
  fail("{}: the pre-tokenizer '{}' (tokenizer.ggml.pre) is not supported; "
       "known are {}; use the model's Hugging Face folder instead",
       file.fileName(), printable(name), known);
}

Json byteLevelJson(bool usesRegex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", usesRegex}};
}

Json preTokenizerJson(const PreTokenizerKind &kind) {
  Json steps = Json::array();
  for (const std::string &pattern : kind.patterns)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  if (kind.splitsDigits)
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  steps.push_back(byteLevelJson(kind.usesByteLevelRegex));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json document(const Vocabulary &vocabulary) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", addedTokensJson(vocabulary)}};
}

Json modelJson(const Vocabulary &vocabulary, Json merges) {
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false}};
  model["vocab"] = vocabularyJson(vocabulary);
  model["merges"] = std::move(merges);
  return model;
}

Json byteLevelTokenizer(const Vocabulary &vocabulary) {
  const GgufFile &file = vocabulary.file;
  const PreTokenizerKind &kind = findKind(file);
  auto merges = file.getStrings("tokenizer.ggml.merges");
  if (!merges)
    fail("{}: tokenizer.ggml.merges is missing; a byte-level tokenizer needs "
         "it",
         file.fileName());
  Json list = Json::array();
  for (const std::string &merge : *merges) {
    requireText(file, "tokenizer.ggml.merges", merge);
    size_t space = merge.find(' ', 1);
    if (space == std::string::npos)
      fail("{}: tokenizer.ggml.merges: expected two tokens with a space "
           "between, found '{}'",
           file.fileName(), printable(merge));
    list.push_back(
        Json::array({merge.substr(0, space), merge.substr(space + 1)}));
  }
  Json result = document(vocabulary);
  result["normalizer"] = kind.composes ? Json{{"type", "NFC"}} : Json();
  result["pre_tokenizer"] = preTokenizerJson(kind);
  result["post_processor"] = templateJson(
      vocabulary,
      file.getBool("tokenizer.ggml.add_bos_token").value_or(kind.addsBegin),
      file.getBool("tokenizer.ggml.add_eos_token").value_or(false));
  result["decoder"] = byteLevelJson(true);
  result["model"] = modelJson(vocabulary, std::move(list));
  result["model"]["ignore_merges"] = kind.ignoresMerges;
  return result;
}

/// SentencePiece joins the two neighbours whose union has the best score. As a
/// list of merges: every way to cut a token in two tokens, best scores first.
Json mergesFromScores(const Vocabulary &vocabulary) {
  const GgufFile &file = vocabulary.file;
  auto scores = file.getDoubles("tokenizer.ggml.scores");
  if (!scores || scores->size() != vocabulary.tokens.size())
    fail("{}: tokenizer.ggml.scores has {} entries for {} tokens; without a "
         "score for each the merges cannot be rebuilt",
         file.fileName(), scores ? scores->size() : 0,
         vocabulary.tokens.size());
  auto isPiece = [&](size_t id) {
    return vocabulary.types[id] == Normal ||
           vocabulary.types[id] == UserDefined;
  };
  struct Merge {
    double score;
    int64_t left, right;
  };
  std::vector<Merge> merges;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    std::string_view token = vocabulary.tokens[id];
    if (!isPiece(id))
      continue;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      auto left = vocabulary.idOf.find(token.substr(0, cut));
      auto right = vocabulary.idOf.find(token.substr(cut));
      if (left != vocabulary.idOf.end() && right != vocabulary.idOf.end() &&
          isPiece(static_cast<size_t>(left->second)) &&
          isPiece(static_cast<size_t>(right->second)))
        merges.push_back({(*scores)[id], left->second, right->second});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge &a, const Merge &b) {
    if (a.score != b.score)
      return a.score > b.score;
    return std::pair(a.left, a.right) < std::pair(b.left, b.right);
  });
  Json list = Json::array();
  for (const Merge &merge : merges)
    list.push_back(Json::array(
        {vocabulary.text(merge.left), vocabulary.text(merge.right)}));
  return list;
}

Json sentencePieceTokenizer(const Vocabulary &vocabulary) {
  const GgufFile &file = vocabulary.file;
  Json normalizers = Json::array();
  if (file.getBool("tokenizer.ggml.add_space_prefix").value_or(true))
    normalizers.push_back({{"type", "Prepend"}, {"prepend", Mark}});
  normalizers.push_back(
      {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", Mark}});
  Json decoders = Json::array(
      {{{"type", "Replace"}, {"pattern", {{"String", Mark}}}, {"content", " "}},
       {{"type", "ByteFallback"}},
       {{"type", "Fuse"}}});
  if (normalizers.size() == 2)
    decoders.push_back(
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});

  Json result = document(vocabulary);
  result["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  result["pre_tokenizer"] = nullptr;
  result["post_processor"] = templateJson(
      vocabulary, file.getBool("tokenizer.ggml.add_bos_token").value_or(true),
      file.getBool("tokenizer.ggml.add_eos_token").value_or(false));
  result["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  Json &model = result["model"] =
      modelJson(vocabulary, mergesFromScores(vocabulary));
  if (auto unknown = vocabulary.id("tokenizer.ggml.unknown_token_id"))
    model["unk_token"] = vocabulary.text(*unknown);
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  return result;
}

} // namespace

nlohmann::ordered_json tokenizerJsonFromGguf(const GgufFile &file) {
  std::string model = file.getString("tokenizer.ggml.model").value_or("none");
  if (model != "gpt2" && model != "llama")
    fail("{}: the tokenizer model '{}' (tokenizer.ggml.model) is not "
         "supported; known are gpt2 and llama",
         file.fileName(), printable(model));
  Vocabulary vocabulary(file);
  return model == "gpt2" ? byteLevelTokenizer(vocabulary)
                         : sentencePieceTokenizer(vocabulary);
}

std::string tokenizerJsonText(const GgufFile &file) {
  return tokenizerJsonFromGguf(file).dump(1) + "\n";
}

nlohmann::ordered_json tokenizerConfigFromGguf(const GgufFile &file) {
  Vocabulary vocabulary(file);
  Json config = Json::object();
  auto addToken = [&](const char *name, const char *key) {
    if (std::optional<int64_t> id = vocabulary.id(key))
      config[name] = vocabulary.text(*id);
  };
  addToken("bos_token", "tokenizer.ggml.bos_token_id");
  addToken("eos_token", "tokenizer.ggml.eos_token_id");
  addToken("unk_token", "tokenizer.ggml.unknown_token_id");
  addToken("pad_token", "tokenizer.ggml.padding_token_id");
  config["clean_up_tokenization_spaces"] = false;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (auto text = file.getString("tokenizer.chat_template")) {
    requireText(file, "tokenizer.chat_template", *text);
    config["chat_template"] = *text;
  }
  return config;
}

Tokenizer tokenizerFromGguf(const GgufFile &file) {
  Tokenizer tokenizer =
      Tokenizer::fromJson(tokenizerJsonFromGguf(file).dump(), file.fileName());
  Vocabulary vocabulary(file);
  if (auto id = vocabulary.id("tokenizer.ggml.bos_token_id"))
    tokenizer.setBeginId(static_cast<int32_t>(*id));
  std::vector<int32_t> ends;
  for (const char *key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (auto id = vocabulary.id(key))
      ends.push_back(static_cast<int32_t>(*id));
  tokenizer.setEndIds(std::move(ends));
  tokenizer.setChatTemplate(file.getString("tokenizer.chat_template"));
  return tokenizer;
}

} // namespace stem
