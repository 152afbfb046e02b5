//===- TokenizerUnicode.cpp - Characters, classes and normal forms --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerUnicode.h"

#include "stem/Support/Error.h"

#include <algorithm>
#include <utf8proc.h>
#include <utility>
#include <vector>

namespace stem::unicode {

namespace {

constexpr std::string_view Replacement = "\xEF\xBF\xBD";

/// How a sequence of bytes begins: a character, the start of one that is cut
/// off by the end, or neither. Length is that of the character or of the
/// maximal subpart of an ill-formed one.
struct Sequence {
  enum { Complete, CutOff, IllFormed } kind;
  size_t length;
};

Sequence scanSequence(std::string_view text) {
  auto byteAt = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byteAt(0);
  if (first < 0x80)
    return {Sequence::Complete, 1};
  if (first < 0xC2 || first > 0xF4)
    return {Sequence::IllFormed, 1};
  size_t length = characterLength(text[0]);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size())
      return {Sequence::CutOff, i};
    // The second byte excludes overlong forms, surrogates and what lies beyond
    // U+10FFFF.
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1 && first == 0xE0)
      low = 0xA0;
    if (i == 1 && first == 0xED)
      high = 0x9F;
    if (i == 1 && first == 0xF0)
      low = 0x90;
    if (i == 1 && first == 0xF4)
      high = 0x8F;
    if (byteAt(i) < low || byteAt(i) > high)
      return {Sequence::IllFormed, i};
  }
  return {Sequence::Complete, length};
}

bool isAlphabeticSymbol(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

/// Puts each run of non-starters into canonical order: by class, equal classes
/// as they were.
void orderMarks(std::vector<utf8proc_int32_t> &characters) {
  struct Mark {
    int combiningClass;
    size_t position;
    utf8proc_int32_t character;
    bool operator<(const Mark &other) const {
      return std::pair(combiningClass, position) <
             std::pair(other.combiningClass, other.position);
    }
  };
  std::vector<Mark> run;
  for (size_t i = 0; i <= characters.size(); ++i) {
    int combiningClass =
        i == characters.size()
            ? 0
            : utf8proc_get_property(characters[i])->combining_class;
    if (combiningClass != 0) {
      run.push_back({combiningClass, i, characters[i]});
      continue;
    }
    std::sort(run.begin(), run.end());
    for (size_t k = 0; k < run.size(); ++k)
      characters[i - run.size() + k] = run[k].character;
    run.clear();
  }
}

} // namespace

std::optional<size_t> findInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    Sequence sequence = scanSequence(text.substr(i));
    if (sequence.kind != Sequence::Complete)
      return i;
    i += sequence.length;
  }
  return std::nullopt;
}

char32_t decodeAt(std::string_view text, size_t offset) {
  auto byteAt = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[offset + i]));
  };
  switch (characterLength(text[offset])) {
  case 1:
    return byteAt(0);
  case 2:
    return (byteAt(0) & 0x1F) << 6 | (byteAt(1) & 0x3F);
  case 3:
    return (byteAt(0) & 0x0F) << 12 | (byteAt(1) & 0x3F) << 6 |
           (byteAt(2) & 0x3F);
  default:
    return (byteAt(0) & 0x07) << 18 | (byteAt(1) & 0x3F) << 12 |
           (byteAt(2) & 0x3F) << 6 | (byteAt(3) & 0x3F);
  }
}

void append(std::string &text, char32_t character) {
  utf8proc_uint8_t bytes[4];
  auto length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char *>(bytes),
              static_cast<size_t>(length));
}

bool isWhitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool isNumeric(char32_t c) {
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool isPunctuation(char32_t c) {
  if (c < 0x80)
    return (c > 0x20 && c < '0') || (c > '9' && c < 'A') ||
           (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7F);
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool isMark(char32_t c) {
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool isWord(char32_t c) {
  auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU &&
          category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D ||
         isAlphabeticSymbol(c);
}

std::string normalize(std::string_view text, Form form) {
  bool compose = form == Form::NFC || form == Form::NFKC;
  bool compatible = form == Form::NFKC || form == Form::NFKD;
  auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                     (compatible ? UTF8PROC_COMPAT : 0));

  // utf8proc's own ordering is quadratic in a run of marks, so the text is
  // decomposed here character by character; only composition is the library's.
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  utf8proc_int32_t parts[64];
  int boundClass = UTF8PROC_BOUNDCLASS_START;
  for (size_t i = 0; i < text.size(); i += characterLength(text[i])) {
    auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(decodeAt(text, i)), parts, 64, options,
        &boundClass);
    if (count < 0 || count > 64)
      fail("cannot normalize the character at byte {}", i);
    characters.insert(characters.end(), parts, parts + count);
  }
  orderMarks(characters);
  if (compose) {
    auto count = utf8proc_normalize_utf32(
        characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count < 0)
      fail("cannot compose text: {}", utf8proc_errmsg(count));
    characters.resize(static_cast<size_t>(count));
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_int32_t c : characters)
    append(result, static_cast<char32_t>(c));
  return result;
}

std::string lowercase(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += characterLength(text[i])) {
    char32_t c = decodeAt(text, i);
    // The one character whose lower case is two.
    if (c == 0x130)
      result += "i\xCC\x87";
    else
      append(result, static_cast<char32_t>(
                         utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return result;
}

const std::array<char32_t, 256> &byteAlphabet() {
  // Printable bytes of Latin-1 stand for themselves; the others, in order, are
  // the characters from U+0100.
  static const std::array<char32_t, 256> alphabet = [] {
    std::array<char32_t, 256> result{};
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      bool printable = (byte >= 0x21 && byte <= 0x7E) ||
                       (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      result[byte] = printable ? static_cast<char32_t>(byte) : next++;
    }
    return result;
  }();
  return alphabet;
}

std::optional<uint8_t> byteOf(char32_t character) {
  static const std::array<int16_t, 0x144> inverse = [] {
    std::array<int16_t, 0x144> result;
    result.fill(-1);
    for (unsigned byte = 0; byte < 256; ++byte)
      result[byteAlphabet()[byte]] = static_cast<int16_t>(byte);
    return result;
  }();
  if (character >= inverse.size() || inverse[character] < 0)
    return std::nullopt;
  return static_cast<uint8_t>(inverse[character]);
}

std::string toByteAlphabet(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size() * 2);
  for (char byte : bytes)
    append(result, byteAlphabet()[static_cast<unsigned char>(byte)]);
  return result;
}

std::optional<std::string> fromByteAlphabet(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); i += characterLength(text[i])) {
    std::optional<uint8_t> byte = byteOf(decodeAt(text, i));
    if (!byte)
      return std::nullopt;
    result += static_cast<char>(*byte);
  }
  return result;
}

std::string Utf8Buffer::push(std::string_view bytes) {
  pending += bytes;
  std::string result;
  size_t i = 0;
  while (i < pending.size()) {
    std::string_view rest = std::string_view(pending).substr(i);
    Sequence sequence = scanSequence(rest);
    if (sequence.kind == Sequence::CutOff)
      break;
    result += sequence.kind == Sequence::Complete
                  ? rest.substr(0, sequence.length)
                  : Replacement;
    i += sequence.length;
  }
  pending.erase(0, i);
  return result;
}

std::string Utf8Buffer::flush() {
  std::string result(pending.empty() ? "" : Replacement);
  pending.clear();
  return result;
}

} // namespace stem::unicode
