//===- TokenizerPreTokenizer.h - Pre-tokenizers of tokenizer.json -*- C++ -*-=//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERPRETOKENIZER_H
#define STEM_LIB_MODEL_TOKENIZERPRETOKENIZER_H

#include "TokenizerJson.h"

#include <functional>
#include <string>
#include <vector>

namespace stem {

/// A text cut into pieces, none of them empty. What lies between pieces has
/// been removed.
struct PieceList {
  struct Span {
    size_t begin, end;
  };
  std::string text;
  std::vector<Span> spans;
  /// Whether the text begins where the whole input begins.
  bool atInputStart;

  PieceList(std::string whole, bool atInputStart)
      : text(std::move(whole)), atInputStart(atInputStart) {
    if (!text.empty())
      spans.push_back({0, text.size()});
  }
  std::string_view piece(Span span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

class PreTokenizer {
public:
  PreTokenizer() = default;
  explicit PreTokenizer(const JsonNode &node) { add(node); }

  void apply(PieceList &pieces) const {
    for (const Step &step : steps)
      step(pieces);
  }

private:
  using Step = std::function<void(PieceList &)>;
  void add(const JsonNode &node);
  void addByteLevel(const JsonNode &node);
  void addSplit(const JsonNode &node);
  void addMetaspace(const JsonNode &node);

  std::vector<Step> steps;
  bool hasByteLevel = false;
};

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERPRETOKENIZER_H
