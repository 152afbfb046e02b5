//===- Tokenizer.h - Text to token ids and back -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Byte-level and SentencePiece-style BPE as tokenizer.json describes them. A
// component, model or key that is not supported is refused by name.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_TOKENIZER_H
#define STEM_MODEL_TOKENIZER_H

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

struct TokenizerImpl;

struct EncodeOptions {
  /// Adds what the post-processor adds (begin and end tokens), unless the ids
  /// already begin or end with it: never twice.
  bool addSpecialTokens = true;
  /// Whether the text of a special token becomes that token. If not, it is
  /// tokenized like any other text.
  bool parseSpecial = true;
};

/// A part of a text that is tokenized as a whole.
struct TextPart {
  std::string_view text;
  /// As in EncodeOptions, for this part. A special token that reaches into a
  /// part without it is text.
  bool parseSpecial = true;
};

/// What a caller may want to warn about.
struct EncodeReport {
  /// Characters (bytes, in a byte-level vocabulary) that have no token, where
  /// there is neither an unknown token nor byte fallback. As in the reference
  /// implementation they are left out of the ids.
  size_t droppedSymbols = 0;
  /// With parseSpecial off: the special tokens whose text occurred, each once.
  std::vector<std::string> specialTokensAsText;
};

class Tokenizer {
public:
  /// Reads tokenizer.json and, where they exist, the begin and end tokens and
  /// the chat template from tokenizer_config.json, special_tokens_map.json,
  /// generation_config.json, config.json and chat_template.jinja.
  static Tokenizer fromFolder(const std::filesystem::path &folder);

  /// Reads the text of a tokenizer.json; `sourceName` stands for the file in
  /// messages.
  static Tokenizer fromJson(std::string_view text, std::string sourceName);

  Tokenizer(Tokenizer &&) noexcept;
  Tokenizer &operator=(Tokenizer &&) noexcept;
  ~Tokenizer();

  /// Text must be valid UTF-8; the Error names the offset of the first byte
  /// that is not. Safe to call from several threads.
  std::vector<int32_t> encode(std::string_view text,
                              const EncodeOptions &options = {},
                              EncodeReport *report = nullptr) const;

  /// The ids of the parts' texts joined: words may cross from one part into the
  /// next. The parts decide on special tokens, not the options.
  std::vector<int32_t> encode(std::span<const TextPart> parts,
                              const EncodeOptions &options = {},
                              EncodeReport *report = nullptr) const;

  /// Always valid UTF-8: bytes that do not form a character, and ids without a
  /// token, become U+FFFD.
  std::string decode(const std::vector<int32_t> &ids,
                     bool skipSpecial = true) const;

  /// The special tokens whose text occurs in `text`, each once.
  std::vector<std::string> specialTokensIn(std::string_view text) const;

  /// The largest id plus one. Ids below it may be holes.
  int64_t vocabSize() const;
  /// The number of tokens, added tokens included.
  int64_t tokenCount() const;
  /// The token as the vocabulary spells it; nothing for a hole.
  std::optional<std::string_view> tokenText(int32_t id) const;
  std::optional<int32_t> idOf(std::string_view token) const;
  bool isSpecial(int32_t id) const;

  /// Whether the post-processor puts tokens before (after) the text.
  bool addsBeginToken() const;
  bool addsEndToken() const;

  /// \name Facts from the files beside tokenizer.json
  /// @{
  std::optional<int32_t> beginId() const;
  /// Every id that ends generation, sorted.
  const std::vector<int32_t> &endIds() const;
  const std::optional<std::string> &chatTemplate() const;
  void setBeginId(std::optional<int32_t> id);
  void setEndIds(std::vector<int32_t> ids);
  void setChatTemplate(std::optional<std::string> text);
  /// @}

  /// Throws an Error that names the tokens whose ids lie outside a table of
  /// `rows` rows; `modelName` stands for the model in the message.
  void checkFits(int64_t rows, std::string_view modelName) const;

private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<TokenizerImpl> impl);
  std::unique_ptr<TokenizerImpl> impl;
};

/// Decodes one id at a time. What push and flush return, concatenated, is what
/// Tokenizer::decode gives. The tokenizer must outlive it.
class StreamDecoder {
public:
  explicit StreamDecoder(const Tokenizer &tokenizer, bool skipSpecial = true);
  StreamDecoder(StreamDecoder &&) noexcept;
  ~StreamDecoder();

  /// The text that is now certain: complete characters only, often empty.
  std::string push(int32_t id);
  /// The rest; an incomplete character becomes U+FFFD.
  std::string flush();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace stem

#endif // STEM_MODEL_TOKENIZER_H
