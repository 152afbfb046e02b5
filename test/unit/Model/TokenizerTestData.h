//===- TokenizerTestData.h - Small tokenizers for tests ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_MODEL_TOKENIZERTESTDATA_H
#define STEM_TEST_UNIT_MODEL_TOKENIZERTESTDATA_H

#include "../Support/TestFiles.h"
#include "stem/Model/Tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

namespace stem::test {

using Json = nlohmann::json;

/// UTF-8 of a character below U+0800.
inline std::string utf8(unsigned character) {
  if (character < 0x80)
    return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | character >> 6),
          static_cast<char>(0x80 | (character & 0x3F))};
}

/// Byte-level, no merges: the id of a byte is the byte; <s> is 256, </s> 257.
inline Json tinyBytes() {
  Json vocab = Json::object();
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    bool printable = (byte > 0x20 && byte < 0x7F) ||
                     (byte > 0xA0 && byte < 0xAD) || byte > 0xAD;
    vocab[utf8(printable ? byte : next++)] = byte;
  }
  Json byteLevel = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", 256}, {"content", "<s>"}, {"special", true}},
            {{"id", 257}, {"content", "</s>"}, {"special", true}}}},
          {"pre_tokenizer", byteLevel},
          {"decoder", byteLevel},
          {"model",
           {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
}

/// SentencePiece-style: <unk>, <s>, </s>, the bytes from 3, then letters.
inline Json tinyPieces() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  const char *digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    vocab[std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">"] =
        byte + 3;
  for (const char *letter : {"a", "b", "ab", "\u2581"}) {
    size_t id = vocab.size();
    vocab[letter] = id;
  }
  return {{"version", "1.0"},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"a b"}}}}};
}

/// A post-processor for tinyBytes.
inline Json beginAndEnd() {
  auto token = [](const char *text) -> Json {
    return {{"SpecialToken", {{"id", text}, {"type_id", 0}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single",
           {token("<s>"),
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
            token("</s>")}},
          {"pair", Json::array()},
          {"special_tokens",
           {{"<s>", {{"id", "<s>"}, {"ids", {256}}, {"tokens", {"<s>"}}}},
            {"</s>", {{"id", "</s>"}, {"ids", {257}}, {"tokens", {"</s>"}}}}}}};
}

inline Tokenizer load(const Json &json) {
  return Tokenizer::fromJson(json.dump(), "tokenizer.json");
}

} // namespace stem::test

#define EXPECT_THAT_ERROR(expression, part)                                    \
  do {                                                                         \
    std::string message = stem::test::errorOf([&] { (void)(expression); });    \
    EXPECT_NE(message.find(part), std::string::npos) << message;               \
  } while (false)

#endif // STEM_TEST_UNIT_MODEL_TOKENIZERTESTDATA_H
