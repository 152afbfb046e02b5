//===- SelfText.h - The model's own text to calibrate on ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_SELFTEXT_H
#define STEM_TOOLS_STEM_RUN_SELFTEXT_H

#include "CalibrationText.h"
#include "ModelWriter.h"

namespace stem {

/// SHA-256 of ids as little-endian 32-bit integers, document after document.
std::string hashIds(const std::vector<std::vector<int32_t>> &documents);

/// Documents of `length` tokens at most until there are `tokens`. Each starts
/// from a token drawn from the ordinary vocabulary, behind the begin token
/// where the tokenizer adds one; a few likeliest tokens follow, then sampled
/// ones.
TextSource writeSelfText(ModelWriter &writer, const Tokenizer &tokenizer,
                         int64_t tokens, int64_t length, uint64_t seed);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_SELFTEXT_H
