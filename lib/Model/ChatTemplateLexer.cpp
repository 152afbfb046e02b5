//===- ChatTemplateLexer.cpp - Chat template to tokens --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All whitespace control happens here: a '-' at a tag's edge strips the text on
// that side; without one, the blanks before a block or comment that starts its
// line go, and so does the newline after it; a '+' keeps both.
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateProgram.h"

#include <algorithm>

using namespace stem;

namespace {

constexpr size_t maxSource = size_t(1) << 20;

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isOneOf(char c, std::string_view set) {
  return set.find(c) != std::string_view::npos;
}
bool isNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// Line ends become '\n', and one at the very end goes.
std::string normalizeNewlines(const std::string &source) {
  std::string result;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      result += source[i];
      continue;
    }
    result += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n')
      ++i;
  }
  if (result.ends_with('\n'))
    result.pop_back();
  return result;
}

void appendUtf8(std::string &out, uint32_t code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xC0 | code >> 6);
    out += char(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += char(0xE0 | code >> 12);
    out += char(0x80 | (code >> 6 & 0x3F));
    out += char(0x80 | (code & 0x3F));
  } else {
    out += char(0xF0 | code >> 18);
    out += char(0x80 | (code >> 12 & 0x3F));
    out += char(0x80 | (code >> 6 & 0x3F));
    out += char(0x80 | (code & 0x3F));
  }
}

class Lexer {
public:
  Lexer(ChatContext &context, std::string text)
      : context(context), source(std::move(text)) {}

  std::vector<ChatToken> run();

private:
  bool at(std::string_view text) const {
    return std::string_view(source).substr(position).starts_with(text);
  }
  /// Moves on and counts the lines.
  void advance(size_t count);
  void skipSpace();
  /// Where the next tag starts.
  size_t findTag() const;
  void add(ChatTokenKind kind, std::string text = {}) {
    tokens.push_back({kind, context.line, std::move(text)});
  }

  void lexText(size_t end, char tag, char sign);
  void lexComment();
  void lexTag(char tag);
  bool lexTagEnd(char tag);
  void lexToken();
  void lexNumber();
  void lexString();
  void lexEscape(std::string &out);
  uint32_t lexCode(size_t digits, char escape);
  void lexOperator();

  ChatContext &context;
  std::string source;
  size_t position = 0;
  /// The previous tag ended with the end of its line.
  bool lineStarts = true;
  /// Closing brackets that are due.
  std::string open;
  std::vector<ChatToken> tokens;
};

void Lexer::advance(size_t count) {
  auto begin = source.begin() + ptrdiff_t(position);
  context.line += int(std::count(begin, begin + ptrdiff_t(count), '\n'));
  position += count;
}

void Lexer::skipSpace() {
  while (position < source.size() && isSpaceAt(source, position))
    advance(characterSize(source, position));
}

size_t Lexer::findTag() const {
  size_t begin = source.find('{', position);
  while (begin != std::string::npos &&
         (begin + 1 == source.size() || !isOneOf(source[begin + 1], "{%#")))
    begin = source.find('{', begin + 1);
  return begin;
}

std::vector<ChatToken> Lexer::run() {
  while (position < source.size()) {
    size_t begin = findTag();
    if (begin == std::string::npos) {
      add(ChatTokenKind::Text, source.substr(position));
      advance(source.size() - position);
      break;
    }
    char tag = source[begin + 1];
    char sign = begin + 2 < source.size() ? source[begin + 2] : '\0';
    bool hasSign = sign == '-' || sign == '+';
    lexText(begin, tag, sign);
    if (tag == '#') {
      position += hasSign ? 3 : 2;
      lexComment();
    } else {
      add(tag == '%' ? ChatTokenKind::BlockBegin : ChatTokenKind::OutputBegin);
      position += hasSign ? 3 : 2;
      lexTag(tag);
    }
  }
  add(ChatTokenKind::End);
  return std::move(tokens);
}

/// The text before a tag that starts at `end`.
void Lexer::lexText(size_t end, char tag, char sign) {
  std::string text = source.substr(position, end - position);
  int line = context.line;
  advance(end - position);
  auto endOfSpaceBefore = [&](size_t limit) {
    size_t kept = limit;
    for (size_t i = limit; i < text.size(); i += characterSize(text, i))
      if (!isSpaceAt(text, i))
        kept = i + characterSize(text, i);
    return kept;
  };
  if (sign == '-') {
    text.resize(endOfSpaceBefore(0));
  } else if (sign != '+' && tag != '{') {
    size_t newline = text.rfind('\n');
    if (newline != std::string::npos || lineStarts) {
      size_t lineBegin = newline == std::string::npos ? 0 : newline + 1;
      if (endOfSpaceBefore(lineBegin) == lineBegin)
        text.resize(lineBegin);
    }
  }
  if (!text.empty())
    tokens.push_back({ChatTokenKind::Text, line, std::move(text)});
}

void Lexer::lexComment() {
  size_t end = source.find("#}", position);
  if (end == std::string::npos)
    context.fail("the comment '{{#' is not closed; '#}}' is missing");
  char sign = end > position ? source[end - 1] : '\0';
  advance(end + 2 - position);
  if (sign == '-')
    skipSpace();
  else if (sign != '+' && at("\n"))
    advance(1);
  lineStarts = source[position - 1] == '\n';
}

/// Consumes the end of the tag if it is here.
bool Lexer::lexTagEnd(char tag) {
  bool block = tag == '%';
  std::string_view end = block ? "%}" : "}}";
  size_t signSize = at("-") || (block && at("+")) ? 1 : 0;
  if (std::string_view(source).substr(position + signSize, 2) != end)
    return false;
  char sign = signSize ? source[position] : '\0';
  add(block ? ChatTokenKind::BlockEnd : ChatTokenKind::OutputEnd);
  advance(signSize + 2);
  if (sign == '-')
    skipSpace();
  else if (block && sign != '+' && at("\n"))
    advance(1);
  lineStarts = source[position - 1] == '\n';
  return true;
}

void Lexer::lexTag(char tag) {
  int line = context.line;
  open.clear();
  while (true) {
    skipSpace();
    if (position == source.size()) {
      context.line = line;
      context.fail("the tag '{{{}' is not closed", tag);
    }
    if (open.empty() && lexTagEnd(tag))
      return;
    lexToken();
    // What raw would hold need not be made of tokens.
    if (tokens.back().text == "raw" &&
        tokens[tokens.size() - 2].kind == ChatTokenKind::BlockBegin)
      context.fail("the tag 'raw' is not supported");
  }
}

void Lexer::lexToken() {
  char c = source[position];
  if (isDigit(c))
    return lexNumber();
  if (c == '\'' || c == '"')
    return lexString();
  if (!isNameStart(c))
    return lexOperator();
  size_t end = position;
  while (end < source.size() &&
         (isNameStart(source[end]) || isDigit(source[end])))
    ++end;
  add(ChatTokenKind::Name, source.substr(position, end - position));
  position = end;
}

void Lexer::lexNumber() {
  size_t end = position;
  auto digitAt = [&](size_t i) {
    return i < source.size() && isDigit(source[i]);
  };
  auto skipDigits = [&] {
    while (digitAt(end))
      ++end;
  };
  skipDigits();
  bool isFloat = false;
  // In `pair.0.1` the digits are two keys.
  bool key = tokens.back().kind == ChatTokenKind::Operator &&
             tokens.back().text == ".";
  if (!key && end < source.size() && source[end] == '.' && digitAt(end + 1)) {
    isFloat = true;
    ++end;
    skipDigits();
  }
  if (!key && end < source.size() &&
      (source[end] == 'e' || source[end] == 'E')) {
    bool sign = end + 1 < source.size() &&
                (source[end + 1] == '-' || source[end + 1] == '+');
    if (digitAt(end + 1 + sign)) {
      isFloat = true;
      end += 1 + sign;
      skipDigits();
    }
  }
  add(isFloat ? ChatTokenKind::Float : ChatTokenKind::Integer,
      source.substr(position, end - position));
  position = end;
}

void Lexer::lexString() {
  int line = context.line;
  char quote = source[position++];
  std::string text;
  while (position < source.size() && source[position] != quote) {
    if (source[position] == '\\' && position + 1 < source.size()) {
      ++position;
      lexEscape(text);
    } else {
      text += source[position];
      advance(1);
    }
  }
  if (position == source.size()) {
    context.line = line;
    context.fail("the string that starts with {} is not closed", quote);
  }
  ++position;
  tokens.push_back({ChatTokenKind::String, line, std::move(text)});
}

/// One escape sequence, its backslash consumed.
void Lexer::lexEscape(std::string &out) {
  char c = source[position];
  static constexpr std::string_view letters = "abfnrtv\\'\"";
  static constexpr std::string_view values = "\a\b\f\n\r\t\v\\'\"";
  if (size_t i = letters.find(c); i != std::string_view::npos) {
    out += values[i];
    ++position;
  } else if (c == '\n') {
    advance(1);
  } else if (c >= '0' && c <= '7') {
    uint32_t code = 0;
    for (int i = 0; i < 3 && position < source.size() &&
                    source[position] >= '0' && source[position] <= '7';
         ++i)
      code = code * 8 + uint32_t(source[position++] - '0');
    appendUtf8(out, code);
  } else if (c == 'x' || c == 'u' || c == 'U') {
    ++position;
    appendUtf8(out, lexCode(c == 'x' ? 2 : c == 'u' ? 4 : 8, c));
  } else if (c == 'N') {
    context.fail("the escape '\\N' is not supported; write the character");
  } else {
    // An unknown escape keeps its backslash.
    out += '\\';
  }
}

uint32_t Lexer::lexCode(size_t digits, char escape) {
  uint32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    char c = position < source.size() ? source[position] : '\0';
    uint32_t digit;
    if (isDigit(c))
      digit = uint32_t(c - '0');
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
      digit = uint32_t((c | 0x20) - 'a' + 10);
    else
      context.fail("the escape '\\{}' wants {} hexadecimal digits", escape,
                   digits);
    code = code * 16 + digit;
    ++position;
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    context.fail("the escape '\\{}' names U+{:04X}, which is no character",
                 escape, code);
  return code;
}

void Lexer::lexOperator() {
  static constexpr std::string_view doubles[] = {
      "==", "!=", "<=", ">=", "//", "**"};
  for (std::string_view op : doubles)
    if (at(op)) {
      add(ChatTokenKind::Operator, std::string(op));
      position += 2;
      return;
    }
  char c = source[position];
  if (!isOneOf(c, "+-*/%~<>=.,:|()[]{}"))
    context.fail("unexpected character '{}' in a tag",
                 source.substr(position, characterSize(source, position)));
  if (c == '(' || c == '[' || c == '{') {
    open += c == '(' ? ')' : c == '[' ? ']' : '}';
  } else if (c == ')' || c == ']' || c == '}') {
    if (open.empty() || open.back() != c)
      context.fail("'{}' closes no bracket", c);
    open.pop_back();
  }
  add(ChatTokenKind::Operator, std::string(1, c));
  ++position;
}

} // namespace

std::vector<ChatToken> stem::lexChatTemplate(ChatContext &context,
                                             std::string source) {
  if (source.size() > maxSource)
    context.fail("the template has {} bytes; at most {} are read",
                 source.size(), maxSource);
  context.line = 1;
  return Lexer(context, normalizeNewlines(source)).run();
}
