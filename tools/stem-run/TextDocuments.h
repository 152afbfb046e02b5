//===- TextDocuments.h - The documents of a text file ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TEXTDOCUMENTS_H
#define STEM_TOOLS_STEM_RUN_TEXTDOCUMENTS_H

#include <cstddef>
#include <string>
#include <vector>

namespace stem {

/// Whether the name says JSON lines: it ends with .jsonl.
bool isJsonLines(const std::string &path);

/// The documents of a file's content. JSON lines hold an object each, whose
/// string "text" is a document; any other file is one document. Throws an Error
/// that names the line.
std::vector<std::string> splitDocuments(const std::string &path,
                                        const std::string &content);

/// Where a document is, for messages: "FILE", or "FILE:LINE" in JSON lines.
std::string documentPlace(const std::string &path, size_t document);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TEXTDOCUMENTS_H
