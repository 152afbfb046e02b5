//===- TokenizerGgufTest.cpp - tokenizer.json from GGUF metadata ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/TokenizerGguf.h"
#include "TokenizerTestData.h"
#include "stem/Model/Gguf.h"

#include <cstring>
#include <map>

using namespace stem;
using namespace stem::test;
using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

namespace {

/// The bytes of a GGUF file without tensors.
class Metadata {
public:
  void set(const std::string &key, const std::string &value) {
    entries[key] = number<uint32_t>(8) + string(value);
  }
  void set(const std::string &key, const char *value) {
    set(key, std::string(value));
  }
  void set(const std::string &key, uint32_t value) {
    entries[key] = number<uint32_t>(4) + number(value);
  }
  void set(const std::string &key, bool value) {
    entries[key] = number<uint32_t>(7) + number<uint8_t>(value);
  }
  void set(const std::string &key, const Strings &values) {
    std::string bytes = arrayHead(8, values.size());
    for (const std::string &value : values)
      bytes += string(value);
    entries[key] = bytes;
  }
  template <typename T>
  void set(const std::string &key, uint32_t type,
           const std::vector<T> &values) {
    std::string bytes = arrayHead(type, values.size());
    for (T value : values)
      bytes += number(value);
    entries[key] = bytes;
  }
  void erase(const std::string &key) { entries.erase(key); }

  template <typename Use> auto with(Use use) const {
    std::string bytes = "GGUF" + number<uint32_t>(3) + number<uint64_t>(0) +
                        number<uint64_t>(entries.size());
    for (const auto &[key, value] : entries)
      bytes += string(key) + value;
    return use(GgufFile::parse(std::as_bytes(std::span(bytes)), "F"));
  }

private:
  template <typename T> static std::string number(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string string(const std::string &text) {
    return number<uint64_t>(text.size()) + text;
  }
  static std::string arrayHead(uint32_t type, size_t count) {
    return number<uint32_t>(9) + number(type) + number<uint64_t>(count);
  }

  std::map<std::string, std::string> entries;
};

Metadata byteLevel() {
  Metadata data;
  data.set("tokenizer.ggml.model", "gpt2");
  data.set("tokenizer.ggml.pre", "smollm");
  Strings tokens(258);
  Json tiny = tinyBytes();
  for (const auto &[token, id] : tiny["model"]["vocab"].items())
    tokens[id.get<size_t>()] = token;
  tokens[256] = "<s>";
  tokens[257] = "</s>";
  for (const char *token : {"11", "th", "\u0120th", "<user>"})
    tokens.push_back(token);
  std::vector<int32_t> types(tokens.size(), 1);
  types[256] = types[257] = 3;
  types.back() = 4;
  data.set("tokenizer.ggml.tokens", tokens);
  data.set("tokenizer.ggml.token_type", 5, types);
  data.set("tokenizer.ggml.merges", Strings{"1 1", "t h", "\u0120 th"});
  data.set("tokenizer.ggml.bos_token_id", 256u);
  data.set("tokenizer.ggml.eos_token_id", 257u);
  return data;
}

Metadata sentencePiece() {
  Metadata data;
  data.set("tokenizer.ggml.model", "llama");
  Strings tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  Json tiny = tinyPieces();
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  for (const char *token : {"\u2581", "a", "b", "c", "bc", "ab", "\u2581ab"}) {
    tokens.push_back(token);
    types.push_back(1);
  }
  std::vector<float> scores(tokens.size(), 0);
  for (size_t i = 259; i < scores.size(); ++i)
    scores[i] = 259 - static_cast<float>(i);
  data.set("tokenizer.ggml.tokens", tokens);
  data.set("tokenizer.ggml.token_type", 5, types);
  data.set("tokenizer.ggml.scores", 6, scores);
  data.set("tokenizer.ggml.bos_token_id", 1u);
  data.set("tokenizer.ggml.eos_token_id", 2u);
  data.set("tokenizer.ggml.unknown_token_id", 0u);
  return data;
}

Tokenizer tokenizerOf(const Metadata &data) {
  return data.with(tokenizerFromGguf);
}

} // namespace

TEST(TokenizerGguf, ByteLevel) {
  Tokenizer tokenizer = tokenizerOf(byteLevel());
  // Digits one by one although a merge exists.
  EXPECT_EQ(tokenizer.encode("11 th"), (Ids{'1', '1', 260}));
  EXPECT_EQ(tokenizer.encode("<s><user>"), (Ids{256, 261}));
  EXPECT_TRUE(tokenizer.isSpecial(256));
  EXPECT_FALSE(tokenizer.isSpecial(261));
  EXPECT_EQ(tokenizer.decode({260, '1'}), " th1");
  EXPECT_EQ(tokenizer.beginId(), 256);
  EXPECT_EQ(tokenizer.endIds(), Ids{257});
  EXPECT_FALSE(tokenizer.addsBeginToken());
}

TEST(TokenizerGguf, NamesOfPreTokenizers) {
  Metadata data = byteLevel();
  data.set("tokenizer.ggml.pre", "gpt-2");
  EXPECT_EQ(tokenizerOf(data).encode("1111"), (Ids{258, 258}));
  data.set("tokenizer.ggml.pre", "llama-bpe");
  EXPECT_EQ(tokenizerOf(data).encode("1111"), (Ids{256, 258, '1', '1'}));
  data.set("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(tokenizerOf(data).encode("1111"), (Ids{258, '1', '1'}));
  data.set("tokenizer.ggml.pre", "qwen2");
  EXPECT_EQ(tokenizerOf(data).encode("11"), (Ids{'1', '1'}));
  EXPECT_EQ(tokenizerOf(data).encode("e\u0301"), (Ids{0xC3, 0xA9}));
  data.set("tokenizer.ggml.pre", "dbrx");
  EXPECT_EQ(tokenizerOf(data).encode("e\u0301").size(), 3u);
  for (const char *name : {"olmo", "tekken", "stablelm2", "default"}) {
    data.set("tokenizer.ggml.pre", name);
    EXPECT_EQ(tokenizerOf(data).encode(" th."), (Ids{260, '.'})) << name;
  }
  data.set("tokenizer.ggml.pre", "hyper-bpe");
  EXPECT_THAT_ERROR(tokenizerOf(data),
                    "F: the pre-tokenizer 'hyper-bpe' (tokenizer.ggml.pre) is "
                    "not supported; known are gpt-2");
}

TEST(TokenizerGguf, BeginAndEndTokens) {
  Metadata data = byteLevel();
  data.set("tokenizer.ggml.add_bos_token", true);
  data.set("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(tokenizerOf(data).encode("a"), (Ids{256, 'a', 257}));
  data.erase("tokenizer.ggml.bos_token_id");
  EXPECT_THAT_ERROR(tokenizerOf(data),
                    "tokenizer.ggml.add_bos_token asks for a token that "
                    "tokenizer.ggml.bos_token_id does not name");
  data.set("tokenizer.ggml.bos_token_id", 5000u);
  EXPECT_THAT_ERROR(tokenizerOf(data),
                    "tokenizer.ggml.bos_token_id is 5000, but there are 262");
}

TEST(TokenizerGguf, SentencePiece) {
  Tokenizer tokenizer = tokenizerOf(sentencePiece());
  auto id = [&](const char *token) { return *tokenizer.idOf(token); };
  // "bc" has a better score than "ab".
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{1, id("\u2581"), id("a"), id("bc")}));
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{1, id("\u2581ab")}));
  EXPECT_EQ(tokenizer.encode("\n"), (Ids{1, id("\u2581"), 3 + '\n'}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab c\u00e9")), "ab c\u00e9");
  EXPECT_TRUE(tokenizer.addsBeginToken());

  Metadata data = sentencePiece();
  data.set("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(tokenizerOf(data).encode("ab"), (Ids{1, id("ab")}));
  EXPECT_EQ(tokenizerOf(data).decode({id("\u2581ab")}), " ab");
  data.erase("tokenizer.ggml.scores");
  EXPECT_THAT_ERROR(tokenizerOf(data),
                    "tokenizer.ggml.scores has 0 entries for 266 tokens");
}

TEST(TokenizerGguf, Config) {
  Metadata data = byteLevel();
  data.set("tokenizer.chat_template", "{{ x }}");
  data.set("tokenizer.ggml.padding_token_id", UINT32_MAX);
  Json config = data.with(tokenizerConfigFromGguf);
  EXPECT_EQ(config["bos_token"], "<s>");
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(config["chat_template"], "{{ x }}");
  EXPECT_FALSE(config.contains("pad_token"));
  EXPECT_EQ(tokenizerOf(data).chatTemplate(), "{{ x }}");
  data.set("tokenizer.chat_template", "\xFF");
  EXPECT_THAT_ERROR(data.with(tokenizerConfigFromGguf),
                    "tokenizer.chat_template: ");
}

TEST(TokenizerGguf, BadMetadata) {
  Metadata data;
  EXPECT_THAT_ERROR(tokenizerOf(data), "the tokenizer model 'none'");
  data.set("tokenizer.ggml.model", "bert");
  EXPECT_THAT_ERROR(tokenizerOf(data),
                    "F: the tokenizer model 'bert' (tokenizer.ggml.model) is "
                    "not supported; known are gpt2 and llama");
  data.set("tokenizer.ggml.model", "gpt2");
  EXPECT_THAT_ERROR(tokenizerOf(data), "tokenizer.ggml.tokens is missing");

  data = byteLevel();
  data.erase("tokenizer.ggml.merges");
  EXPECT_THAT_ERROR(tokenizerOf(data), "tokenizer.ggml.merges is missing");
  data.set("tokenizer.ggml.merges", Strings{"ab"});
  EXPECT_THAT_ERROR(tokenizerOf(data), "expected two tokens with a space");
  data.set("tokenizer.ggml.merges", Strings{"a zz"});
  EXPECT_THAT_ERROR(tokenizerOf(data), "needs the token 'zz'");
  data.set("tokenizer.ggml.token_type", 5, std::vector<int32_t>{1});
  EXPECT_THAT_ERROR(tokenizerOf(data), "token_type has 1 entries for 262");

  for (const auto &[tokens, part] :
       {std::pair(Strings{"a", "a"}, "the token 'a' appears twice, with ids 0 "
                                     "and 1"),
        {Strings{"\xFF"}, "is not valid UTF-8"},
        {Strings{std::string(3000, 'x')},
         "has 3000 bytes; the limit is 1024"}}) {
    data = byteLevel();
    data.set("tokenizer.ggml.tokens", tokens);
    data.erase("tokenizer.ggml.token_type");
    EXPECT_THAT_ERROR(tokenizerOf(data), part);
  }
}
