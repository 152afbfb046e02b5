//===- TokenizerDecoder.h - Decoders of tokenizer.json ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERDECODER_H
#define STEM_LIB_MODEL_TOKENIZERDECODER_H

#include "TokenizerJson.h"
#include "TokenizerUnicode.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// The steps from tokens to text. Some rewrite each token by itself; Fuse and
/// ByteLevel join the tokens, and what follows them sees one text.
class Decoder {
public:
  /// No decoder: tokens with a space between.
  Decoder();
  explicit Decoder(const JsonNode &node) { add(node); }

  /// A token on its way; its bytes need not be whole characters.
  struct Piece {
    std::string bytes;
    bool isFirst;
    bool isLiteral; ///< an added token, which stands for its own text
  };

  class Stream {
  public:
    explicit Stream(const Decoder &decoder);
    std::string push(std::string_view token, bool isLiteral);
    std::string flush();

  private:
    std::string strip(std::string text);

    const Decoder &decoder;
    bool isFirst = true;
    unicode::Utf8Buffer buffer;
    /// For each strip of the whole text: how many are still to go at the
    /// start, and what is held back for the end.
    struct StripState {
      size_t left;
      std::string held;
    };
    std::vector<StripState> strips;
  };

private:
  using Step = std::function<void(Piece &)>;
  struct Strip {
    std::string content;
    size_t start, stop;
  };
  void add(const JsonNode &node);
  void addStrip(const JsonNode &node);
  void addMetaspace(const JsonNode &node);
  void refuseIfFused(const JsonNode &node) const;

  std::vector<Step> steps;
  std::vector<Strip> textStrips;
  bool isFused = false;
};

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERDECODER_H
