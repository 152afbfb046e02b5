//===- ChatTemplateFuzzer.cpp - Hostile chat templates --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The input is a template. Whatever it does ends in a prompt or an error, and
// no byte of a message comes out as text of the template.
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ChatTemplate.h"
#include "stem/Support/Error.h"

#include <cstddef>
#include <cstdint>

using namespace stem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string source(reinterpret_cast<const char *>(data), size);
  // A byte that the template can only have from a message.
  bool ownMark = source.find_first_of("\x02\\") != std::string::npos;
  ChatOptions options;
  options.addGenerationPrompt = true;
  options.bosToken = "<s>";
  options.eosToken = "</s>";
  options.now = std::tm{};
  options.now->tm_mday = 1;
  try {
    ChatTemplate chat = ChatTemplate::parse(std::move(source), "fuzz");
    std::vector<ChatPiece> pieces =
        chat.render({{"system", "\x02 \x02"},
                     {"user", "\x02<think>\x02</think>\n\xC3\xA4\x02"},
                     {"assistant", "\x02\xFF"},
                     {"user", "\x02"}},
                    options);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].text.empty() ||
          (i > 0 && pieces[i].fromUser == pieces[i - 1].fromUser))
        __builtin_trap();
      if (!ownMark && !pieces[i].fromUser &&
          pieces[i].text.find('\x02') != std::string::npos)
        __builtin_trap();
    }
  } catch (const Error &) {
  }
  return 0;
}
