//===- StopFilter.h - Ends a stream of text at a stop string ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_STOPFILTER_H
#define STEM_TOOLS_STEM_RUN_STOPFILTER_H

#include <string>
#include <vector>

namespace stem {

/// Passes text on, but holds back what may be the beginning of a stop string.
class StopFilter {
public:
  /// Empty stop strings are not allowed.
  explicit StopFilter(std::vector<std::string> stops)
      : stops(std::move(stops)) {}

  /// The text that is now certain. After a stop string it is the text before
  /// it, and nothing more follows.
  std::string push(const std::string &text);
  /// What was held back.
  std::string flush();
  bool found() const { return hasFound; }

private:
  std::vector<std::string> stops;
  std::string held;
  bool hasFound = false;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_STOPFILTER_H
