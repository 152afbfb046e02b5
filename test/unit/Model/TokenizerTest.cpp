//===- TokenizerTest.cpp - What a tokenizer promises ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerTestData.h"
#include "stem/Support/Error.h"

#include <chrono>
#include <gtest/gtest.h>

using namespace stem;
using namespace stem::test;
using Ids = std::vector<int32_t>;

TEST(Tokenizer, EmptyText) {
  EXPECT_EQ(load(tinyBytes()).encode(""), Ids{});
  EXPECT_EQ(load(tinyBytes()).decode({}), "");
}

TEST(Tokenizer, InvalidUtf8NamesTheByte) {
  Tokenizer tokenizer = load(tinyBytes());
  for (auto [text, offset] : {std::pair("ab\xFF", "byte 2 (0xFF)"),
                              {"a\xC3", "byte 1 (0xC3)"},
                              {"\xC0\x80", "byte 0 (0xC0)"},
                              {"\xED\xA0\x80", "byte 0 (0xED)"},
                              {"\xF4\x90\x80\x80", "byte 0 (0xF4)"},
                              {"ab\x80", "byte 2 (0x80)"}}) {
    EXPECT_THAT_ERROR(tokenizer.encode(text), "not valid UTF-8");
    EXPECT_THAT_ERROR(tokenizer.encode(text), offset);
    EXPECT_THAT_ERROR(tokenizer.specialTokensIn(text), offset);
  }
}

TEST(Tokenizer, BeginAndEndTokensAreNeverDoubled) {
  Json json = tinyBytes();
  json["post_processor"] = beginAndEnd();
  Tokenizer tokenizer = load(json);
  Ids whole = {256, 'a', 257};
  EXPECT_TRUE(tokenizer.addsBeginToken());
  EXPECT_TRUE(tokenizer.addsEndToken());
  for (const char *text : {"a", "<s>a", "a</s>", "<s>a</s>"})
    EXPECT_EQ(tokenizer.encode(text), whole) << text;
  EXPECT_EQ(tokenizer.encode("a", {.addSpecialTokens = false}), Ids{'a'});
  // The text of a user is not the token.
  EXPECT_EQ(tokenizer.encode("<s>", {.parseSpecial = false}),
            (Ids{256, '<', 's', '>', 257}));

  json["post_processor"] = {{"type", "Sequence"},
                            {"processors", {beginAndEnd(), beginAndEnd()}}};
  EXPECT_EQ(load(json).encode("a"), whole);
}

TEST(Tokenizer, NoPostProcessorAddsNothing) {
  Tokenizer tokenizer = load(tinyBytes());
  EXPECT_FALSE(tokenizer.addsBeginToken());
  EXPECT_FALSE(tokenizer.addsEndToken());
  EXPECT_EQ(tokenizer.encode("a"), Ids{'a'});
}

TEST(Tokenizer, ReportsSpecialTokensThatStayText) {
  Tokenizer tokenizer = load(tinyBytes());
  EncodeReport report;
  tokenizer.encode("<s> x </s> <s>", {.parseSpecial = false}, &report);
  EXPECT_EQ(report.specialTokensAsText,
            (std::vector<std::string>{"<s>", "</s>"}));
  tokenizer.encode("<s>", {}, &report);
  EXPECT_TRUE(report.specialTokensAsText.empty());
  EXPECT_TRUE(tokenizer.specialTokensIn("plain").empty());
}

TEST(Tokenizer, PartsAreOneTextButForSpecialTokens) {
  Json json = tinyBytes();
  json["model"]["vocab"]["\u0120a"] = 258;
  json["model"]["merges"] = {"\u0120 a"};
  Tokenizer tokenizer = load(json);
  EncodeReport report;
  auto encode = [&](std::vector<TextPart> parts) {
    return tokenizer.encode(parts, {}, &report);
  };
  // The word begins in the template and ends in the user's text.
  EXPECT_EQ(encode({{"<s> ", true}, {"a<s>", false}, {"</s>", true}}),
            (Ids{256, 258, '<', 's', '>', 257}));
  EXPECT_EQ(report.specialTokensAsText, (std::vector<std::string>{"<s>"}));
  // A token may not be put together from both.
  EXPECT_EQ(encode({{"<", true}, {"s>", false}}), (Ids{'<', 's', '>'}));
  EXPECT_EQ(encode({{"<s", false}, {">", true}}), (Ids{'<', 's', '>'}));
  EXPECT_EQ(encode({{"<s", true}, {"", false}, {">", true}}), Ids{256});
  EXPECT_EQ(encode({}), Ids{});
}

TEST(Tokenizer, PlainTextNeverBecomesASpecialToken) {
  // The word is in the vocabulary, and a merge makes it.
  Json json = tinyBytes();
  json["model"]["vocab"]["EO"] = 258;
  json["added_tokens"].push_back(
      {{"id", 258}, {"content", "EO"}, {"special", true}});
  json["model"]["merges"] = {"E O"};
  for (bool ignoreMerges : {false, true}) {
    json["model"]["ignore_merges"] = ignoreMerges;
    Tokenizer tokenizer = load(json);
    EXPECT_EQ(tokenizer.encode("EO"), Ids{258});
    EXPECT_EQ(tokenizer.encode("EO", {.parseSpecial = false}), (Ids{'E', 'O'}));
  }
}

TEST(Tokenizer, NormalizedSpecialTokensInParts) {
  Json json = tinyBytes();
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"].push_back({{"id", 258},
                                  {"content", "<T>"},
                                  {"special", true},
                                  {"normalized", true}});
  Tokenizer tokenizer = load(json);
  EXPECT_EQ(tokenizer.encode("<t>"), Ids{258});
  std::vector<TextPart> parts = {{"<T>", false}, {"<s><t>", true}};
  EXPECT_EQ(tokenizer.encode(parts), (Ids{'<', 't', '>', 256, 258}));
}

TEST(Tokenizer, ReportsDroppedSymbols) {
  Json json = tinyBytes();
  json["model"]["vocab"].erase("b");
  EncodeReport report;
  EXPECT_EQ(load(json).encode("abcb", {}, &report), (Ids{'a', 'c'}));
  EXPECT_EQ(report.droppedSymbols, 2u);
}

TEST(Tokenizer, HolesInIds) {
  Json json = tinyBytes();
  json["added_tokens"].push_back({{"id", 300}, {"content", "<far>"}});
  Tokenizer tokenizer = load(json);
  EXPECT_EQ(tokenizer.vocabSize(), 301);
  EXPECT_EQ(tokenizer.tokenCount(), 259);
  EXPECT_EQ(tokenizer.tokenText(299), std::nullopt);
  EXPECT_EQ(tokenizer.tokenText(300), "<far>");
  EXPECT_EQ(tokenizer.tokenText(-1), std::nullopt);
  EXPECT_EQ(tokenizer.idOf("<far>"), 300);
  EXPECT_EQ(tokenizer.idOf("<none>"), std::nullopt);
  EXPECT_FALSE(tokenizer.isSpecial(300));
  EXPECT_TRUE(tokenizer.isSpecial(256));
  EXPECT_FALSE(tokenizer.isSpecial(299));
  EXPECT_EQ(tokenizer.decode({'a', 299, 'b', -7}), "a\uFFFDb\uFFFD");
}

TEST(Tokenizer, ATableTooSmallForTheTokenizer) {
  Tokenizer tokenizer = load(tinyBytes());
  EXPECT_NO_THROW(tokenizer.checkFits(258, "model"));
  EXPECT_THAT_ERROR(tokenizer.checkFits(257, "some/model"),
                    "some/model: the tokenizer has 1 tokens whose ids lie "
                    "outside the model's 257 rows: '</s>' (257)");
  EXPECT_THAT_ERROR(tokenizer.checkFits(200, "m"), "and 50 more");
}

TEST(Tokenizer, DecodesWholeCharactersOnly) {
  Tokenizer tokenizer = load(tinyBytes());
  // U+1F642 in its four bytes.
  Ids smile = tokenizer.encode("\U0001F642", {});
  ASSERT_EQ(smile.size(), 4u);
  StreamDecoder decoder(tokenizer);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(decoder.push(smile[static_cast<size_t>(i)]), "");
  EXPECT_EQ(decoder.push(smile[3]), "\U0001F642");
  EXPECT_EQ(decoder.push(smile[0]), "");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(Tokenizer, BrokenBytesBecomeReplacementCharacters) {
  Tokenizer tokenizer = load(tinyBytes());
  Ids smile = tokenizer.encode("\U0001F642", {});
  EXPECT_EQ(tokenizer.decode({smile[0], smile[1], 'x'}), "\uFFFDx");
  EXPECT_EQ(tokenizer.decode({smile[1], 'x'}), "\uFFFDx");
}

TEST(Tokenizer, SpecialTokensAreHiddenUnlessAsked) {
  Tokenizer tokenizer = load(tinyBytes());
  EXPECT_EQ(tokenizer.decode({256, 'a', 257}), "a");
  EXPECT_EQ(tokenizer.decode({256, 'a', 257}, /*skipSpecial=*/false),
            "<s>a</s>");
}

TEST(Tokenizer, ByteFallbackKeepsValidCharacters) {
  Json json = tinyPieces();
  Tokenizer tokenizer = load(json);
  Ids ids = tokenizer.encode("é", {});
  EXPECT_EQ(ids, (Ids{3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer.decode(ids), "é");
  EXPECT_EQ(tokenizer.decode({3 + 0xC3, 3 + 0xA9, 3 + 0xFF}), "é\uFFFD");
}

TEST(Tokenizer, UnknownTokensFuseOnlyWhenAsked) {
  Json json = tinyPieces();
  json["model"]["byte_fallback"] = false;
  EXPECT_EQ(load(json).encode("éé", {}), (Ids{0, 0}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(load(json).encode("éé", {}), (Ids{0}));
}

TEST(Tokenizer, LongestAddedTokenWins) {
  Json json = tinyBytes();
  json["added_tokens"].push_back({{"id", 258}, {"content", "xx"}});
  json["added_tokens"].push_back({{"id", 259}, {"content", "xxxx"}});
  EXPECT_EQ(load(json).encode("xxxxx"), (Ids{259, 'x'}));
  EXPECT_EQ(load(json).encode("xxx"), (Ids{258, 'x'}));
}

TEST(Tokenizer, LongRepetitiveTextTakesLinearTime) {
  // Pairs of pairs merge: every level of the queue is used.
  Json json = tinyBytes();
  int id = 258;
  for (std::string token : {"a", "Ġ"})
    for (int level = 0; level < 4; ++level) {
      json["model"]["merges"].push_back({token, token});
      token += token;
      json["model"]["vocab"][token] = id++;
    }
  json["normalizer"] = {{"type", "NFC"}};
  Tokenizer tokenizer = load(json);
  constexpr size_t Bytes = 1 << 20;
  std::string marks;
  for (size_t i = 0; i < Bytes / 4; ++i)
    marks += "\u0315\u0316";
  auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.encode(std::string(Bytes, 'a')).size(), Bytes / 16);
  EXPECT_LE(tokenizer.encode(std::string(Bytes, ' ')).size(), Bytes / 16 + 4);
  EXPECT_EQ(tokenizer.encode(std::string(Bytes, '\n')).size(), Bytes);
  EXPECT_EQ(tokenizer.encode(marks).size(), Bytes);
  std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  // About one second; quadratic time would be hours.
  EXPECT_LT(seconds.count(), 60);
}

TEST(Tokenizer, OldFilesWithoutModelType) {
  Json json = tinyBytes();
  json["model"].erase("type");
  EXPECT_EQ(load(json).encode("a"), Ids{'a'});
}

TEST(Tokenizer, TruncationAndPaddingAreNotApplied) {
  Json json = tinyBytes();
  json["truncation"] = {{"max_length", 1}};
  json["padding"] = {{"strategy", {{"Fixed", 8}}}};
  EXPECT_EQ(load(json).encode("ab"), (Ids{'a', 'b'}));
}
