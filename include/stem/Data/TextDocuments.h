//===- TextDocuments.h - The documents of a text file ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_TEXTDOCUMENTS_H
#define STEM_DATA_TEXTDOCUMENTS_H

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// Whether the name says JSON lines: it ends with .jsonl, in any case.
bool isJsonLines(const std::string &path);

/// The documents of a file's content. JSON lines hold an object each, whose
/// string "text" is a document, or nothing but white space; any other file is
/// one document. Throws an Error that names the line.
std::vector<std::string> splitDocuments(const std::string &path,
                                        const std::string &content);

/// Whether the line holds nothing but white space, and so no document.
bool isBlankLine(std::string_view line);

/// The document of one such line. `place` stands for it in messages.
std::string jsonLineText(std::string_view line, const std::string &place);

/// Where a document of the content is, for messages: "FILE", or "FILE:LINE" in
/// JSON lines.
std::string documentPlace(const std::string &path, std::string_view content,
                          size_t document);

/// "FILE:LINE", `line` counted from 0.
std::string linePlace(const std::string &path, size_t line);

} // namespace stem

#endif // STEM_DATA_TEXTDOCUMENTS_H
