//===- TokenizerNormalizer.h - Normalizers of tokenizer.json ----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERNORMALIZER_H
#define STEM_LIB_MODEL_TOKENIZERNORMALIZER_H

#include "TokenizerJson.h"

#include <functional>
#include <string>
#include <vector>

namespace stem {

class Normalizer {
public:
  Normalizer() = default;
  explicit Normalizer(const JsonNode &node) { add(node); }

  /// Fails where the text would grow beyond what any real file makes of it.
  std::string apply(std::string text) const;
  bool isIdentity() const { return steps.empty(); }

private:
  using Step = std::function<std::string(const std::string &)>;
  void add(const JsonNode &node);

  std::vector<Step> steps;
};

/// Parses {"String": …} or {"Regex": …}. Gives a function that calls back with
/// each match of a text.
using Finder = std::function<void(std::string_view,
                                  const std::function<void(size_t, size_t)> &)>;
Finder parsePattern(const JsonNode &node);

/// The text that a file puts in the place of other text; one too long would let
/// a small file take all memory.
std::string parseContent(const JsonNode &node);

/// The character that stands for a space in a Metaspace component.
std::string parseMark(const JsonNode &node);

/// Text with each match of `find` replaced.
std::string replaceMatches(std::string_view text, const Finder &find,
                           std::string_view content);

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERNORMALIZER_H
