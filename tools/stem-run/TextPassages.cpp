//===- TextPassages.cpp - Passages that a text repeats --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TextPassages.h"

#include <algorithm>

using namespace stem;

namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";
constexpr size_t kLeastPassage = 64;

bool isBlank(std::string_view text) {
  return text.find_first_not_of(kSpace) == std::string_view::npos;
}

std::string collapse(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (kSpace.find(c) == std::string_view::npos)
      result += c;
    else if (!result.empty() && result.back() != ' ')
      result += ' ';
  if (!result.empty() && result.back() == ' ')
    result.pop_back();
  return result;
}

/// The length of the first paragraph with the blank lines behind it.
size_t paragraphLength(std::string_view text) {
  bool isAfterBlank = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const bool blank = isBlank(text.substr(begin, end - begin));
    if (!blank && isAfterBlank)
      return begin;
    isAfterBlank = blank;
    begin = end;
  }
  return text.size();
}

} // namespace

bool PassageFilter::isRepeated(std::string_view paragraph) {
  std::string key = collapse(paragraph);
  if (key.size() < kLeastPassage || seen.insert(std::move(key)).second)
    return false;
  ++droppedCount;
  bytesDropped += paragraph.size();
  return true;
}

std::string PassageFilter::keepNew(std::string_view document) {
  bytesSeen += document.size();
  std::string kept;
  for (std::string_view rest = document; !rest.empty();) {
    const std::string_view paragraph = rest.substr(0, paragraphLength(rest));
    if (!isRepeated(paragraph))
      kept += paragraph;
    rest.remove_prefix(paragraph.size());
  }
  return isBlank(kept) ? std::string() : kept;
}
