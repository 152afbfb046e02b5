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

/// Whether the name says JSON lines: it ends with .jsonl.
bool isJsonLines(const std::string &path);

/// The documents of a file's content. JSON lines hold an object each, whose
/// string "text" is a document; any other file is one document. Throws an Error
/// that names the line.
std::vector<std::string> splitDocuments(const std::string &path,
                                        const std::string &content);

/// The document of one such line. `place` stands for it in messages.
std::string jsonLineText(std::string_view line, const std::string &place);

/// Where a document is, for messages: "FILE", or "FILE:LINE" in JSON lines.
std::string documentPlace(const std::string &path, size_t document);

} // namespace stem

#endif // STEM_DATA_TEXTDOCUMENTS_H
