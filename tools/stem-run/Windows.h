//===- Windows.h - The protocol of a perplexity -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_WINDOWS_H
#define STEM_TOOLS_STEM_RUN_WINDOWS_H

#include "Engine.h"

#include <cstdint>
#include <span>
#include <vector>

namespace stem {

/// Tokens seen at once, and the labels that this window scores.
struct Window {
  std::span<const int32_t> ids;
  std::vector<int32_t> labels; ///< -100 where an earlier window scored it
  size_t document = 0;         ///< of its file
  ScoreWindow score() const { return {ids, labels}; }
};

/// Windows of at most `context` tokens whose starts lie `stride` apart. Every
/// token but the first is scored once, by the first window that predicts it:
/// the label of a window's last position is the first input of the next window
/// when stride equals context.
std::vector<Window> makeWindows(std::span<const int32_t> ids, int64_t context,
                                int64_t stride);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_WINDOWS_H
