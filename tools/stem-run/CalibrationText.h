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

  struct Step {
    int64_t begin, count;
  };
  std::vector<Step> steps;
  int64_t tokens = 0; ///< without padding

  int64_t places() const { return static_cast<int64_t>(ids.size()); }
  StepTokens step(const Step &step) const;
};

struct CalibrationTextOptions {
  std::vector<std::filesystem::path> files;
  int64_t tokens = 50000; ///< to take in all, evenly from the files
  int64_t window = 512;   ///< tokens
  int64_t maxStepTokens = 2048;
};

/// What was read of one file.
struct CalibrationSource {
  std::string file;
  std::string sha256;
  int64_t tokens;      ///< that it has
  int64_t tokensTaken; ///< for all three parts
};

/// Three parts without a window in common, and the ids that occur in any.
struct CalibrationText {
  TokenStream fit;             ///< statistics are taken of
  TokenStream choose;          ///< decides on layers, k and ridge
  TokenStream check;           ///< no choice has seen
  std::vector<int32_t> rowIds; ///< rising
  std::vector<CalibrationSource> sources;
};

/// Cuts each file into windows and deals them out: of 16, one to `choose`, one
/// to `check`, the others to `fit`, until enough are taken, evenly from the
/// whole file. Throws an Error for a text that is empty, not UTF-8 or too
/// short.
CalibrationText readCalibrationText(const CalibrationTextOptions &options,
                                    const Tokenizer &tokenizer);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CALIBRATIONTEXT_H
