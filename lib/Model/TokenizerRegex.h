//===- TokenizerRegex.h - Regular expressions of tokenizer.json -*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERREGEX_H
#define STEM_LIB_MODEL_TOKENIZERREGEX_H

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace stem {

/// A pattern in the syntax of tokenizer.json (Oniguruma's), matched by PCRE2.
class Regex {
public:
  /// `where` names file and key in messages. What the two syntaxes understand
  /// differently and we cannot translate is refused.
  Regex(std::string_view pattern, std::string where);

  /// Calls `onMatch(begin, end)` for each match in `text`, which must be valid
  /// UTF-8, from left to right. No empty match directly follows a match.
  void forEachMatch(std::string_view text,
                    const std::function<void(size_t, size_t)> &onMatch) const;

private:
  std::string where;
  std::shared_ptr<void> code;
};

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERREGEX_H
