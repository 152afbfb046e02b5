//===- DocumentReader.h - Documents of a text file, streamed ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_DOCUMENTREADER_H
#define STEM_DATA_DOCUMENTREADER_H

#include "stem/Support/Files.h"
#include "stem/Support/Hash.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace stem {

/// A text file as it was read.
struct SourceText {
  std::string name; ///< as it was given; for messages
  uint64_t bytes = 0;
  std::string sha256;

  bool operator==(const SourceText &) const = default;
};

struct DocumentOptions {
  /// What parts the documents of a text file; it belongs to none of them. With
  /// an empty one the file is one document. JSON lines have no need of it.
  std::string separator = "\f";
  /// A longer document comes in pieces of at most so many bytes.
  size_t pieceBytes = 256 << 10;
  /// A longer line of JSON is refused.
  size_t lineBytes = 64 << 20;
};

/// A document, or a part of a long one.
struct TextPiece {
  std::string text;
  bool endsDocument = false;
  std::string place; ///< for messages: "FILE", "FILE:LINE" in JSON lines
};

/// Reads a file once, from its beginning, and gives its documents: the objects'
/// "text" of JSON lines (isJsonLines), else what the separator parts. Holds a
/// piece of a text file, or a line of JSON, whatever the file's size.
///
/// A long document is cut behind a newline or before a space between two words,
/// where tokenizers that split text into words cut as well, or else at the end
/// of a line or between two characters.
class DocumentReader {
public:
  explicit DocumentReader(const std::filesystem::path &path,
                          DocumentOptions options = {});

  /// The next piece; false when there is none. An Error names the line.
  bool next(TextPiece &piece);

  /// Bytes read so far.
  uint64_t bytesRead() const { return bytes; }

  /// After the last piece.
  SourceText source();

private:
  std::string_view unread() const {
    return std::string_view(buffer).substr(begin);
  }
  bool readMore();
  bool nextOfText(TextPiece &piece);
  bool nextOfLines(TextPiece &piece);
  bool readLine();
  bool takeLine(std::string_view &text);

  std::string name;
  DocumentOptions options;
  FileReader file;
  Sha256 hash;
  uint64_t bytes = 0;
  bool isAtEnd = false;
  std::string buffer; ///< of the file, given out up to `begin`
  size_t begin = 0;
  bool isFinished = false;
  // JSON lines
  std::string document; ///< given out up to `given`
  size_t given = 0;
  bool hasDocument = false;
  uint64_t line = 0;
};

/// Where a text of more than `limit` bytes is cut: behind at most so many.
size_t cutPlace(std::string_view text, size_t limit);

} // namespace stem

#endif // STEM_DATA_DOCUMENTREADER_H
