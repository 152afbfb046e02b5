//===- TextShardTest.cpp - From texts to a shard --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/TextShard.h"

#include "../Model/TokenizerTestData.h"
#include "DataTestSupport.h"

#include "stem/Data/TextDocuments.h"
#include "stem/Model/TokenizerGguf.h"
#include "stem/Runtime/Context.h"

#include <cstdlib>
#include <span>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

Tokenizer beginningAndEnding() {
  Json json = tinyBytes();
  json["post_processor"] = beginAndEnd();
  return load(json);
}

class TextShardTest : public testing::Test {
protected:
  fs::path write(const std::string &name, const std::string &text) const {
    writeText(folder / name, text);
    return folder / name;
  }

  Documents documents() const { return readDocuments(TokenShard::open(path)); }

  TemporaryFolder folder;
  fs::path path = folder / "a.shard";
  Tokenizer tokenizer = load(tinyBytes());
  ShardSettings settings = shardSettings(tokenizer, someHash);
};

TEST_F(TextShardTest, documentsOfTextAndJsonLines) {
  const fs::path text = write("a.txt", "ab\fc\f\n"),
                 lines = write("b.jsonl",
                               "{\"text\": \"a\\fb\"}\n{\"text\": \"\"}\n");
  const TokenizeReport report =
      writeTextShard(path, {text, lines, text}, tokenizer, settings);
  const Documents wanted = {{'a', 'b'}, {'c'}, {'\n'}, {'a', '\f', 'b'},
                            {'a', 'b'}, {'c'}, {'\n'}};
  EXPECT_EQ(documents(), wanted);
  EXPECT_EQ(report.documents, 7u);
  EXPECT_EQ(report.tokens, 11u);
  EXPECT_EQ(report.textBytes, 11u);
  EXPECT_EQ(report.emptyDocuments, 1u);
  EXPECT_EQ(report.droppedSymbols, 0u);
  EXPECT_TRUE(report.specialTokensAsText.empty());
  TokenShard::open(path).requireSources({text, lines, text});
  TokenShard::open(path).requireSettings(settings);
}

TEST_F(TextShardTest, tokensAroundDocuments) {
  const Tokenizer around = beginningAndEnding();
  const ShardSettings settings = shardSettings(around, someHash);
  EXPECT_EQ(settings.beginToken, 256);
  EXPECT_EQ(settings.endToken, 257);
  EXPECT_EQ(settings.vocabulary, 258);
  // A long document has them once.
  writeTextShard(path, {write("a.txt", "abcdefghi\fa")}, around, settings,
                 {.pieceBytes = 4});
  const Documents wanted = {around.encode("abcdefghi"), around.encode("a")};
  EXPECT_EQ(documents(), wanted);
  EXPECT_EQ(wanted[0].size(), 11u);
}

TEST_F(TextShardTest, settingsOfTokenizers) {
  EXPECT_EQ(settings.beginToken, std::nullopt);
  EXPECT_EQ(settings.endToken, std::nullopt);
  EXPECT_EQ(settings.tokenizerSha256, someHash);
  // The first of those that end generation; a begin token is not added where
  // the tokenizer adds none.
  tokenizer.setBeginId(256);
  tokenizer.setEndIds({257, 9});
  EXPECT_EQ(shardSettings(tokenizer, someHash).beginToken, std::nullopt);
  EXPECT_EQ(shardSettings(tokenizer, someHash).endToken, 9);

  Json json = tinyBytes();
  json["post_processor"] = beginAndEnd();
  json["post_processor"]["special_tokens"]["<s>"]["ids"] = {256, 255};
  EXPECT_ERROR(shardSettings(load(json), someHash),
               "the tokenizer adds 3 tokens around a text",
               "one before and one after it");
}

TEST_F(TextShardTest, specialTokensAreTextUnlessParsed) {
  const fs::path text = write("a.txt", "a<s>b\f</s>");
  TokenizeReport report = writeTextShard(path, {text}, tokenizer, settings);
  EXPECT_EQ(documents(),
            (Documents{{'a', '<', 's', '>', 'b'}, {'<', '/', 's', '>'}}));
  EXPECT_EQ(report.specialTokensAsText,
            (std::vector<std::string>{"<s>", "</s>"}));
  settings.parsesSpecial = true;
  report = writeTextShard(path, {text}, tokenizer, settings);
  EXPECT_EQ(documents(), (Documents{{'a', 256, 'b'}, {257}}));
  EXPECT_TRUE(report.specialTokensAsText.empty());
}

TEST_F(TextShardTest, charactersWithoutATokenAreCounted) {
  Json json = tinyBytes();
  json["model"]["vocab"].erase("a");
  const Tokenizer lacking = load(json);
  const TokenizeReport report =
      writeTextShard(path, {write("a.txt", "abcaa\fa")}, lacking,
                     shardSettings(lacking, someHash));
  EXPECT_EQ(report.droppedSymbols, 4u);
  EXPECT_EQ(documents(), (Documents{{'b', 'c'}}));
  EXPECT_EQ(report.emptyDocuments, 1u);
}

TEST_F(TextShardTest, otherSeparators) {
  const fs::path text = write("a.txt", "ab<|end|>c\fd");
  settings.separator = "<|end|>";
  writeTextShard(path, {text}, tokenizer, settings);
  EXPECT_EQ(documents(), (Documents{{'a', 'b'}, {'c', '\f', 'd'}}));
  settings.separator = "";
  writeTextShard(path, {text}, tokenizer, settings);
  EXPECT_EQ(documents().size(), 1u);
}

/// Words, lines and blank lines.
std::string someText(size_t words) {
  std::string text;
  uint32_t state = 3;
  for (size_t i = 0; i < words; ++i) {
    state = state * 1664525 + 1013904223;
    const uint32_t draw = state >> 16;
    text += std::string(1 + draw % 7, static_cast<char>('a' + draw % 26));
    text += draw % 97 == 0   ? "\f"
            : draw % 41 == 0 ? "\n\n"
            : draw % 11 == 0 ? "\n"
                             : " ";
  }
  return text;
}

// Nor on the size of pieces, here where a byte is a token.
TEST_F(TextShardTest, doesNotDependOnBatchesAndThreads) {
  const fs::path text = write("a.txt", someText(30000));
  writeTextShard(path, {text, text}, tokenizer, settings);
  const std::string wanted = readText(path);
  for (const int threads : {1, 3}) {
    const ContextPtr context = createContext(threads);
    for (const size_t batch : {1, 100, 30000, 100000000})
      for (const size_t piece : {50, 1000, 1 << 20}) {
        uint64_t told = 0;
        writeTextShard(path, {text, text}, tokenizer, settings,
                       {.pieceBytes = piece,
                        .batchBytes = batch,
                        .context = context.get(),
                        .onProgress = [&](uint64_t bytes) {
                          EXPECT_GE(bytes, told);
                          told = bytes;
                        }});
        EXPECT_EQ(readText(path), wanted) << threads << " " << batch;
        EXPECT_EQ(told, 2 * fs::file_size(text));
      }
  }
}

TEST_F(TextShardTest, refusesTextsWithoutText) {
  const fs::path good = write("good.txt", "a");
  const std::pair<const char *, const char *> empties[] = {
      {"a.txt", ""},
      {"a.txt", "\f\f"},
      {"a.jsonl", ""},
      {"a.jsonl", "{\"text\": \"\"}\n"}};
  for (const auto &[name, content] : empties) {
    const fs::path empty = write(name, content);
    EXPECT_ERROR(writeTextShard(path, {good, empty}, tokenizer, settings),
                 fmt::format("{}: has {} bytes and no text", empty.string(),
                             std::string_view(content).size()),
                 "give files that hold some");
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_ERROR(writeTextShard(path, {}, tokenizer, settings),
               "there is no document to write");
}

// Of several mistakes the first is named, whatever the threads.
TEST_F(TextShardTest, refusesWhatIsNotUtf8) {
  const fs::path bad = write("a.txt", "ok\f" + std::string(100, 'x') +
                                          "\xff\f\xfe" + someText(5000));
  const ContextPtr context = createContext(4);
  for (int i = 0; i < 20; ++i)
    EXPECT_ERROR(writeTextShard(path, {bad}, tokenizer, settings,
                                {.context = context.get()}),
                 "a.txt, from byte 3 on: the text is not valid UTF-8: byte 100 "
                 "(0xFF)");
  EXPECT_ERROR(
      writeTextShard(path, {write("b.txt", "\xff")}, tokenizer, settings),
      "b.txt: the text is not valid UTF-8: byte 0");
  EXPECT_ERROR(writeTextShard(path, {write("a.jsonl", "{\"text\": \"a\"}\n[]")},
                              tokenizer, settings),
               "a.jsonl:2: holds no object");
  EXPECT_ERROR(writeTextShard(path, {folder / "none"}, tokenizer, settings),
               "none", "cannot open");
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(folder.entryCount(), 3u);
}

TEST_F(TextShardTest, refusesIdsThatTheSettingsDoNotKnow) {
  settings.vocabulary = 100;
  EXPECT_ERROR(
      writeTextShard(path, {write("a.txt", "Ax")}, tokenizer, settings),
      "id 120 of document 0 lies outside the vocabulary of 100");
}

TEST_F(TextShardTest, isWrittenOnce) {
  ShardRequest request = {
      path, {write("a.txt", "ab\fc")}, settings, 258, "some/model"};
  const auto prepare = [&] { return prepareShard(request, tokenizer); };
  const PreparedShard first = prepare();
  ASSERT_TRUE(first.written);
  EXPECT_EQ(first.written->tokens, 3u);
  EXPECT_EQ(readDocuments(first.shard), (Documents{{'a', 'b'}, {'c'}}));
  const fs::file_time_type when = fs::last_write_time(path);
  const PreparedShard second = prepare();
  EXPECT_FALSE(second.written);
  EXPECT_EQ(second.shard.contentSha256(), first.shard.contentSha256());

  // One that does not fit is refused, and stays.
  request.vocabSize = 257;
  EXPECT_ERROR(prepare(), "has a vocabulary of 258, some/model has 257 rows");
  request.vocabSize = 258;
  request.settings.tokenizerSha256 = std::string(64, 'b');
  EXPECT_ERROR(prepare(), "another tokenizer than that of some/model");
  request.settings = settings;
  request.settings.endToken = 257;
  EXPECT_ERROR(prepare(), "no token after each document");
  request.settings = settings;
  write("a.txt", "ab\fd");
  EXPECT_ERROR(prepare(), "a.txt is not the text that it was made of");
  EXPECT_EQ(fs::last_write_time(path), when);

  // The shard alone.
  request.files.clear();
  request.settings.endToken = 257;
  EXPECT_FALSE(prepare().written);
  fs::remove(path);
  EXPECT_ERROR(prepare(), "a.shard: cannot open");
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(TextShardTest, hashOfAFolder) {
  const fs::path golden = fs::path(STEM_TEST_DATA) / "golden" / "llama_gqa";
  for (const char *file : {"config.json", "model.safetensors"})
    fs::copy_file(golden / file, folder / file);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_ERROR(tokenizerSha256(checkpoint), "tokenizer.json: cannot open");
  write("tokenizer.json", "abc");
  EXPECT_EQ(tokenizerSha256(checkpoint), hashText("abc"));
}

// The tests below read the tokenizer of a real model.
class SmolLM2Test : public TextShardTest {
protected:
  void SetUp() override {
    const char *path = std::getenv("STEM_SMOLLM2_GGUF");
    if (!path)
      GTEST_SKIP() << "STEM_SMOLLM2_GGUF is not set";
    model = path;
  }
  fs::path model;
};

// A folder that was imported from the file has the same tokenizer.
TEST_F(SmolLM2Test, hashOfAFileIsThatOfItsFolder) {
  const Checkpoint checkpoint = Checkpoint::open(model);
  const std::string json = tokenizerJsonText(*checkpoint.gguf());
  EXPECT_EQ(tokenizerSha256(checkpoint), hashText(json));
  EXPECT_EQ(Tokenizer::fromJson(json, "x").encode("Hello world"),
            tokenizerFromGguf(*checkpoint.gguf()).encode("Hello world"));
}

TEST_F(SmolLM2Test, piecesAreCutWhereTheTokenizerCuts) {
  const Checkpoint checkpoint = Checkpoint::open(model);
  const Tokenizer real = tokenizerFromGguf(*checkpoint.gguf());
  settings = shardSettings(real, tokenizerSha256(checkpoint));
  EXPECT_EQ(settings.endToken, 2);
  const std::string text = someText(20000);
  write("a.txt", text);
  writeTextShard(path, {folder / "a.txt"}, real, settings, {.pieceBytes = 500});
  Documents wanted;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\f', begin), text.size());
    wanted.push_back(real.encode(text.substr(begin, end - begin)));
    wanted.back().push_back(2);
    begin = end + 1;
  }
  EXPECT_EQ(documents(), wanted);
  TokenShard::open(path).requireModel(tokenizerSha256(checkpoint),
                                      checkpoint.config().vocabSize, "model");
}

} // namespace
