//===- TokenizerDecoder.cpp - Decoders of tokenizer.json ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerDecoder.h"

#include "TokenizerNormalizer.h"

namespace stem {

// Replacements one after the other could make a token grow without end.
static constexpr size_t MaxPieceBytes = 1 << 20;

static void decodeByteLevel(Decoder::Piece &piece) {
  if (piece.isLiteral)
    return;
  if (std::optional<std::string> bytes = unicode::fromByteAlphabet(piece.bytes))
    piece.bytes = std::move(*bytes);
}

/// "<0x0A>" stands for the byte 10.
static void decodeByteToken(Decoder::Piece &piece) {
  const std::string &text = piece.bytes;
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>')
    return;
  unsigned value = 0;
  for (char c : {text[3], text[4]}) {
    unsigned digit =
        c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
        : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
        : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                               : 16;
    if (digit == 16)
      return;
    value = value * 16 + digit;
  }
  piece.bytes.assign(1, static_cast<char>(value));
}

Decoder::Decoder() {
  steps.push_back([](Piece &piece) {
    if (!piece.isFirst)
      piece.bytes.insert(0, 1, ' ');
  });
}

void Decoder::refuseIfFused(const JsonNode &node) const {
  if (isFused)
    node.refuse("the decoder '{}' after Fuse or ByteLevel is not supported",
                node.type());
}

void Decoder::addStrip(const JsonNode &node) {
  node.allowKeys({"type", "content", "start", "stop"});
  int64_t start = node.getInteger("start", 0);
  int64_t stop = node.getInteger("stop", 0);
  Strip strip{node.getString("content"), static_cast<size_t>(start),
              static_cast<size_t>(stop)};
  if (strip.content.empty() || start < 0 || stop < 0)
    node.refuse("expected 'content' of one character and counts from 0");
  if (isFused) {
    textStrips.push_back(std::move(strip));
    return;
  }
  steps.push_back([strip](Piece &piece) {
    std::string_view text = piece.bytes;
    for (size_t i = 0; i < strip.start && text.starts_with(strip.content); ++i)
      text.remove_prefix(strip.content.size());
    for (size_t i = 0; i < strip.stop && text.ends_with(strip.content); ++i)
      text.remove_suffix(strip.content.size());
    piece.bytes = std::string(text);
  });
}

void Decoder::addMetaspace(const JsonNode &node) {
  node.allowKeys({"type", "replacement", "prepend_scheme", "split",
                  "add_prefix_space", "str_rep"});
  bool dropsFirst = node.getBool("add_prefix_space", true);
  if (std::optional<JsonNode> scheme = node.find("prepend_scheme"))
    dropsFirst = scheme->string() != "never";
  std::string mark = parseMark(node);
  steps.push_back([=](Piece &piece) {
    std::string text;
    size_t done = 0;
    for (size_t at = piece.bytes.find(mark); at != std::string::npos;
         at = piece.bytes.find(mark, done)) {
      text.append(piece.bytes, done, at - done);
      if (!piece.isFirst || !dropsFirst)
        text += ' ';
      done = at + mark.size();
    }
    text.append(piece.bytes, done);
    piece.bytes = std::move(text);
  });
}

void Decoder::add(const JsonNode &node) {
  const std::string &type = node.type();
  if (type == "Sequence") {
    node.allowKeys({"type", "decoders"});
    for (const JsonNode &element : node.at("decoders").elements())
      add(element);
  } else if (type == "ByteLevel") {
    refuseIfFused(node);
    node.allowKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    steps.push_back(decodeByteLevel);
    isFused = true;
  } else if (type == "ByteFallback") {
    refuseIfFused(node);
    node.allowKeys({"type"});
    steps.push_back(decodeByteToken);
  } else if (type == "Fuse") {
    node.allowKeys({"type"});
    isFused = true;
  } else if (type == "Strip") {
    addStrip(node);
  } else if (type == "Metaspace") {
    refuseIfFused(node);
    addMetaspace(node);
  } else if (type == "Replace") {
    refuseIfFused(node);
    node.allowKeys({"type", "pattern", "content"});
    steps.push_back([find = parsePattern(node.at("pattern")),
                     content = parseContent(node.at("content"))](Piece &piece) {
      // After ByteFallback a piece may be part of a character, which holds
      // nothing to replace.
      if (!unicode::findInvalidUtf8(piece.bytes))
        piece.bytes = replaceMatches(piece.bytes, find, content);
    });
  } else {
    node.refuse("the decoder '{}' is not supported; known are Sequence, "
                "ByteLevel, ByteFallback, Fuse, Strip, Metaspace and Replace",
                type);
  }
}

Decoder::Stream::Stream(const Decoder &decoder) : decoder(decoder) {
  for (const Strip &strip : decoder.textStrips)
    strips.push_back({strip.start, {}});
}

std::string Decoder::Stream::push(std::string_view token, bool isLiteral) {
  Piece piece{std::string(token), isFirst, isLiteral};
  isFirst = false;
  for (const Step &step : decoder.steps) {
    step(piece);
    if (piece.bytes.size() > MaxPieceBytes)
      fail("the decoder of tokenizer.json makes more than {} bytes of one "
           "token",
           MaxPieceBytes);
  }
  return strip(buffer.push(piece.bytes));
}

std::string Decoder::Stream::strip(std::string text) {
  for (size_t i = 0; i < strips.size(); ++i) {
    const Strip &strip = decoder.textStrips[i];
    StripState &state = strips[i];
    if (text.empty())
      return text;
    size_t removed = 0;
    while (state.left > 0 && removed < text.size()) {
      if (text.compare(removed, strip.content.size(), strip.content) != 0) {
        state.left = 0;
        break;
      }
      removed += strip.content.size();
      --state.left;
    }
    text = state.held + text.substr(removed);
    // What may be the end of the text waits until more follows.
    std::string_view rest = text;
    for (size_t n = 0; n < strip.stop && rest.ends_with(strip.content); ++n)
      rest.remove_suffix(strip.content.size());
    state.held = text.substr(rest.size());
    text.resize(rest.size());
  }
  return text;
}

std::string Decoder::Stream::flush() {
  std::string text = strip(buffer.flush());
  for (StripState &state : strips)
    state.held.clear();
  return text;
}

} // namespace stem
