//===- TokenizerFuzzer.cpp - tokenizer.json, GGUF metadata and text -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An input is a tokenizer.json, a zero byte and a text; or a GGUF file, whose
// text is a fixed one.
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Gguf.h"
#include "stem/Model/TokenizerGguf.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cstdlib>
#include <span>

using namespace stem;

static void require(bool condition) {
  if (!condition)
    std::abort();
}

static void exercise(const Tokenizer &tokenizer, std::string_view text) {
  for (bool parseSpecial : {true, false}) {
    EncodeReport report;
    std::vector<int32_t> ids =
        tokenizer.encode(text, {.parseSpecial = parseSpecial}, &report);
    StreamDecoder stream(tokenizer, /*skipSpecial=*/false);
    std::string streamed;
    for (int32_t id : ids) {
      require(id >= 0 && id < tokenizer.vocabSize());
      require(tokenizer.tokenText(id).has_value());
      streamed += stream.push(id);
    }
    streamed += stream.flush();
    require(streamed == tokenizer.decode(ids, /*skipSpecial=*/false));
    std::string_view half = text.substr(0, text.size() / 2);
    std::vector<TextPart> parts = {{half, parseSpecial},
                                   {text.substr(half.size()), parseSpecial}};
    require(parseSpecial || tokenizer.encode(parts) == ids);
    // What decode gives is valid UTF-8: encode takes it.
    tokenizer.encode(streamed);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view input(reinterpret_cast<const char *>(data), size);
  try {
    if (input.starts_with("GGUF")) {
      GgufFile file =
          GgufFile::parse(std::as_bytes(std::span(data, size)), "input");
      exercise(tokenizerFromGguf(file), "Hello <s> 123  w\u00f6rld\n");
      return 0;
    }
    size_t end = std::min(input.find('\0'), input.size());
    Tokenizer tokenizer = Tokenizer::fromJson(input.substr(0, end), "input");
    exercise(tokenizer, input.substr(std::min(end + 1, input.size())));
  } catch (const Error &) {
    // Refused with a message: what bad input should meet.
  }
  return 0;
}
