//===- DocumentReader.cpp - Documents of a text file, streamed ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/DocumentReader.h"

#include "stem/Data/TextDocuments.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <algorithm>

using namespace stem;

static constexpr size_t kReadBytes = 1 << 20;

static bool isWordAscii(char character) {
  return character > ' ' && character < 0x7f;
}

static bool continuesCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

/// The last place in the second half of the limit that `isGood`; 0 for none.
template <typename IsGood>
static size_t lastPlace(size_t limit, const IsGood &isGood) {
  for (size_t place = limit; place > limit / 2 && place >= 2; --place)
    if (isGood(place))
      return place;
  return 0;
}

size_t stem::cutPlace(std::string_view text, size_t limit) {
  if (const size_t place = lastPlace(limit, [&](size_t at) {
        return text[at - 1] == '\n' && isWordAscii(text[at - 2]) &&
               isWordAscii(text[at]);
      }))
    return place;
  if (const size_t place = lastPlace(limit - 1, [&](size_t at) {
        return text[at] == ' ' && isWordAscii(text[at - 1]) &&
               isWordAscii(text[at + 1]);
      }))
    return place;
  if (const size_t place = lastPlace(limit, [&](size_t at) {
        return text[at - 1] == '\n' && text[at] != '\n' && text[at] != '\r';
      }))
    return place;
  // A character has at most four bytes; text with more is not UTF-8, which the
  // tokenizer will say.
  for (size_t place = limit; place > 0 && place + 4 > limit; --place)
    if (!continuesCharacter(text[place]))
      return place;
  return limit;
}

DocumentReader::DocumentReader(const std::filesystem::path &path,
                               DocumentOptions options)
    : name(path.string()), options(std::move(options)), file(path) {
  // A character of UTF-8 fits.
  this->options.pieceBytes = std::max<size_t>(this->options.pieceBytes, 4);
}

/// False at the end of the file.
bool DocumentReader::readMore() {
  if (isAtEnd)
    return false;
  buffer.erase(0, begin);
  begin = 0;
  const size_t before = buffer.size();
  buffer.resize(before + kReadBytes);
  const size_t count =
      file.read(std::as_writable_bytes(std::span(buffer)).subspan(before));
  buffer.resize(before + count);
  hash.update(std::string_view(buffer).substr(before));
  bytes += count;
  isAtEnd = count == 0;
  return !isAtEnd;
}

/// Moves the next piece of `text` to `piece`; how many bytes it is.
static size_t takePiece(std::string_view text, size_t limit, TextPiece &piece) {
  piece.endsDocument = text.size() <= limit;
  const size_t size = piece.endsDocument ? text.size() : cutPlace(text, limit);
  piece.text = text.substr(0, size);
  return size;
}

bool DocumentReader::nextOfText(TextPiece &piece) {
  if (isFinished)
    return false;
  const std::string &separator = options.separator;
  const size_t limit = options.pieceBytes;
  while (unread().size() <= limit + separator.size() && readMore())
    ;
  piece.place =
      bytes == unread().size()
          ? name
          : fmt::format("{}, from byte {} on", name, bytes - unread().size());
  const std::string_view text = unread();
  const size_t end =
      separator.empty()
          ? std::string_view::npos
          : text.substr(0, limit + separator.size()).find(separator);
  if (end != std::string_view::npos) {
    piece.text = text.substr(0, end);
    piece.endsDocument = true;
    begin += end + separator.size();
    return true;
  }
  // All that is unread fits only at the end of the file.
  begin += takePiece(text, limit, piece);
  isFinished = piece.endsDocument;
  return true;
}

/// Reads the next line that is not blank into `document`; false at the end of
/// the file.
bool DocumentReader::readLine() {
  std::string_view text;
  do {
    if (!takeLine(text))
      return false;
    ++line;
  } while (isBlankLine(text));
  document = jsonLineText(text, linePlace(name, line - 1));
  return true;
}

/// The next line, which stays until more is read.
bool DocumentReader::takeLine(std::string_view &text) {
  size_t searched = 0, end;
  while ((end = unread().find('\n', searched)) == std::string_view::npos) {
    searched = unread().size();
    if (searched > options.lineBytes || !readMore())
      break;
  }
  text = unread().substr(0, end);
  if (text.size() > options.lineBytes)
    fail("{}: is longer than {}; split its document", linePlace(name, line),
         formatBytes(static_cast<double>(options.lineBytes)));
  if (text.empty() && end == std::string_view::npos)
    return false;
  begin += std::min(unread().size(), text.size() + 1);
  return true;
}

bool DocumentReader::nextOfLines(TextPiece &piece) {
  if (!hasDocument) {
    if (!readLine())
      return false;
    given = 0;
    hasDocument = true;
  }
  piece.place = linePlace(name, line - 1);
  given += takePiece(std::string_view(document).substr(given),
                     options.pieceBytes, piece);
  hasDocument = !piece.endsDocument;
  return true;
}

bool DocumentReader::next(TextPiece &piece) {
  return isJsonLines(name) ? nextOfLines(piece) : nextOfText(piece);
}

SourceText DocumentReader::source() { return {name, bytes, hash.finish()}; }
