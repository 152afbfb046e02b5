//===- TokenizerErrorsTest.cpp - Files that a tokenizer refuses -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerTestData.h"

using namespace stem;
using namespace stem::test;

/// The message for tinyBytes with one value changed.
static std::string errorWith(const char *pointer, Json value) {
  Json json = tinyBytes();
  json[Json::json_pointer(pointer)] = std::move(value);
  return errorOf([&] { load(json); });
}

static void expectIn(const std::string &message, const std::string &part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("tokenizer.json: ")) << message;
}

TEST(TokenizerErrors, NotJson) {
  for (const char *text : {"", "{", "[1", "\xFF", "{\"a\":}"})
    EXPECT_THAT_ERROR(Tokenizer::fromJson(text, "F"), "F: not valid JSON");
  for (const char *text : {"[]", "null", "1", "\"x\""})
    EXPECT_THAT_ERROR(Tokenizer::fromJson(text, "F"),
                      "F: expected an object, found");
  EXPECT_THAT_ERROR(Tokenizer::fromJson("{}", "F"), "F: 'model' is missing");
  EXPECT_THAT_ERROR(Tokenizer::fromJson("{\"a\":1,\"a\":2}", "F"),
                    "F: the key 'a' appears twice in one object");
  EXPECT_THAT_ERROR(Tokenizer::fromJson(std::string(100000, '['), "F"),
                    "F: nested deeper than 128 levels");
}

TEST(TokenizerErrors, DeepSequences) {
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 40; ++i)
    nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  expectIn(errorWith("/normalizer", nested), "nested deeper than 32 levels");
}

TEST(TokenizerErrors, Model) {
  expectIn(errorWith("/model/type", "Unigram"),
           "key 'model.type': the model 'Unigram' is not supported");
  expectIn(errorWith("/model/type", 3),
           "key 'model.type': expected a string, found number");
  expectIn(errorWith("/model/dropout", 0.1), "key 'model.dropout': dropout");
  expectIn(errorWith("/model/continuing_subword_prefix", "##"),
           "key 'model.continuing_subword_prefix': the affix '##'");
  expectIn(errorWith("/model/end_of_word_suffix", "</w>"),
           "the affix '</w>' is not supported");
  expectIn(errorWith("/model/unk_token", "<unk>"),
           "the unknown token '<unk>' is not in the vocabulary");
  expectIn(errorWith("/model/cache", 1), "the key 'cache' is not supported");
  expectIn(errorWith("/model/fuse_unk", "yes"),
           "expected true or false, found string");
  expectIn(errorWith("/extra", 1), "the key 'extra' is not supported");
  Json json = tinyBytes();
  json["model"].erase("type");
  json["model"].erase("merges");
  expectIn(errorOf([&] { load(json); }), "'type' is missing; expected BPE");
}

TEST(TokenizerErrors, Vocabulary) {
  expectIn(errorWith("/model/vocab/zz", 97),
           "key 'model.vocab': the tokens 'a' and 'zz' have the same id 97");
  expectIn(errorWith("/model/vocab/zz", 3000000000),
           "token 'zz': the token id 3000000000 is outside 0 to 2147483647");
  expectIn(errorWith("/model/vocab/zz", -1),
           "token 'zz': the token id -1 is outside");
  expectIn(errorWith("/model/vocab/zz", UINT64_MAX), "is outside 0 to");
  expectIn(errorWith("/model/vocab/zz", 1.5), "expected a token id, found 1.5");
  expectIn(errorWith("/model/vocab", Json::array()),
           "key 'model.vocab': expected an object, found array");
}

TEST(TokenizerErrors, Merges) {
  expectIn(errorWith("/model/merges", {"a zz"}),
           "key 'model.merges': entry 0: the merge of 'a' and 'zz' needs the "
           "token 'zz', which is not in the vocabulary");
  expectIn(errorWith("/model/merges", {"a b"}), "needs the token 'ab'");
  expectIn(errorWith("/model/merges", {"ab"}),
           "expected two tokens with one space between, found 'ab'");
  expectIn(errorWith("/model/merges", {"a b c"}), "need the list form");
  expectIn(errorWith("/model/merges", Json::array({Json::array({"a"})})),
           "entry 0: expected two tokens, found [\"a\"]");
  expectIn(errorWith("/model/merges", Json::array({Json::array({"a", 1})})),
           "expected two tokens, found");
  expectIn(errorWith("/model/merges", "a b"),
           "expected an array, found string");
}

TEST(TokenizerErrors, AddedTokens) {
  auto with = [](Json token) {
    return errorWith("/added_tokens/2", std::move(token));
  };
  expectIn(with({{"id", 97}, {"content", "<x>"}}),
           "key 'added_tokens[2]': the added token '<x>' has id 97, which "
           "belongs to the token 'a'");
  expectIn(with({{"id", 300}, {"content", "a"}}),
           "the added token 'a' has id 300, but the vocabulary gives it id 97");
  expectIn(with({{"id", 258}, {"content", "<s>"}}),
           "the added token '<s>' is listed twice, with ids 256 and 258");
  expectIn(with({{"id", -2}, {"content", "x"}}), "the token id -2 is outside");
  expectIn(with({{"id", 258}}), "'content' is missing");
  expectIn(with({{"id", 258}, {"content", "<x>"}, {"odd", 1}}),
           "the key 'odd' is not supported");
  expectIn(with({{"id", 258}, {"content", std::string(2000, 'x')}}),
           "an added token of 2000 bytes; the limit is 1024");
  Json json = tinyBytes();
  json["normalizer"] = {{"type", "Replace"},
                        {"pattern", {{"String", "x"}}},
                        {"content", std::string(200, 'y')}};
  json["added_tokens"].push_back(
      {{"id", 258}, {"content", "xxxxxx"}, {"normalized", true}});
  expectIn(errorOf([&] { load(json); }), "normalizes to 1200 bytes");
}

TEST(TokenizerErrors, TextThatGrowsWithoutEnd) {
  Json twice = {
      {"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "xx"}};
  Json json = tinyBytes();
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", Json(Json::array_t(60, twice))}};
  EXPECT_THAT_ERROR(load(json).encode("x"),
                    "make more than 4128 bytes of a shorter text");
  json = tinyBytes();
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders", Json(Json::array_t(60, twice))}};
  EXPECT_THAT_ERROR(load(json).decode({'x'}),
                    "makes more than 1048576 bytes of one token");

  expectIn(errorWith("/normalizer",
                     {{"type", "Prepend"}, {"prepend", std::string(300, 'x')}}),
           "key 'normalizer.prepend': a text of 300 bytes; the limit is 256");
  Json byteLevel = {{"type", "ByteLevel"}};
  expectIn(
      errorWith("/pre_tokenizer", {{"type", "Sequence"},
                                   {"pretokenizers", {byteLevel, byteLevel}}}),
      "ByteLevel appears a second time");
  expectIn(
      errorWith("/decoder", {{"type", "Metaspace"}, {"replacement", "ab"}}),
      "'replacement' is 'ab'; expected one character");
}

TEST(TokenizerErrors, UnknownComponents) {
  expectIn(errorWith("/normalizer", {{"type", "Precompiled"}}),
           "key 'normalizer': the normalizer 'Precompiled' is not supported");
  expectIn(errorWith("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
           "the pre-tokenizer 'BertPreTokenizer' is not supported");
  expectIn(errorWith("/post_processor", {{"type", "RobertaProcessing"}}),
           "the post-processor 'RobertaProcessing' is not supported");
  expectIn(errorWith("/decoder", {{"type", "WordPiece"}}),
           "the decoder 'WordPiece' is not supported");
  expectIn(errorWith("/decoder", {{"type", "Fuse"}, {"how", 1}}),
           "the key 'how' is not supported");
  expectIn(errorWith("/normalizer", Json::object()), "'type' is missing");
}

TEST(TokenizerErrors, PreTokenizers) {
  auto split = [](Json pattern, const char *behavior) {
    return errorWith("/pre_tokenizer", {{"type", "Split"},
                                        {"pattern", std::move(pattern)},
                                        {"behavior", behavior}});
  };
  expectIn(split({{"String", "x"}}, "Sideways"),
           "key 'pre_tokenizer.behavior': the behavior 'Sideways'");
  expectIn(split({{"String", ""}}, "Isolated"), "that is not empty");
  expectIn(split(Json::object(), "Isolated"), "either 'String' or 'Regex'");
  expectIn(errorWith("/pre_tokenizer", {{"type", "Metaspace"},
                                        {"replacement", "_"},
                                        {"prepend_scheme", "last"}}),
           "expected always, never or first, found 'last'");
  expectIn(
      errorWith("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", ""}}),
      "'replacement' is ''; expected one character");
}

TEST(TokenizerErrors, RegularExpressions) {
  auto with = [](const char *pattern) {
    return errorWith("/pre_tokenizer", {{"type", "Split"},
                                        {"pattern", {{"Regex", pattern}}},
                                        {"behavior", "Isolated"}});
  };
  const std::pair<const char *, const char *> cases[] = {
      {"(", "is not valid: missing closing parenthesis"},
      {"\\p{Nonsense}", "is not valid: unknown property"},
      {"[a[b]]", "uses a character class within a character class at byte 2"},
      {"[a&&b]", "an intersection of character classes"},
      {"[a", "a character class that does not end at byte 0"},
      {"[\\W]", "\\W in a character class"},
      {"\\h", "uses \\h at byte 0"},
      {"\\", "a backslash with nothing after it"},
      {"\\u12", "\\u without four digits"},
      {"\\p{L", "a brace that does not close"},
      {"a{1,3}+", "a '+' after an interval"},
      {"(*FAIL)", "uses a verb"},
      {"(?m:x)", "a group '(?m'"},
      {"a(?i)b", "a group '(?i'"},
  };
  for (auto [pattern, part] : cases)
    expectIn(with(pattern), part);
}

TEST(TokenizerErrors, RegularExpressionThatExplodes) {
  Json json = tinyBytes();
  json["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(a|aa)+$|(a+)+b"}}},
                           {"behavior", "Isolated"}};
  Tokenizer tokenizer = load(json);
  EXPECT_THAT_ERROR(tokenizer.encode(std::string(5000, 'a') + "c"),
                    "the regular expression gave up on a text of 5001 bytes");
  EXPECT_EQ(tokenizer.encode("c").size(), 1u);
}

TEST(TokenizerErrors, PostProcessors) {
  Json json = tinyBytes();
  json["post_processor"] = beginAndEnd();
  json["post_processor"]["special_tokens"]["<s>"]["ids"] = {999};
  expectIn(errorOf([&] { load(json); }), "no token has the id 999");
  json["post_processor"]["special_tokens"].erase("<s>");
  expectIn(errorOf([&] { load(json); }), "'<s>' is missing");
  json["post_processor"]["single"] = Json::array();
  expectIn(errorOf([&] { load(json); }), "does not contain the sequence A");
  json["post_processor"]["single"] = {{{"Sequence", {{"id", "B"}}}}};
  expectIn(errorOf([&] { load(json); }), "expected the sequence A once");
}

TEST(TokenizerErrors, Decoders) {
  auto sequence = [](Json decoders) {
    return errorWith("/decoder",
                     {{"type", "Sequence"}, {"decoders", std::move(decoders)}});
  };
  expectIn(sequence({{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}),
           "the decoder 'ByteFallback' after Fuse or ByteLevel");
  expectIn(errorWith("/decoder",
                     {{"type", "Strip"}, {"content", " "}, {"start", -1}}),
           "counts from 0");
  expectIn(errorWith("/decoder",
                     {{"type", "Strip"}, {"content", " "}, {"stop", "x"}}),
           "key 'decoder.stop': expected an integer, found string");
  expectIn(errorWith("/decoder", {{"type", "Metaspace"}, {"replacement", ""}}),
           "'replacement' is ''; expected one character");
}
