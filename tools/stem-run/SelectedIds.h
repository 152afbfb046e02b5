//===- SelectedIds.h - Ids that keep the up-projection --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_SELECTEDIDS_H
#define STEM_TOOLS_STEM_RUN_SELECTEDIDS_H

#include "CalibrationText.h"
#include "Json.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <vector>

namespace stem {

/// Ids keep the up-projection that the text to fit holds fewer times.
struct SelectionOptions {
  int64_t below = 0; ///< of all ids
  /// Of the special ones; default: a few for a model with a chat template.
  std::optional<int64_t> specialBelow;
};

struct SelectedIds {
  std::vector<int32_t> ids; ///< rising
  int64_t special = 0;      ///< how many of them are special
  int64_t specialBelow = 0; ///< what the option came to
  /// One flag for each id of the text: whether it would be among `ids` with one
  /// position of the text to fit less.
  std::vector<uint8_t> leftOut;

  bool empty() const { return ids.empty(); }
  bool contains(int32_t id) const;
  /// Share of the tokens that take the matrix.
  double shareOf(const TokenStream &stream) const;
};

void addSelectionOptions(CLI::App &command, SelectionOptions &options);

/// Throws a UsageError where the model cannot have what is asked.
void checkSelection(const SelectionOptions &options, const ModelConfig &config);

/// Says on standard error where the default does not apply.
SelectedIds selectIds(const Checkpoint &checkpoint,
                      const SelectionOptions &options,
                      const CalibrationText &text);

/// What the folder and --json say of them; nothing where there are none.
Json selectionSummary(const SelectedIds &selected,
                      const SelectionOptions &options,
                      const CalibrationText &text);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_SELECTEDIDS_H
