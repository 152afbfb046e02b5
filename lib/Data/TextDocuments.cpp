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
  constexpr std::string_view wanted = ".jsonl";
  if (path.size() < wanted.size())
    return false;
  return std::equal(wanted.begin(), wanted.end(), path.end() - wanted.size(),
                    [](char lower, char c) {
                      return c == lower ||
                             (c >= 'A' && c <= 'Z' && c - 'A' + 'a' == lower);
                    });
}

bool stem::isBlankLine(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string stem::linePlace(const std::string &path, size_t line) {
  return fmt::format("{}:{}", path, line + 1);
}

/// Calls onLine(line, its number) for each that is not blank.
template <typename OnLine>
static void forEachLine(std::string_view content, const OnLine &onLine) {
  for (size_t number = 0; !content.empty(); ++number) {
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(content.size(), line.size() + 1));
    if (!isBlankLine(line))
      onLine(line, number);
  }
}

std::string stem::documentPlace(const std::string &path,
                                std::string_view content, size_t document) {
  if (!isJsonLines(path))
    return path;
  size_t at = 0, result = 0;
  forEachLine(content, [&](std::string_view, size_t number) {
    if (at++ == document)
      result = number;
  });
  return linePlace(path, result);
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
  forEachLine(content, [&](std::string_view line, size_t number) {
    documents.push_back(jsonLineText(line, linePlace(path, number)));
  });
  if (documents.empty())
    fail("{}: holds no document; {}", path, format);
  return documents;
}
