//===- HotIds.h - Ids whose rows are not of 8 bits ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_HOTIDS_H
#define STEM_TOOLS_STEM_RUN_HOTIDS_H

#include "CalibrationText.h"
#include "Json.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// Which tables are written in 8 bits, and what of them is not.
struct ColdRowOptions {
  bool areBytes = false;
  double hotShare = 0; ///< of the vocabulary
  /// In place of a share the fewest ids that kAutoCoverage of the tokens are
  /// of.
  bool isAuto = false;
  std::filesystem::path list = {}; ///< that names further ones; empty: none

  bool needsText() const { return isAuto || hotShare > 0; }
};

/// Of the tokens that are counted. Beyond it ids come so seldom that each adds
/// little: on the text of docs/tables.md 85.8 % of the uses are of 5 % of the
/// ids, and 90.1 % of 10 %.
inline constexpr double kAutoCoverage = 0.9;

struct HotIds {
  std::vector<int32_t> ids; ///< rising
  size_t listed = 0;        ///< of them, those of the list
  int64_t counted = 0;      ///< tokens
  double covered = 0;       ///< share of them that are of these ids

  Json json() const;
  std::string describe(uint64_t vocabulary) const;
};

/// Of `counts`, one for each id, those with the largest; of equal ones the
/// lower ids, which tokenizers made of pairs that were more common. With them
/// those of `listed`, which rise.
HotIds chooseHotIds(const std::vector<int64_t> &counts,
                    const ColdRowOptions &options,
                    std::span<const int32_t> listed = {});

/// What --hot-ids names; nothing without it.
std::vector<int32_t> readHotIds(const Checkpoint &checkpoint,
                                const ColdRowOptions &options);

/// How often each id of the vocabulary is in the stream.
std::vector<int64_t> countIds(const TokenStream &stream, uint64_t vocabulary);

/// --cold-rows, --hot-fraction and --hot-ids.
void addColdRowOptions(CLI::App &command, ColdRowOptions &options);

/// Throws a UsageError for hot ids without 8-bit rows.
void checkColdRows(const CLI::App &command, const ColdRowOptions &options);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_HOTIDS_H
