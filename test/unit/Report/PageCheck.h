//===- PageCheck.h - What every page must be --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_UNITTESTS_REPORT_PAGECHECK_H
#define STEM_UNITTESTS_REPORT_PAGECHECK_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace stem::test {

/// What is wrong with the inside of a tag, `name key="value" ...`; takes the
/// name out of it.
inline std::string tagFault(std::string inside, std::string &name) {
  const auto isWord = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-';
  };
  const auto takeWord = [&] {
    const auto end = std::find_if_not(inside.begin(), inside.end(), isWord);
    std::string word(inside.begin(), end);
    inside.erase(inside.begin(), end);
    return word;
  };
  name = takeWord();
  std::set<std::string> keys;
  while (!inside.empty()) {
    if (!inside.starts_with(' '))
      return "no space before " + inside;
    inside.erase(0, 1);
    const std::string key = takeWord();
    const size_t end = inside.find('"', 2);
    if (key.empty() || !inside.starts_with("=\"") || end == std::string::npos)
      return "no value for " + key + inside;
    if (!keys.insert(key).second)
      return "twice: " + key;
    inside.erase(0, end + 1);
  }
  return name.empty() ? "a tag without a name" : "";
}

/// What keeps `text` from being well-formed XML, as far as pages use it: tags
/// that nest, quoted attributes, known entities. Empty for a good one.
inline std::string markupFault(const std::string &text) {
  const std::string doctype = "<!DOCTYPE html>";
  std::vector<std::string> open;
  size_t at = text.starts_with(doctype) ? doctype.size() : 0;
  while ((at = text.find_first_of("<&", at)) != std::string::npos) {
    const bool isEntity = text[at] == '&';
    const size_t end = text.find_first_of(isEntity ? ";" : ">", at);
    if (end == std::string::npos)
      return "not ended: " + text.substr(at, 80);
    std::string inside = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (isEntity) {
      if (!std::set<std::string>{"amp", "lt", "gt", "quot", "#39"}.count(
              inside))
        return "unknown entity: " + inside;
      continue;
    }
    if (inside.find('<') != std::string::npos)
      return "'<' in a tag: " + inside;
    const bool closes = inside.starts_with('/');
    const bool isWhole = inside.ends_with('/');
    inside = inside.substr(closes, inside.size() - closes - isWhole);
    std::string name;
    if (const std::string fault = tagFault(inside, name); !fault.empty())
      return fault;
    if (closes && (open.empty() || open.back() != name))
      return "closes what is not open: " + name;
    if (closes)
      open.pop_back();
    else if (!isWhole)
      open.push_back(name);
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

/// Number of times that `part` occurs.
inline size_t occurrences(const std::string &text, const std::string &part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos;
       at += part.size())
    ++count;
  return count;
}

/// Well-formed, without a reference to anything outside, with places that are
/// numbers.
inline void checkPage(const std::string &page) {
  EXPECT_EQ(markupFault(page), "");
  for (const char *outside : {"://", "url(", "@import", "src=", "href=",
                              "<script", "<link", "<iframe", "<img"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  for (const char *key : {" x=", " y=", " x1=", " x2=", " y1=", " y2=", " d=",
                          " width=", " height=", " viewBox="})
    for (size_t at = 0;
         (at = page.find(std::string(key) + "\"", at)) != std::string::npos;) {
      at += std::string(key).size() + 1;
      const std::string value = page.substr(at, page.find('"', at) - at);
      EXPECT_EQ(value.find_first_of("nie"), std::string::npos) << value;
    }
}

} // namespace stem::test

#endif // STEM_UNITTESTS_REPORT_PAGECHECK_H
