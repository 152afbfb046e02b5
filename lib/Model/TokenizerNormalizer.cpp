//===- TokenizerNormalizer.cpp - Normalizers of tokenizer.json ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerNormalizer.h"

#include "FileIO.h"
#include "TokenizerRegex.h"
#include "TokenizerUnicode.h"

namespace stem {

Finder parsePattern(const JsonNode &node) {
  node.allowKeys({"String", "Regex"});
  if (node.value().size() != 1)
    node.refuse("expected either 'String' or 'Regex'");
  if (std::optional<JsonNode> regex = node.find("Regex")) {
    return [regex = Regex(regex->string(), regex->place())](
               std::string_view text,
               const std::function<void(size_t, size_t)> &onMatch) {
      regex.forEachMatch(text, onMatch);
    };
  }
  JsonNode string = node.at("String");
  if (string.string().empty())
    string.refuse("expected a string that is not empty");
  return [wanted = string.string()](
             std::string_view text,
             const std::function<void(size_t, size_t)> &onMatch) {
    for (size_t at = text.find(wanted); at != std::string_view::npos;
         at = text.find(wanted, at + wanted.size()))
      onMatch(at, at + wanted.size());
  };
}

std::string parseContent(const JsonNode &node) {
  constexpr size_t MaxBytes = 256;
  const std::string &text = node.string();
  if (text.size() > MaxBytes)
    node.refuse("a text of {} bytes; the limit is {}", text.size(), MaxBytes);
  return text;
}

std::string parseMark(const JsonNode &node) {
  std::string mark = node.getString("replacement");
  if (mark.empty() || unicode::characterLength(mark[0]) != mark.size())
    node.refuse("'replacement' is '{}'; expected one character",
                printable(mark));
  return mark;
}

std::string replaceMatches(std::string_view text, const Finder &find,
                           std::string_view content) {
  std::string result;
  size_t done = 0;
  find(text, [&](size_t begin, size_t end) {
    result += text.substr(done, begin - done);
    result += content;
    done = end;
  });
  result += text.substr(done);
  return result;
}

static std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty() &&
         unicode::isWhitespace(unicode::decodeAt(text, 0)))
    text.remove_prefix(unicode::characterLength(text[0]));
  while (right && !text.empty()) {
    size_t last = unicode::previousCharacter(text, text.size());
    if (!unicode::isWhitespace(unicode::decodeAt(text, last)))
      break;
    text = text.substr(0, last);
  }
  return text;
}

static std::string stripAccents(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t length = unicode::characterLength(text[i]);
    if (!unicode::isMark(unicode::decodeAt(text, i)))
      result += text.substr(i, length);
    i += length;
  }
  return result;
}

std::string Normalizer::apply(std::string text) const {
  // The longest compatibility decomposition is elevenfold.
  const size_t limit = 4096 + 32 * text.size();
  for (const Step &step : steps) {
    text = step(text);
    if (text.size() > limit)
      fail("the normalizers of tokenizer.json make more than {} bytes of a "
           "shorter text; the limit is 32 times its length",
           limit);
  }
  return text;
}

void Normalizer::add(const JsonNode &node) {
  const std::string &type = node.type();
  std::optional<unicode::Form> form;
  if (type == "Sequence") {
    node.allowKeys({"type", "normalizers"});
    for (const JsonNode &element : node.at("normalizers").elements())
      add(element);
    return;
  }
  if (type == "NFC")
    form = unicode::Form::NFC;
  else if (type == "NFD")
    form = unicode::Form::NFD;
  else if (type == "NFKC")
    form = unicode::Form::NFKC;
  else if (type == "NFKD")
    form = unicode::Form::NFKD;
  if (form) {
    node.allowKeys({"type"});
    steps.push_back([form = *form](const std::string &text) {
      return unicode::normalize(text, form);
    });
  } else if (type == "Lowercase") {
    node.allowKeys({"type"});
    steps.push_back(unicode::lowercase);
  } else if (type == "StripAccents") {
    node.allowKeys({"type"});
    steps.push_back(stripAccents);
  } else if (type == "Strip") {
    node.allowKeys({"type", "strip_left", "strip_right"});
    steps.push_back(
        [left = node.getBool("strip_left", true),
         right = node.getBool("strip_right", true)](const std::string &text) {
          return std::string(strip(text, left, right));
        });
  } else if (type == "Prepend") {
    node.allowKeys({"type", "prepend"});
    steps.push_back(
        [prefix = parseContent(node.at("prepend"))](const std::string &text) {
          return text.empty() ? text : prefix + text;
        });
  } else if (type == "Replace") {
    node.allowKeys({"type", "pattern", "content"});
    steps.push_back(
        [find = parsePattern(node.at("pattern")),
         content = parseContent(node.at("content"))](const std::string &text) {
          return replaceMatches(text, find, content);
        });
  } else {
    node.refuse("the normalizer '{}' is not supported; known are Sequence, "
                "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend "
                "and Replace",
                type);
  }
}

} // namespace stem
