//===- DocumentReaderTest.cpp - Documents of a file, streamed -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/DocumentReader.h"

#include "../Support/TestFiles.h"
#include "stem/Data/TextDocuments.h"

using namespace stem;
using namespace stem::test;

namespace {

using Texts = std::vector<std::string>;

/// A text, and the pieces of its documents joined; every piece keeps the limit.
Texts readTexts(const std::filesystem::path &path, DocumentOptions options,
                size_t *pieces = nullptr) {
  DocumentReader reader(path, options);
  Texts texts = {""};
  bool isOpen = false;
  for (TextPiece piece; reader.next(piece);) {
    EXPECT_LE(piece.text.size(), options.pieceBytes);
    texts.back() += piece.text;
    isOpen = !piece.endsDocument;
    if (piece.endsDocument)
      texts.emplace_back();
    if (pieces)
      ++*pieces;
  }
  EXPECT_FALSE(isOpen);
  texts.pop_back();
  const SourceText source = reader.source();
  EXPECT_EQ(source.name, path.string());
  EXPECT_EQ(source.bytes, readText(path).size());
  EXPECT_EQ(source.bytes, reader.bytesRead());
  EXPECT_EQ(source.sha256, hashText(readText(path)));
  return texts;
}

/// The reference.
Texts split(const std::string &content, const std::string &separator) {
  Texts texts;
  for (size_t begin = 0;;) {
    const size_t end =
        separator.empty() ? std::string::npos : content.find(separator, begin);
    texts.push_back(content.substr(begin, end - begin));
    if (end == std::string::npos)
      return texts;
    begin = end + separator.size();
  }
}

/// Words, newlines, form feeds and characters of all lengths.
std::string someText(size_t pieces) {
  static const char *const parts[] = {"word",   " ", "\n", "\f", "\n\n", "ü",
                                      "\u3042", "🜁", "<|", "|>", "<||>"};
  std::string text;
  uint32_t state = 7;
  for (size_t i = 0; i < pieces; ++i) {
    state = state * 1664525 + 1013904223;
    text += parts[(state >> 16) % std::size(parts)];
  }
  return text;
}

TEST(DocumentReader, textIsPartedBySeparators) {
  const TemporaryFolder folder;
  for (const std::string &content :
       {std::string(), std::string("\f"), std::string("a"), std::string("a\f"),
        std::string("\f\fa\fb"), someText(2000)})
    for (const char *separator : {"\f", "<||>", "\n\n", ""})
      for (const size_t piece : {4, 5, 7, 16, 64, 1000, 1 << 20}) {
        writeText(folder / "a.txt", content);
        EXPECT_EQ(readTexts(folder / "a.txt",
                            {.separator = separator, .pieceBytes = piece}),
                  split(content, separator))
            << piece << separator;
      }
}

// Files are read by the mebibyte.
TEST(DocumentReader, separatorsAcrossReads) {
  const TemporaryFolder folder;
  for (size_t before = (1 << 20) - 5; before <= 1 << 20; ++before) {
    const std::string content =
        std::string(before, 'x') + "<|end|>" + std::string(1100000, 'y');
    writeText(folder / "a.txt", content);
    for (const size_t piece : {size_t{100000}, size_t{1} << 20, before}) {
      const Texts texts = readTexts(
          folder / "a.txt", {.separator = "<|end|>", .pieceBytes = piece});
      ASSERT_EQ(texts.size(), 2u) << before;
      EXPECT_EQ(texts[0].size(), before);
      EXPECT_EQ(texts[1].size(), 1100000u);
    }
  }
}

TEST(DocumentReader, jsonLines) {
  const TemporaryFolder folder;
  const std::string content = "{\"text\": \"a\\fb\"}\n"
                              "{\"text\": \"" +
                              std::string(3000000, 'x') +
                              "\"}\r\n{\"text\": \"\"}\n{\"text\": \"ü\"}";
  for (const char *end : {"", "\n"})
    for (const size_t piece : {100, 1 << 18}) {
      writeText(folder / "a.jsonl", content + end);
      size_t pieces = 0;
      EXPECT_EQ(readTexts(folder / "a.jsonl", {.pieceBytes = piece}, &pieces),
                splitDocuments("a.jsonl", content));
      EXPECT_GE(pieces, 3 + 3000000 / piece);
    }
  writeText(folder / "a.jsonl", "");
  EXPECT_EQ(readTexts(folder / "a.jsonl", {}), Texts());
  // Blank lines hold none, nor does the case of the name matter.
  const std::string blanks =
      "\n{\"text\": \"a\"}\n \r\n\n{\"text\": \"b\"}\n\n \t";
  for (const char *name : {"a.jsonl", "b.JSONL"}) {
    writeText(folder / name, blanks);
    const Texts wanted = {"a", "b"};
    EXPECT_EQ(readTexts(folder / name, {}), wanted);
  }
}

TEST(DocumentReader, namesPlaces) {
  const TemporaryFolder folder;
  writeText(folder / "a.txt", "ab\fcd\fefghij");
  DocumentReader text(folder / "a.txt", {.pieceBytes = 4});
  std::string places;
  for (TextPiece piece; text.next(piece);)
    places += piece.place.substr(folder.path().string().size() + 1) + "; ";
  EXPECT_EQ(places, "a.txt; a.txt, from byte 3 on; a.txt, from byte 6 on; "
                    "a.txt, from byte 10 on; ");

  writeText(folder / "a.jsonl",
            "{\"text\": \"abcdef\"}\n{\"text\": \"\"}\n{\"text\": 3}\n");
  DocumentReader lines(folder / "a.jsonl", {.pieceBytes = 4});
  places.clear();
  TextPiece piece;
  for (int i = 0; i < 3 && lines.next(piece); ++i)
    places += piece.place.substr(folder.path().string().size() + 1) + "; ";
  EXPECT_EQ(places, "a.jsonl:1; a.jsonl:1; a.jsonl:2; ");
  EXPECT_ERROR(lines.next(piece), "a.jsonl:3: its object has no string");
}

TEST(DocumentReader, refusesLongLines) {
  const TemporaryFolder folder;
  const std::string line = "{\"text\": \"" + std::string(5000, 'x') + "\"}";
  TextPiece piece;
  for (const std::string &end :
       {std::string(), std::string("\n"), "\n" + std::string(3000000, ' ')}) {
    writeText(folder / "a.jsonl", "{\"text\": \"a\"}\n" + line + end);
    DocumentReader fits(folder / "a.jsonl", {.lineBytes = line.size()});
    EXPECT_TRUE(fits.next(piece) && fits.next(piece));
    DocumentReader tooLong(folder / "a.jsonl", {.lineBytes = line.size() - 1});
    EXPECT_TRUE(tooLong.next(piece));
    EXPECT_ERROR(tooLong.next(piece), "a.jsonl:2: is longer than 5.01 KB",
                 "split its document");
  }
}

TEST(DocumentReader, refusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_ERROR(DocumentReader(folder / "none"), "none", "cannot open");
  EXPECT_ERROR(DocumentReader(folder.path()), "not a regular file");
}

TEST(DocumentReader, cutsWhereWordsEnd) {
  // Behind a newline between words, rather than at a later place.
  EXPECT_EQ(cutPlace("aaaa bbbb\ncc\n\ndd ee ff", 18), 10u);
  // Before a space between words.
  EXPECT_EQ(cutPlace("aaaa bbbb cc  dd\n\nee ff", 18), 9u);
  EXPECT_EQ(cutPlace("aaaa bbbb cc", 10), 9u);
  EXPECT_EQ(cutPlace("aaaa bbbb cc", 9), 9u); // not by what follows
  // At the end of a line.
  EXPECT_EQ(cutPlace("aaaaaaaaabbbb\n\ndd ee", 16), 15u);
  EXPECT_EQ(cutPlace("あ\nい う", 7), 4u);
  EXPECT_EQ(cutPlace("aaaabbbbb\r\n\r\nddee", 14), 13u);
  // Nowhere in the first half.
  EXPECT_EQ(cutPlace("a\nb cdefghijklmnop", 12), 12u);
  // Between characters.
  EXPECT_EQ(cutPlace("abcdeあい", 8), 8u);
  EXPECT_EQ(cutPlace("abcdeあい", 9), 8u);
  EXPECT_EQ(cutPlace("abcdeあい", 10), 8u);
  EXPECT_EQ(cutPlace("abcd🜁🜁", 11), 8u);
  EXPECT_EQ(cutPlace(std::string(20, '\x80'), 10), 10u);
}

} // namespace
