//===- CalibrationText.h - What a calibration reads -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CALIBRATIONTEXT_H
#define STEM_TOOLS_STEM_RUN_CALIBRATIONTEXT_H

#include "LayerRunner.h"

#include "stem/Model/Tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// Windows of tokens, laid out as LayerRunner takes them: each window fills
/// whole tiles, and steps are whole windows. One entry a place; what pads the
/// last tile of a window has sequence -1.
struct TokenStream {
  std::vector<int32_t> ids, positions, sequences;
  std::vector<int32_t> labels; ///< the next token; -100: none
  /// The row of the token's statistics, whether it counts in them, which the
  /// padding and the first position of a window do not.
  std::vector<int32_t> rows;
  std::vector<uint8_t> counted;
  /// Where the token comes from: an index into CalibrationText::sources, and
  /// the number of its document (of its window in a text that is dealt by
  /// windows), counted over all texts. -1: padding.
  std::vector<int32_t> sources, documents;

  struct Step {
    int64_t begin, count;
  };
  std::vector<Step> steps;
  int64_t tokens = 0; ///< without padding

  int64_t places() const { return static_cast<int64_t>(ids.size()); }
  StepTokens step(const Step &step) const;
};

/// Sums of an id's positions are f32: beyond 2^24 a position adds nothing.
inline constexpr int64_t kMostTokens = 10'000'000;

struct CalibrationTextOptions {
  std::vector<std::filesystem::path> files;
  /// To take in all, evenly from the texts; kMostTokens at most.
  int64_t tokens = 50000;
  int64_t window = 512; ///< tokens; no longer than the model's own context
  int64_t maxStepTokens = kStepTokens;
  /// The first of so many windows of `fit` and `choose` is cut into short ones
  /// (0: none; nor where windows are hardly longer): a text's first position is
  /// unlike all others, and long windows alone have few of them.
  size_t shortEach = 4;
  uint64_t seed = 0;  ///< what is taken, and dealt where
  bool force = false; ///< whatever the coverage
  int threads = 0;    ///< that read; 0: physical cores
  /// Share of the tokens that are dialogue; default: a tenth for a model with a
  /// chat template.
  std::optional<double> dialogueShare;
  /// Share of the tokens that the model writes beside files, dialogue apart;
  /// default: as many as a file gives, where it writes any.
  std::optional<double> selfShare;
};

/// What was read of one text.
struct CalibrationSource {
  std::string file;
  std::string sha256;
  int64_t tokens;      ///< that it has
  int64_t tokensTaken; ///< for all three parts
  int64_t documents;   ///< that it has
  /// What is dealt out whole: "documents", or "windows" of a text that has few
  /// documents.
  std::string split;
  bool isDialogue = false;
};

/// Tokens of one text.
struct TextSource {
  std::string name, sha256;
  std::vector<std::vector<int32_t>> documents;
  /// Dealt by documents however few there are, and taken whole.
  bool isDialogue = false;
  /// Of the model, beside files or alone.
  bool isSelf = false;
  int64_t tokens() const;
};

/// Passages left out because they are there already.
struct RepeatedPassages {
  int64_t count = 0;
  uint64_t bytes = 0, bytesOfAll = 0;
};

/// Three parts without a document in common, or without a window where a text
/// has few documents, and the ids that occur in any.
struct CalibrationText {
  TokenStream fit;             ///< statistics are taken of
  TokenStream choose;          ///< decides on layers, k and ridge
  TokenStream check;           ///< no choice has seen
  std::vector<int32_t> rowIds; ///< rising
  std::vector<CalibrationSource> sources;
  RepeatedPassages repeated;

  /// How often the statistics have seen each of rowIds.
  std::vector<int64_t> fitCounts() const;
  /// Share of the positions to check whose id the statistics have seen.
  double coverage() const;
};

/// The documents of each file without passages that are there already. Throws
/// an Error for a text that is empty, not UTF-8 or too short.
std::vector<TextSource> readTextSources(const CalibrationTextOptions &options,
                                        const Tokenizer &tokenizer,
                                        RepeatedPassages &repeated);

/// Of so many tokens those that are dialogue.
int64_t dialogueTokens(int64_t tokens, double share);

/// Of the tokens wanted.
struct TextShares {
  double dialogue = 0;
  /// Of the last text; default: as the others.
  std::optional<double> last = std::nullopt;
};

/// Tokens that each of so many texts gives, in whole windows; dialogue is none
/// of them. Throws an Error where a text has no window.
std::vector<int64_t> textShares(size_t texts, int64_t tokens, int64_t window,
                                const TextShares &wanted = {});

/// The tokens that dealTexts takes of these texts together, which may have less
/// than their shares.
int64_t tokensToTake(const std::vector<TextSource> &sources,
                     const std::vector<int64_t> &shares,
                     const CalibrationTextOptions &options);

/// Deals out documents, or windows of a text that has fewer than 16 documents:
/// of 16 one to `choose`, one to `check`, the others to `fit`, until each text
/// has given its share. What is checked on is never the model's own text alone
/// where there is another.
CalibrationText dealTexts(const std::vector<TextSource> &sources,
                          const std::vector<int64_t> &shares,
                          const CalibrationTextOptions &options);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATIONTEXT_H
