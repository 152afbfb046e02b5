//===- TokenNames.h - Tokens as a user names them ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Digits alone are an id. "..." is a JSON string: this very text. Anything else
// is a word: the text as it is and with a space before it, since tokenizers
// have tokens of both.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TOKENNAMES_H
#define STEM_TOOLS_STEM_RUN_TOKENNAMES_H

#include "stem/Model/Checkpoint.h"
#include "stem/Model/Tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// A name, taken apart.
struct TokenName {
  std::optional<int64_t> id;
  std::string text; ///< where it is no id
  bool isWord = false;

  /// `where` stands before messages.
  static TokenName parse(std::string_view text, const std::string &where);
};

/// Finds the tokens of names. The tokenizer is read when a text needs it.
class TokenFinder {
public:
  explicit TokenFinder(const Checkpoint &checkpoint) : checkpoint(checkpoint) {}

  /// The token of each form of the name, where there is one: of a word the text
  /// and the text after a space, else one form.
  std::vector<std::optional<int32_t>> find(const TokenName &name,
                                           const std::string &where);
  /// The same as ids; throws when no form is one token.
  std::vector<int32_t> require(const TokenName &name, const std::string &where);
  /// Throws, with the tokens that the forms of the name are.
  [[noreturn]] void refuse(const TokenName &name, const std::string &where);

  /// '" Spain" (17)', or the id alone where no tokenizer was needed.
  std::string describe(int32_t id) const;

private:
  const Tokenizer &textTokenizer();
  std::vector<int32_t> encode(const std::string &text,
                              const std::string &where);
  std::string spelled(int32_t id) const;

  const Checkpoint &checkpoint;
  std::optional<Tokenizer> tokenizer;
};

/// The ids that a file names, a name on each line, rising. Throws with the
/// number of a line that names none.
std::vector<int32_t> readTokenList(const Checkpoint &checkpoint,
                                   const std::filesystem::path &path);

/// --swap-rows: `LEFT=RIGHT`; LEFT reads the row of RIGHT.
struct TokenSwap {
  std::string given;
  TokenName left, right;

  static TokenSwap parse(const std::string &text);
};

/// Rows of the right tokens, as the model has them now, for the left ones, in
/// all tables. A note for each on standard error.
RowOverlay swapRows(const Checkpoint &checkpoint,
                    const std::vector<TokenSwap> &swaps);

/// A warning for each layer in which some of these ids keep the up-projection
/// (up_select), so that no row of theirs is read there.
void warnOfSelectedRows(const Checkpoint &checkpoint,
                        std::span<const int32_t> ids, const std::string &where);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TOKENNAMES_H
