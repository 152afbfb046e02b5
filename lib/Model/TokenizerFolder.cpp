//===- TokenizerFolder.cpp - The tokenizer of a model folder --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileIO.h"
#include "TokenizerJson.h"
#include "stem/Model/Tokenizer.h"
#include "stem/Support/Files.h"

namespace stem {

namespace fs = std::filesystem;

static std::string readText(const fs::path &path) {
  MappedFile file(path);
  std::string what = foreignFormat(file.bytes());
  if (!what.empty())
    fail("{}: {}", path.string(), what);
  auto bytes = file.bytes();
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

[[noreturn]] static void failWithoutJson(const fs::path &folder) {
  const char *advice =
      "make it with the transformers library: "
      "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)";
  if (pathExists(folder / "tokenizer.model"))
    fail("{}: has tokenizer.model (SentencePiece) but not tokenizer.json, "
         "which Stem reads; {}",
         folder.string(), advice);
  if (pathExists(folder / "vocab.json"))
    fail("{}: has vocab.json but not tokenizer.json, which Stem reads; {}",
         folder.string(), advice);
  fail("{}: tokenizer.json is missing; copy it from the model's repository",
       folder.string());
}

namespace {

/// The files beside tokenizer.json, those that exist.
class Facts {
public:
  Facts(const fs::path &folder, const Tokenizer &tokenizer)
      : folder(folder), tokenizer(tokenizer) {}

  /// Token ids under a key: a number or a list of numbers.
  std::vector<int32_t> ids(const char *file, const char *key) {
    std::vector<int32_t> result;
    read(file, [&](const JsonNode &root) {
      std::optional<JsonNode> node = root.find(key);
      if (node && node->value().is_array())
        for (const JsonNode &element : node->elements())
          result.push_back(element.id());
      else if (node)
        result.push_back(node->id());
    });
    return result;
  }

  /// The id of a token under a key: its text or an object that holds it.
  std::optional<int32_t> token(const char *file, const char *key) {
    std::optional<int32_t> result;
    read(file, [&](const JsonNode &root) {
      std::optional<JsonNode> node = root.find(key);
      if (!node)
        return;
      JsonNode text = node->value().is_object() ? node->at("content") : *node;
      result = tokenizer.idOf(text.string());
      if (!result)
        text.refuse("the token '{}' is not in tokenizer.json",
                    printable(text.string()));
    });
    return result;
  }

  std::optional<std::string> chatTemplate() {
    if (pathExists(folder / "chat_template.jinja"))
      return readText(folder / "chat_template.jinja");
    std::optional<std::string> result;
    read("tokenizer_config.json", [&](const JsonNode &root) {
      std::optional<JsonNode> node = root.find("chat_template");
      if (!node)
        return;
      if (!node->value().is_array()) {
        result = node->string();
        return;
      }
      for (const JsonNode &element : node->elements())
        if (element.getString("name") == "default")
          result = element.getString("template");
      if (!result)
        node->refuse("a list of templates without one named 'default'");
    });
    return result;
  }

private:
  template <typename Use> void read(const char *file, Use use) {
    fs::path path = folder / file;
    if (!pathExists(path))
      return;
    nlohmann::json json = parseJson(readText(path), path.string());
    JsonNode root(json, path.string());
    root.requireObject();
    use(root);
  }

  const fs::path &folder;
  const Tokenizer &tokenizer;
};

} // namespace

Tokenizer Tokenizer::fromFolder(const fs::path &folder) {
  if (!isFolder(folder))
    fail("{}: not a folder; expected one that holds tokenizer.json",
         folder.string());
  fs::path path = folder / "tokenizer.json";
  if (!pathExists(path))
    failWithoutJson(folder);
  Tokenizer tokenizer = fromJson(readText(path), path.string());

  Facts facts(folder, tokenizer);
  std::optional<int32_t> begin;
  std::vector<int32_t> ends;
  for (const char *file :
       {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (!begin)
      begin = facts.token(file, "bos_token");
    if (std::optional<int32_t> end = facts.token(file, "eos_token"))
      ends.push_back(*end);
  }
  // config.json speaks only where generation_config.json is silent.
  for (const char *file : {"generation_config.json", "config.json"}) {
    std::vector<int32_t> ids = facts.ids(file, "bos_token_id");
    if (!begin && !ids.empty())
      begin = ids.front();
    ids = facts.ids(file, "eos_token_id");
    ends.insert(ends.end(), ids.begin(), ids.end());
    if (!ids.empty())
      break;
  }
  tokenizer.setBeginId(begin);
  tokenizer.setEndIds(std::move(ends));
  tokenizer.setChatTemplate(facts.chatTemplate());
  return tokenizer;
}

} // namespace stem
