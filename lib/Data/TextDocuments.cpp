//===- TextDocuments.cpp - The documents of a text file -------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/TextDocuments.h"

#include "stem/Support/Error.h"

#include <algorithm>
#include <nlohmann/json.hpp>

using namespace stem;

static constexpr const char *format =
    R"(every line holds one object, {"text": "..."})";

bool stem::isJsonLines(const std::string &path) {
  return path.ends_with(".jsonl");
}

std::string stem::documentPlace(const std::string &path, size_t document) {
  return isJsonLines(path) ? fmt::format("{}:{}", path, document + 1) : path;
}

std::string stem::jsonLineText(std::string_view line,
                               const std::string &place) {
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error &error) {
    fail("{}: is no JSON in UTF-8 at byte {}; {}", place, error.byte, format);
  } catch (const nlohmann::json::exception &) {
    fail("{}: has a number that is out of range; {}", place, format);
  }
  if (!value.is_object())
    fail("{}: holds no object; {}", place, format);
  if (!value.contains("text") || !value["text"].is_string())
    fail("{}: its object has no string \"text\"; {}", place, format);
  return value["text"].get<std::string>();
}

std::vector<std::string> stem::splitDocuments(const std::string &path,
                                              const std::string &content) {
  if (!isJsonLines(path))
    return {content};
  std::vector<std::string> documents;
  for (std::string_view rest = content; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    documents.push_back(
        jsonLineText(line, documentPlace(path, documents.size())));
  }
  if (documents.empty())
    fail("{}: holds no document; {}", path, format);
  return documents;
}
