//===- TextPassages.h - Passages that a text repeats ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TEXTPASSAGES_H
#define STEM_TOOLS_STEM_RUN_TEXTPASSAGES_H

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

namespace stem {

/// Leaves out passages that it has seen before: paragraphs between blank lines
/// that have 64 bytes or more, where a run of white space counts as one.
class PassageFilter {
public:
  /// The document without them; empty where nothing but white space is left.
  std::string keepNew(std::string_view document);

  int64_t dropped() const { return droppedCount; }
  uint64_t droppedBytes() const { return bytesDropped; }
  uint64_t bytes() const { return bytesSeen; }

private:
  bool isRepeated(std::string_view paragraph);

  std::unordered_set<std::string> seen; ///< white space collapsed
  int64_t droppedCount = 0;
  uint64_t bytesDropped = 0, bytesSeen = 0;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TEXTPASSAGES_H
