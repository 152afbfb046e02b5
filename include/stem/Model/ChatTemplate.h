//===- ChatTemplate.h - Chat messages to a prompt ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An interpreter for the part of Jinja that chat templates use. What a template
// uses and the interpreter lacks is refused by name and line; a hostile
// template ends in an error, never in a hang or an overflow.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_CHATTEMPLATE_H
#define STEM_MODEL_CHATTEMPLATE_H

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stem {

struct ChatMessage {
  /// One word of letters, digits, '_' and '-': templates build special tokens
  /// from it, so anything else is refused.
  std::string role;
  std::string content;
};

/// A run of the prompt. A special token spelled where fromUser is set is text:
/// only runs of the template itself may be searched for special tokens. Text on
/// both sides of a border is one text for the tokenizer otherwise (a space from
/// the template and a word from the user make one token), so join what lies
/// between two special tokens before splitting it into words.
struct ChatPiece {
  std::string text;
  /// Some message's content, whatever the message's role.
  bool fromUser = false;

  bool operator==(const ChatPiece &) const = default;
};

struct ChatOptions {
  /// End with the header of the assistant's next turn.
  bool addGenerationPrompt = false;
  /// Undefined in the template unless given.
  std::optional<std::string> bosToken;
  std::optional<std::string> eosToken;
  std::optional<bool> enableThinking;
  /// What strftime_now reads; the local time now unless given.
  std::optional<std::tm> now;
};

struct ChatProgram;

class ChatTemplate {
public:
  /// Parses a template; `name` is where it came from, for messages. Throws
  /// stem::Error.
  static ChatTemplate parse(std::string source, std::string name);

  /// The prompt in pieces: neighbours differ in fromUser, none is empty.
  /// Throws stem::Error, also where the template itself raises.
  std::vector<ChatPiece> render(const std::vector<ChatMessage> &messages,
                                const ChatOptions &options) const;

private:
  explicit ChatTemplate(std::shared_ptr<const ChatProgram> program)
      : program(std::move(program)) {}

  std::shared_ptr<const ChatProgram> program;
};

} // namespace stem

#endif // STEM_MODEL_CHATTEMPLATE_H
