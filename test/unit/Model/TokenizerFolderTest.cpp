//===- TokenizerFolderTest.cpp - The tokenizer of a model folder ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerTestData.h"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

namespace {

class TokenizerFolder : public testing::Test {
protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) /
             ("stem-tokenizer-" + std::to_string(::getpid()));
    fs::create_directory(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  void write(const char *name, const std::string &text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  void write(const char *name, const Json &json) { write(name, json.dump()); }

  fs::path folder;
};

} // namespace

TEST_F(TokenizerFolder, Facts) {
  write("tokenizer.json", tinyBytes());
  write("tokenizer_config.json", Json{{"bos_token", {{"content", "<s>"}}},
                                      {"eos_token", "</s>"},
                                      {"chat_template", "T"}});
  write("generation_config.json", Json{{"eos_token_id", {97, 257}}});
  write("config.json", Json{{"eos_token_id", 5}});
  Tokenizer tokenizer = Tokenizer::fromFolder(folder);
  EXPECT_EQ(tokenizer.beginId(), 256);
  EXPECT_EQ(tokenizer.endIds(), (Ids{97, 257}));
  EXPECT_EQ(tokenizer.chatTemplate(), "T");

  write("chat_template.jinja", std::string("J"));
  EXPECT_EQ(Tokenizer::fromFolder(folder).chatTemplate(), "J");
}

// To open a pipe would wait for ever.
TEST_F(TokenizerFolder, PipesInPlaceOfFiles) {
  for (const char *name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "generation_config.json", "chat_template.jinja"}) {
    write("tokenizer.json", tinyBytes());
    fs::remove(folder / name);
    ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
    EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder), "not a regular file");
    fs::remove(folder / name);
  }
}

TEST_F(TokenizerFolder, ConfigSpeaksWhereGenerationConfigIsSilent) {
  write("tokenizer.json", tinyBytes());
  write("special_tokens_map.json", Json{{"bos_token", "<s>"}});
  write("config.json", Json{{"eos_token_id", 5}, {"bos_token_id", 6}});
  Tokenizer tokenizer = Tokenizer::fromFolder(folder);
  EXPECT_EQ(tokenizer.beginId(), 256);
  EXPECT_EQ(tokenizer.endIds(), Ids{5});
  EXPECT_EQ(tokenizer.chatTemplate(), std::nullopt);
}

TEST_F(TokenizerFolder, NamedTemplates) {
  write("tokenizer.json", tinyBytes());
  Json tools = {{"name", "tools"}, {"template", "A"}};
  Json common = {{"name", "default"}, {"template", "B"}};
  write("tokenizer_config.json", Json{{"chat_template", {tools, common}}});
  EXPECT_EQ(Tokenizer::fromFolder(folder).chatTemplate(), "B");
  write("tokenizer_config.json", Json{{"chat_template", {tools}}});
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder),
                    "without one named 'default'");
}

TEST_F(TokenizerFolder, BadFacts) {
  write("tokenizer.json", tinyBytes());
  write("tokenizer_config.json", Json{{"bos_token", "<nowhere>"}});
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder),
                    "tokenizer_config.json: key 'bos_token': the token "
                    "'<nowhere>' is not in tokenizer.json");
  write("tokenizer_config.json", std::string("{"));
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder),
                    "tokenizer_config.json: not valid JSON");
  fs::remove(folder / "tokenizer_config.json");
  write("generation_config.json", Json{{"eos_token_id", "x"}});
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder),
                    "generation_config.json: key 'eos_token_id': expected a "
                    "token id");
}

TEST_F(TokenizerFolder, WithoutTokenizerJson) {
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder), "tokenizer.json is missing");
  write("vocab.json", std::string("{}"));
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder),
                    "has vocab.json but not tokenizer.json");
  write("tokenizer.model", std::string("x"));
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder),
                    "has tokenizer.model (SentencePiece) but not "
                    "tokenizer.json, which Stem reads; make it with");
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder / "none"), "not a folder");
}

TEST_F(TokenizerFolder, GitLfsPointer) {
  write("tokenizer.json",
        std::string("version https://git-lfs.github.com/spec/v1\n"
                    "oid sha256:0\nsize 10\n"));
  EXPECT_THAT_ERROR(Tokenizer::fromFolder(folder), "git lfs pull");
}
