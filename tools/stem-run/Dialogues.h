//===- Dialogues.h - Dialogue to calibrate on -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_DIALOGUES_H
#define STEM_TOOLS_STEM_RUN_DIALOGUES_H

#include "CalibrationText.h"
#include "ModelWriter.h"

#include "stem/Model/ChatTemplate.h"

#include <span>
#include <string>

namespace stem {

/// What a user says; `second`, where there is one, after the first answer.
struct DialoguePrompt {
  std::string_view first, second = {};
};

/// Short and varied: questions, small tasks, greetings, code.
std::span<const DialoguePrompt> dialoguePrompts();

/// The ids of a conversation in the model's chat template, up to where the
/// assistant's next answer begins. Special tokens count where the template
/// writes them. `name` stands for the model in messages, `where` for the text.
/// Warnings go into `report`, where there is one.
std::vector<int32_t>
encodeChat(const Tokenizer &tokenizer, const std::vector<ChatMessage> &messages,
           const ChatOptions &options, const std::string &name,
           const std::string &where, EncodeReport *report = nullptr);

/// Conversations of users and the model until there are `tokens` tokens. Throws
/// an Error where the template cannot be rendered or gives no tokens; the
/// constructor tries conversations of one and of two questions.
class DialogueWriter {
public:
  DialogueWriter(const Tokenizer &tokenizer, const std::string &name);

  /// Of a conversation; what the engine should hold.
  int64_t positions() const;

  /// Whether every first prompt leaves room for an answer.
  bool fits(int64_t maxPositions) const;

  TextSource write(ModelWriter &writer, int64_t tokens,
                   int64_t maxPositions) const;

private:
  struct Dialogue;
  void answer(ModelWriter &writer, std::vector<Dialogue> &dialogues,
              uint64_t firstStream, bool isSecond, int64_t maxPositions) const;
  size_t longestPrompt() const;
  std::vector<int32_t> encode(const std::vector<ChatMessage> &messages,
                              EncodeReport &report) const;

  const Tokenizer &tokenizer;
  std::string name;
  std::vector<std::vector<int32_t>> firsts; ///< the prompts, rendered
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_DIALOGUES_H
