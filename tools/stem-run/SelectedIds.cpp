//===- SelectedIds.cpp - Ids that keep the up-projection ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SelectedIds.h"

#include "CommandLine.h"
#include "Tokenizing.h"

#include <algorithm>

using namespace stem;

static constexpr int64_t kSpecialBelow = 4;

/// Whether the model has STEM layers, all without such ids.
static bool hasTablesAlone(const ModelConfig &config) {
  return config.stem && !config.stem->select;
}

bool SelectedIds::contains(int32_t id) const {
  return std::binary_search(ids.begin(), ids.end(), id);
}

double SelectedIds::shareOf(const TokenStream &stream) const {
  int64_t taken = 0;
  for (size_t i = 0; i < stream.ids.size(); ++i)
    taken += stream.sequences[i] >= 0 && contains(stream.ids[i]);
  return static_cast<double>(taken) / static_cast<double>(stream.tokens);
}

void stem::addSelectionOptions(CLI::App &command, SelectionOptions &options) {
  const CLI::Range counts(int64_t(0), int64_t(1) << 31);
  command
      .add_option("--dense-below", options.below,
                  "Ids that the text to fit holds fewer times keep the "
                  "up-projection (default: 0, none)")
      ->check(counts)
      ->type_name("COUNT");
  command
      .add_option("--dense-special-below", options.specialBelow,
                  "The same of special tokens, which a chat template or a tool "
                  "may bring without warning (default: 4 where there is a "
                  "template, else 0, none)")
      ->check(counts)
      ->type_name("COUNT");
}

void stem::checkSelection(const SelectionOptions &options,
                          const ModelConfig &config) {
  const char *asked = options.below > 0 ? "--dense-below"
                      : options.specialBelow.value_or(0) > 0
                          ? "--dense-special-below"
                          : nullptr;
  if (asked && hasTablesAlone(config))
    throw UsageError(
        fmt::format("{}: the STEM layers that the model has keep the "
                    "up-projection for no id, and that holds for all or for "
                    "none; leave it out, or convert the dense model",
                    asked));
}

SelectedIds stem::selectIds(const Checkpoint &checkpoint,
                            const SelectionOptions &options,
                            const CalibrationText &text) {
  const Tokenizer tokenizer =
      requireTokenizer(checkpoint, "calibration needs one");
  SelectedIds selected;
  selected.specialBelow = options.specialBelow.value_or(
      tokenizer.chatTemplate() ? kSpecialBelow : 0);
  const std::vector<int32_t> special = specialIds(checkpoint, tokenizer);
  const std::vector<int64_t> counts = text.fitCounts();
  size_t row = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(checkpoint.config().vocabSize);
       ++id) {
    const bool isInText = row < text.rowIds.size() && text.rowIds[row] == id;
    const int64_t count = isInText ? counts[row] : 0;
    row += isInText;
    const bool isSpecial =
        std::binary_search(special.begin(), special.end(), id);
    const int64_t least = isSpecial
                              ? std::max(options.below, selected.specialBelow)
                              : options.below;
    if (isInText)
      selected.leftOut.push_back(count - 1 < least);
    if (count >= least)
      continue;
    selected.ids.push_back(id);
    selected.special += isSpecial;
  }
  if (hasTablesAlone(checkpoint.config()) && !selected.empty()) {
    printNote(fmt::format(
        "{} special tokens are rare in the text to fit and would keep the "
        "up-projection, but in the STEM layers that the model has no id does, "
        "and that holds for all or for none: they get rows",
        selected.ids.size()));
    selected = {};
  }
  return selected;
}

Json stem::selectionSummary(const SelectedIds &selected,
                            const SelectionOptions &options,
                            const CalibrationText &text) {
  if (selected.empty())
    return Json::object();
  return {{"dense_below", options.below},
          {"dense_special_below", selected.specialBelow},
          {"selected_ids", selected.ids.size()},
          {"selected_special_ids", selected.special},
          {"selected_share", selected.shareOf(text.check)}};
}
