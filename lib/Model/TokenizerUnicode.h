//===- TokenizerUnicode.h - Characters, classes and normal forms -*- C++
//-*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Offsets are in bytes of UTF-8. Except for findInvalidUtf8 and Utf8Buffer,
// text must be valid UTF-8.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERUNICODE_H
#define STEM_LIB_MODEL_TOKENIZERUNICODE_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stem::unicode {

/// The offset of the first byte that is not part of a character.
std::optional<size_t> findInvalidUtf8(std::string_view text);

/// The length of the character that begins with this byte.
inline size_t characterLength(char first) {
  auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The offset of the character that ends at `end`.
inline size_t previousCharacter(std::string_view text, size_t end) {
  do
    --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

char32_t decodeAt(std::string_view text, size_t offset);
void append(std::string &text, char32_t character);

bool isWhitespace(char32_t character);
/// Nd, Nl and No.
bool isNumeric(char32_t character);
/// P, and the symbols of ASCII.
bool isPunctuation(char32_t character);
/// M.
bool isMark(char32_t character);
/// Alphabetic, M, Nd, Pc or Join_Control.
bool isWord(char32_t character);

enum class Form { NFC, NFD, NFKC, NFKD };
std::string normalize(std::string_view text, Form form);
std::string lowercase(std::string_view text);

/// The byte-level alphabet: each byte stands as one printable character.
const std::array<char32_t, 256> &byteAlphabet();
/// The byte for which a character stands.
std::optional<uint8_t> byteOf(char32_t character);
std::string toByteAlphabet(std::string_view bytes);
/// The bytes for which a text stands; none if a character is not of the
/// alphabet.
std::optional<std::string> fromByteAlphabet(std::string_view text);

/// Bytes arrive, complete characters leave. An ill-formed sequence leaves as
/// one U+FFFD per maximal subpart, as Unicode recommends.
class Utf8Buffer {
public:
  std::string push(std::string_view bytes);
  std::string flush();

private:
  std::string pending;
};

} // namespace stem::unicode

#endif // STEM_LIB_MODEL_TOKENIZERUNICODE_H
