//===- Dialogues.cpp - Dialogue to calibrate on ---------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Dialogues.h"

#include "SelfText.h"
#include "Tokenizing.h"

#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

namespace {

constexpr int64_t kMostOfAnswer = 256;
constexpr int64_t kLeastOfAnswer = 16; ///< that there must be room for
constexpr int64_t kSecondPrompt = 64;  ///< room for it and its header
/// What an answer is taken for before there is one.
constexpr int64_t kUsualLength = 160;
/// Numbers of random streams; those of self-written text begin at 0.
constexpr uint64_t kFirstStream = uint64_t(1) << 40;

} // namespace

std::vector<int32_t> stem::encodeChat(const Tokenizer &tokenizer,
                                      const std::vector<ChatMessage> &messages,
                                      const ChatOptions &given,
                                      const std::string &name,
                                      const std::string &where,
                                      EncodeReport *report) {
  const auto &source = tokenizer.chatTemplate();
  if (!source)
    fail("{}: the model has no chat template", name);
  const auto tokenText = [&](std::optional<int32_t> id) {
    const auto text = id ? tokenizer.tokenText(*id) : std::nullopt;
    return text ? std::optional<std::string>(*text) : std::nullopt;
  };
  ChatOptions options = given;
  options.addGenerationPrompt = true;
  options.bosToken = tokenText(tokenizer.beginId());
  if (!tokenizer.endIds().empty())
    options.eosToken = tokenText(tokenizer.endIds().front());
  const std::vector<ChatPiece> pieces =
      ChatTemplate::parse(*source, name + ": chat template")
          .render(messages, options);
  std::vector<TextPart> parts;
  for (const ChatPiece &piece : pieces)
    parts.push_back({piece.text, /*parseSpecial=*/!piece.fromUser});
  // The template writes the begin token itself where the model wants one.
  EncodeReport own;
  std::vector<int32_t> ids =
      encodeQuietly(tokenizer, parts, /*addSpecialTokens=*/false, where, own);
  if (report)
    *report = std::move(own);
  else
    warnOfEncoding(own, where);
  return ids;
}

/// A conversation as far as it has come.
struct DialogueWriter::Dialogue {
  const DialoguePrompt *prompt;
  std::vector<ChatMessage> messages;
  std::vector<int32_t> ids;
  EncodeReport report; ///< of the prompt's ids
};

DialogueWriter::DialogueWriter(const Tokenizer &tokenizer,
                               const std::string &name)
    : tokenizer(tokenizer), name(name) {
  const std::string answer = "Yes.";
  EncodeReport ignored; // what is written is warned of
  for (const DialoguePrompt &prompt : dialoguePrompts()) {
    const ChatMessage first{"user", std::string(prompt.first)};
    firsts.push_back(encode({first}, ignored));
    // Before the model writes anything: whether the template takes two turns.
    if (!prompt.second.empty())
      encode(
          {first, {"assistant", answer}, {"user", std::string(prompt.second)}},
          ignored);
  }
}

/// With a date of its own, so that the same model gives the same ids.
std::vector<int32_t>
DialogueWriter::encode(const std::vector<ChatMessage> &messages,
                       EncodeReport &report) const {
  ChatOptions options;
  std::tm date = {};
  date.tm_year = 2025 - 1900;
  date.tm_mday = 1;
  date.tm_wday = 3;
  options.now = date;
  constexpr const char *advice =
      "dialogue to calibrate on is written in the chat template; "
      "--dialogue-share=0 goes without";
  std::vector<int32_t> ids;
  try {
    ids = encodeChat(tokenizer, messages, options, name, name, &report);
  } catch (const Error &error) {
    fail("{} ({})", error.what(), advice);
  }
  if (ids.empty())
    fail(
        "{}: chat template: gives no token for a conversation of {} message{}, "
        "so that the model has nothing to answer ({})",
        name, messages.size(), messages.size() == 1 ? "" : "s", advice);
  return ids;
}

size_t DialogueWriter::longestPrompt() const {
  size_t longest = 0;
  for (const std::vector<int32_t> &first : firsts)
    longest = std::max(longest, first.size());
  return longest;
}

int64_t DialogueWriter::positions() const {
  return static_cast<int64_t>(longestPrompt()) + 2 * kMostOfAnswer +
         kSecondPrompt;
}

bool DialogueWriter::fits(int64_t maxPositions) const {
  return static_cast<int64_t>(longestPrompt()) + kLeastOfAnswer <= maxPositions;
}

/// The first or second answer in every dialogue that has one and room for it.
void DialogueWriter::answer(ModelWriter &writer,
                            std::vector<Dialogue> &dialogues,
                            uint64_t firstStream, bool isSecond,
                            int64_t maxPositions) const {
  std::vector<WritingTask> tasks;
  std::vector<Dialogue *> answered;
  for (size_t i = 0; i < dialogues.size(); ++i) {
    Dialogue &dialogue = dialogues[i];
    const std::string_view user =
        isSecond ? dialogue.prompt->second : dialogue.prompt->first;
    if (user.empty())
      continue;
    std::vector<ChatMessage> messages = dialogue.messages;
    messages.push_back({"user", std::string(user)});
    EncodeReport report;
    std::vector<int32_t> prompt = encode(messages, report);
    const int64_t room = maxPositions - static_cast<int64_t>(prompt.size());
    if (room < kLeastOfAnswer)
      continue;
    dialogue.messages = std::move(messages);
    dialogue.ids = prompt;
    dialogue.report = std::move(report);
    answered.push_back(&dialogue);
    tasks.push_back({std::move(prompt), std::min(room, kMostOfAnswer),
                     /*greedy=*/0, firstStream + 2 * i + isSecond});
  }
  if (tasks.empty())
    return;
  const std::vector<std::vector<int32_t>> written =
      writer.write(tasks, isSecond ? "answers to second questions" : "answers");
  for (size_t i = 0; i < tasks.size(); ++i) {
    Dialogue &dialogue = *answered[i];
    dialogue.messages.push_back(
        {"assistant", tokenizer.decode(written[i], /*skipSpecial=*/true)});
    dialogue.ids.insert(dialogue.ids.end(), written[i].begin(),
                        written[i].end());
  }
}

TextSource DialogueWriter::write(ModelWriter &writer, int64_t tokens,
                                 int64_t maxPositions) const {
  const std::span<const DialoguePrompt> prompts = dialoguePrompts();
  TextSource source{"dialogue", "", {}, /*isDialogue=*/true};
  uint64_t count = 0;
  EncodeReport report;
  // Answers longer than expected leave dialogues over, shorter ones ask for
  // another round.
  for (int64_t rest = tokens, mean = kUsualLength; rest > 0;) {
    const uint64_t firstStream = kFirstStream + 2 * count;
    std::vector<Dialogue> dialogues;
    for (int64_t i = 0; i < (rest + mean - 1) / mean; ++i, ++count)
      dialogues.push_back({&prompts[count % prompts.size()], {}, {}, {}});
    answer(writer, dialogues, firstStream, /*isSecond=*/false, maxPositions);
    answer(writer, dialogues, firstStream, /*isSecond=*/true, maxPositions);
    for (size_t i = 0; i < dialogues.size() && rest > 0; ++i) {
      rest -= static_cast<int64_t>(dialogues[i].ids.size());
      addReport(report, dialogues[i].report);
      source.documents.push_back(std::move(dialogues[i].ids));
    }
    mean = source.tokens() / static_cast<int64_t>(source.documents.size());
  }
  warnOfEncoding(report, name + ": dialogue to calibrate on");
  source.sha256 = hashIds(source.documents);
  return source;
}
