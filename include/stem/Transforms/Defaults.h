//===- Defaults.h - Defaults of pass options --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Those that passes, pipelines and the compiler's options share, with those of
// AdamW.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_DEFAULTS_H
#define STEM_TRANSFORMS_DEFAULTS_H

#include "stem/Support/AdamWSettings.h"

#include <cstdint>

namespace stem {

/// d_ff columns of one block of an FFN, at most. Wide blocks save passes over
/// the accumulator; docs/architecture.md has the figures.
inline constexpr int64_t kDefaultFFNBlock = 8192;

/// Columns of the vocabulary of one block of a loss, at most.
inline constexpr int64_t kDefaultVocabularyBlock = 1024;

/// Float constants with fewer elements stay in the IR.
inline constexpr int64_t kDefaultMinElements = 16;

/// Steps of the interpreter: some ten seconds of the slowest ones.
inline constexpr int64_t kDefaultMaxSteps = int64_t{1} << 28;

} // namespace stem

#endif // STEM_TRANSFORMS_DEFAULTS_H
