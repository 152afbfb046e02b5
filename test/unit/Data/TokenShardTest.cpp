//===- TokenShardTest.cpp - Shards, whole and damaged ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/TokenShard.h"

#include "DataTestSupport.h"

#include <csignal>
#include <map>
#include <sys/resource.h>

using namespace stem;
using namespace stem::test;
namespace fs = std::filesystem;

namespace {

constexpr const char *advice = "remove the file, so that it is made anew, or "
                               "give another --shard";

/// A shard put together tensor by tensor, so that each part can be wrong.
struct Parts {
  std::vector<uint64_t> ends = {2, 5};
  std::vector<uint16_t> narrow = {1, 2, 3, 4, 5};
  std::vector<uint32_t> wide; ///< in place of `narrow`, when not empty
  std::map<std::string, std::string> metadata = {{"format", "stem-token-shard"},
                                                 {"version", "1"},
                                                 {"tokenizer_sha256", someHash},
                                                 {"vocabulary", "1000"},
                                                 {"begin_token", "none"},
                                                 {"end_token", "none"},
                                                 {"special_tokens", "text"},
                                                 {"separator", "\f"},
                                                 {"sources", "[]"}};

  void write(const fs::path &path) const {
    const auto ids = wide.empty() ? bytesOf(narrow) : bytesOf(wide);
    std::map<std::string, std::string> header = metadata;
    const auto add = [&](const char *key, std::span<const std::byte> bytes) {
      Sha256 hash;
      hash.update(bytes);
      header.try_emplace(key, hash.finish());
    };
    add("tokens_sha256", ids);
    add("document_ends_sha256", bytesOf(ends));
    SafetensorsWriter writer(path,
                             {{"document_ends", DType::U64, {ends.size()}},
                              {"tokens",
                               wide.empty() ? DType::U16 : DType::U32,
                               {wide.empty() ? narrow.size() : wide.size()}}},
                             header);
    writer.write(bytesOf(ends));
    writer.write(ids);
    writer.finish();
  }
};

class TokenShardTest : public testing::Test {
protected:
  TokenShard open() const { return TokenShard::open(path); }
  TokenShard open(const Parts &parts) const {
    parts.write(path);
    return open();
  }

  TemporaryFolder folder;
  fs::path path = folder / "a.shard";
};

TEST_F(TokenShardTest, givesWhatWasWritten) {
  for (const int64_t vocabulary : {1, 10, 65536, 65537, 200000}) {
    ShardSettings settings = plainSettings(vocabulary);
    const int32_t most = static_cast<int32_t>(vocabulary) - 1;
    Documents documents = {{0, most, most / 2}, {most}, Ids(3000000, most)};
    documents.push_back(Ids(500, 0));
    writeShard(path, documents, settings, {{"a.txt", 12, someHash}});
    const TokenShard shard = open();
    EXPECT_EQ(readDocuments(shard), documents);
    EXPECT_EQ(shard.tokenCount(), 3000504u);
    EXPECT_EQ(shard.documentCount(), 4u);
    EXPECT_EQ(shard.settings().vocabulary, vocabulary);
    EXPECT_EQ(shard.settings().tokenizerSha256, someHash);
    EXPECT_EQ(shard.sources(),
              (std::vector<SourceText>{{"a.txt", 12, someHash}}));
    // Two bytes an id where they suffice.
    EXPECT_EQ(fs::file_size(path) / 1000000, vocabulary <= 65536 ? 6u : 12u);
    EXPECT_EQ(folder.entryCount(), 1u);
  }
}

TEST_F(TokenShardTest, manyDocuments) {
  Documents documents;
  for (int32_t i = 0; i < 300000; ++i)
    documents.push_back({i % 1000});
  writeShard(path, documents);
  EXPECT_EQ(readDocuments(open()), documents);
}

TEST_F(TokenShardTest, surroundsDocuments) {
  ShardSettings settings = plainSettings();
  settings.beginToken = 1;
  settings.endToken = 2;
  TokenShardWriter writer(path, settings);
  for (const Ids &ids : Documents{{5, 6}, {}, {7}})
    writer.append(ids);
  EXPECT_EQ(writer.endDocument(), 5u);
  EXPECT_EQ(writer.endDocument(), 0u); // nothing in it
  // Never twice.
  writer.append(Ids{1, 5, 2});
  EXPECT_EQ(writer.endDocument(), 3u);
  writer.append(Ids{2});
  EXPECT_EQ(writer.endDocument(), 2u);
  writer.append(Ids{9}); // the last is ended by finish()
  writer.finish({});
  const Documents wanted = {{1, 5, 6, 7, 2}, {1, 5, 2}, {1, 2}, {1, 9, 2}};
  const TokenShard shard = open();
  EXPECT_EQ(readDocuments(shard), wanted);
  EXPECT_EQ(shard.settings().beginToken, 1);
  EXPECT_EQ(shard.settings().endToken, 2);
}

TEST_F(TokenShardTest, contentIsNamed) {
  writeShard(path, {{1, 2}, {3}});
  const std::string content = open().contentSha256();
  writeShard(path, {{1, 2}, {3}}, plainSettings(999));
  EXPECT_EQ(open().contentSha256(), content);
  writeShard(path, {{1}, {2, 3}});
  EXPECT_NE(open().contentSha256(), content);
  writeShard(path, {{1, 2}, {4}});
  EXPECT_NE(open().contentSha256(), content);
}

TEST_F(TokenShardTest, writerRefuses) {
  TokenShardWriter writer(path, plainSettings());
  writer.append(Ids{1});
  writer.endDocument();
  EXPECT_ERROR(writer.append(Ids{3, 1000}), "a.shard",
               "id 1000 of document 1 lies outside the vocabulary of 1000",
               "the tokenizer that belongs to the model");
  EXPECT_ERROR(writer.append(Ids{-1}), "id -1");
  TokenShardWriter empty(folder / "b.shard", plainSettings());
  EXPECT_ERROR(empty.finish({}), "b.shard: there is no document to write",
               "give text that is not empty");
  EXPECT_ERROR(TokenShardWriter(folder / "none" / "a.shard", plainSettings()),
               "none/a.shard", "No such file");
}

// Neither a shard nor what it was being made from.
TEST_F(TokenShardTest, anUnfinishedWriterLeavesNothing) {
  writeText(path, "before");
  {
    TokenShardWriter writer(path, plainSettings());
    writer.append(Ids(3000000, 1));
    EXPECT_EQ(folder.entryCount(), 3u);
  }
  EXPECT_EQ(folder.entryCount(), 1u);
  EXPECT_EQ(readText(path), "before");
}

TEST_F(TokenShardTest, aFullDiskLeavesNothing) {
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit few = {3 << 20, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &few);
  const std::string message =
      errorOf([&] { writeShard(path, {Ids(3000000, 1)}); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(hasAll(message, {"a.shard: cannot write", "File too large"}));
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST_F(TokenShardTest, refusesOtherFiles) {
  EXPECT_ERROR(open(), "a.shard", "cannot open", "No such file");
  writeText(path, "");
  EXPECT_ERROR(open(), "a.shard", "the file is empty");
  writeText(path, "some text that is no shard");
  EXPECT_ERROR(open(), "a.shard", "not safetensors");
  writeText(path, "GGUF____________");
  EXPECT_ERROR(open(), "not a safetensors file: it is a GGUF file");
  SafetensorsWriter(path, {}).finish();
  EXPECT_ERROR(open(), "a.shard: is a safetensors file, but no token shard",
               "its \"format\" is \"pt\", not \"stem-token-shard\"",
               "give another --shard");
  SafetensorsWriter(path, {}, {}).finish();
  EXPECT_ERROR(open(), "its \"format\" is missing");
}

TEST_F(TokenShardTest, refusesOtherVersions) {
  for (const char *version : {"0", "2", "1.0", ""}) {
    Parts parts;
    parts.metadata["version"] = version;
    EXPECT_ERROR(open(parts),
                 fmt::format("a.shard: is a token shard of version {}, this "
                             "program reads version 1",
                             version),
                 advice);
  }
}

TEST_F(TokenShardTest, refusesTruncatedFiles) {
  Parts().write(path);
  const std::string whole = readText(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    writeText(path, whole.substr(0, size));
    EXPECT_ERROR(open(), "a.shard");
  }
  writeText(path, whole + "x");
  EXPECT_ERROR(open(), "1 bytes follow the last tensor");
}

// Whatever bit is wrong, the shard is refused or means the same.
TEST_F(TokenShardTest, refusesDamagedFiles) {
  Parts().write(path);
  const std::string whole = readText(path);
  const Documents documents = readDocuments(open());
  size_t accepted = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    writeText(path, damaged);
    try {
      const TokenShard shard = open();
      ++accepted;
      EXPECT_EQ(readDocuments(shard), documents) << at;
    } catch (const Error &error) {
      EXPECT_TRUE(hasAll(error.what(), {"a.shard"}));
    }
  }
  // In the tokenizer's hash, the separator, the vocabulary and padding.
  EXPECT_LT(accepted, 100u);
}

TEST_F(TokenShardTest, refusesContentThatChanged) {
  Parts parts;
  parts.metadata["tokens_sha256"] = someHash;
  EXPECT_ERROR(open(parts), "a.shard: is damaged: the SHA-256 of its tokens",
               advice);
  parts = Parts();
  parts.metadata["document_ends_sha256"] = someHash;
  EXPECT_ERROR(open(parts), "the SHA-256 of its document ends", advice);
}

TEST_F(TokenShardTest, refusesBadMetadata) {
  const auto expect = [&](const char *key, const char *value,
                          const std::string &message) {
    Parts parts;
    parts.metadata[key] = value;
    EXPECT_ERROR(open(parts),
                 fmt::format("a.shard: \"{}\" in its metadata is \"{}\", which "
                             "is not {}",
                             key, value, message),
                 advice);
  };
  for (const char *value : {"", "x", "0", "-1", "10x", " 10", "2147483649"})
    expect("vocabulary", value, "a number from 1 to 2147483647");
  for (const char *key : {"begin_token", "end_token"})
    for (const char *value : {"-1", "1000", "", "None"})
      expect(key, value, "a number from 0 to 999");
  for (const char *value : {"", "Text"})
    expect("special_tokens", value, "\"text\" or \"parsed\"");
  for (const char *key :
       {"tokenizer_sha256", "tokens_sha256", "document_ends_sha256"})
    for (const char *value : {"", "ab"})
      expect(key, value, "a SHA-256 in hex");
  for (const char *value :
       {"", "3", "{}", "[3]", "[{}]", R"([{"name": "a", "bytes": 3}])",
        R"([{"name": "a", "bytes": -3, "sha256": ""}])",
        R"([{"name": "a", "bytes": 3, "sha256": "x"}])", "[{"})
    expect("sources", value, "a list of texts with name, bytes and sha256");
}

TEST_F(TokenShardTest, refusesMissingMetadata) {
  const Parts whole;
  for (const auto &[key, value] : whole.metadata) {
    if (key == "format")
      continue;
    Parts parts;
    parts.metadata.erase(key);
    EXPECT_ERROR(open(parts),
                 fmt::format("a.shard: its metadata has no \"{}\"", key),
                 advice);
  }
}

TEST_F(TokenShardTest, refusesOtherTensors) {
  // Two bytes an id, but a vocabulary that needs more; and the other way.
  Parts parts;
  parts.metadata["vocabulary"] = "65537";
  EXPECT_ERROR(open(parts),
               "a.shard: tensor \"tokens\" has type U16 and 1 dimensions",
               "has U32 and one", advice);
  parts = Parts();
  parts.wide = {1, 2, 3, 4, 5};
  EXPECT_ERROR(open(parts), "has type U32", "has U16 and one");
  SafetensorsWriter writer(path, {{"tokens", DType::U16, {1, 1}}}, [] {
    auto metadata = Parts().metadata;
    metadata["tokens_sha256"] = someHash;
    metadata["document_ends_sha256"] = someHash;
    return metadata;
  }());
  writer.write(bytesOf(std::vector<uint16_t>{1}));
  writer.finish();
  EXPECT_ERROR(open(), "has type U16 and 2 dimensions");
}

TEST_F(TokenShardTest, refusesBadDocumentEnds) {
  const auto expect = [&](std::vector<uint64_t> ends,
                          const std::string &message) {
    Parts parts;
    parts.ends = std::move(ends);
    EXPECT_ERROR(open(parts), "a.shard: " + message, advice);
  };
  expect({2, 2, 5}, "document 1 ends at 2, which is not between 3 and the 5");
  expect({0, 5}, "document 0 ends at 0, which is not between 1 and the 5");
  expect({4, 3, 5}, "document 1 ends at 3, which is not between 5 and the 5");
  expect({2, 6}, "document 1 ends at 6, which is not between 3 and the 5");
  expect({2, ~uint64_t{0}}, "document 1 ends at 18446744073709551615");
  expect({2, 4}, "the last document ends at 4, but there are 5 ids");
  expect({}, "holds 0 documents and 5 ids, so there is nothing in it");
}

TEST_F(TokenShardTest, refusesEmptyShards) {
  Parts parts;
  parts.ends = {};
  parts.narrow = {};
  EXPECT_ERROR(open(parts), "holds 0 documents and 0 ids", advice);
}

TEST_F(TokenShardTest, refusesIdsOutsideTheVocabulary) {
  Parts parts;
  parts.narrow = {1, 2, 3, 1000, 65535};
  EXPECT_ERROR(open(parts),
               "a.shard: id 1000 at place 3 (document 1) lies outside the "
               "vocabulary of 1000",
               advice);
  parts = Parts();
  parts.metadata["vocabulary"] = "70000";
  parts.wide = {1, 4294967295, 3, 4, 5};
  EXPECT_ERROR(open(parts), "id 4294967295 at place 1 (document 0)");
  // Far behind the first pages.
  parts.wide.assign(3000000, 69999);
  parts.wide[2500000] = 70000;
  parts.ends = {2500000, 3000000};
  EXPECT_ERROR(open(parts), "id 70000 at place 2500000 (document 1)");
}

TEST_F(TokenShardTest, refusesAnotherModel) {
  writeShard(path, {{1}});
  const TokenShard shard = open();
  shard.requireModel(someHash, 1000, "model");
  shard.requireModel(someHash, 2000, "model"); // rows without a token
  EXPECT_ERROR(shard.requireModel(std::string(64, 'b'), 1000, "some/model"),
               "a.shard: was tokenized with another tokenizer than that of "
               "some/model",
               "SHA-256 aaaaaaaaaaaa…, the model's is bbbbbbbbbbbb…", advice);
  EXPECT_ERROR(shard.requireModel(someHash, 999, "some/model"),
               "a.shard: has a vocabulary of 1000, some/model has 999 rows",
               advice);
}

TEST_F(TokenShardTest, refusesOtherSettings) {
  ShardSettings settings = plainSettings();
  settings.endToken = 2;
  writeShard(path, {{1}}, settings);
  const TokenShard shard = open();
  shard.requireSettings(settings);
  const auto expect = [&](auto change, const std::string &message) {
    ShardSettings other = settings;
    change(other);
    EXPECT_ERROR(shard.requireSettings(other),
                 "a.shard: was written with " + message, advice);
  };
  expect([](ShardSettings &s) { s.beginToken = 1; },
         "no token before each document, asked for is token 1");
  expect([](ShardSettings &s) { s.endToken = 3; },
         "token 2 after each document, asked for is token 3");
  expect([](ShardSettings &s) { s.endToken.reset(); },
         "token 2 after each document, asked for is no token");
  expect([](ShardSettings &s) { s.parsesSpecial = true; },
         "text for special tokens that are spelled in a text, asked for is "
         "their tokens");
  expect([](ShardSettings &s) { s.separator = "--"; },
         "\"\\x0c\" between documents, asked for is \"--\"");
}

TEST_F(TokenShardTest, refusesTextsThatChanged) {
  const fs::path one = folder / "one.txt", two = folder / "two.txt";
  writeText(one, "abc");
  writeText(two, "def");
  writeShard(
      path, {{1}}, plainSettings(),
      {{one.string(), 3, hashText("abc")}, {two.string(), 3, hashText("def")}});
  const TokenShard shard = open();
  shard.requireSources({one, two});
  EXPECT_ERROR(shard.requireSources({one}),
               "a.shard: was made of 2 texts, given are 1", advice);
  EXPECT_ERROR(shard.requireSources({two, one}),
               "two.txt is not the text that "
               "it was made of",
               "one.txt (3 bytes, SHA-256 ba7816bf8f01…; now 3 bytes, ");
  writeText(two, "deg");
  EXPECT_ERROR(shard.requireSources({one, two}), "two.txt is not the text",
               advice);
  writeText(two, "defg");
  EXPECT_ERROR(shard.requireSources({one, two}), "now 4 bytes");
  fs::remove(two);
  EXPECT_ERROR(shard.requireSources({one, two}), "two.txt: cannot open");
  // Under another name it is the same text.
  fs::rename(one, folder / "1.txt");
  writeText(two, "def");
  shard.requireSources({folder / "1.txt", two});
}

// Names of files are bytes, a header is UTF-8.
TEST_F(TokenShardTest, namesNeedNotBeUtf8) {
  writeShard(path, {{1}}, plainSettings(), {{"a\xff", 3, someHash}});
  EXPECT_EQ(open().sources()[0].name, "a\xEF\xBF\xBD");
}

} // namespace
