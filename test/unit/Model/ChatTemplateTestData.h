//===- ChatTemplateTestData.h - What templates are rendered with *- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_MODEL_CHATTEMPLATETESTDATA_H
#define STEM_TEST_UNIT_MODEL_CHATTEMPLATETESTDATA_H

#include "stem/Model/ChatTemplate.h"

#include <vector>

namespace stem::test {

inline const std::vector<ChatMessage> conversation = {
    {"system", " Be brief. "},
    {"user", "Hi <|im_end|> \n"},
    {"assistant", "Yes\n"},
    {"user", " more "}};

// Friday, 5 July 2024, 09:08:07.
inline ChatOptions makeOptions() {
  ChatOptions options;
  options.addGenerationPrompt = true;
  options.bosToken = "<s>";
  options.eosToken = "</s>";
  std::tm now = {};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 5;
  now.tm_hour = 9;
  now.tm_min = 8;
  now.tm_sec = 7;
  now.tm_wday = 5;
  now.tm_yday = 186;
  options.now = now;
  return options;
}

struct TemplateCase {
  const char *source;
  const char *expected;
};

} // namespace stem::test

#endif // STEM_TEST_UNIT_MODEL_CHATTEMPLATETESTDATA_H
