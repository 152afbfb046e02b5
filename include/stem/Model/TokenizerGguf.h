//===- TokenizerGguf.h - tokenizer.json from GGUF metadata ------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_TOKENIZERGGUF_H
#define STEM_MODEL_TOKENIZERGGUF_H

#include "stem/Model/Tokenizer.h"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace stem {

class GgufFile;

/// The tokenizer.json that describes the file's tokenizer: "gpt2" (byte-level
/// BPE; tokenizer.ggml.pre names the pre-tokenizer) or "llama" (SentencePiece
/// BPE; merges are rebuilt from the scores). Others are refused by name.
nlohmann::ordered_json tokenizerJsonFromGguf(const GgufFile &file);

/// The same as the text that an imported folder has.
std::string tokenizerJsonText(const GgufFile &file);

/// The tokenizer_config.json beside it: begin, end, unknown and padding tokens
/// and the chat template.
nlohmann::ordered_json tokenizerConfigFromGguf(const GgufFile &file);

/// A tokenizer straight from the file, with the facts of both.
Tokenizer tokenizerFromGguf(const GgufFile &file);

} // namespace stem

#endif // STEM_MODEL_TOKENIZERGGUF_H
