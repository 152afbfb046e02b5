//===- HotIds.cpp - Ids whose rows are not of 8 bits ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HotIds.h"

#include "CommandLine.h"
#include "TokenNames.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

using namespace stem;

Json HotIds::json() const {
  return {{"hot_ids", ids.size()},
          {"listed_ids", listed},
          {"counted_tokens", counted},
          {"covered_share", covered}};
}

std::string HotIds::describe(uint64_t vocabulary) const {
  if (ids.empty())
    return "no id keeps full precision";
  std::string text = fmt::format("{} id{} ({:.1f} %) keep{} full precision",
                                 ids.size(), ids.size() == 1 ? "" : "s",
                                 100 * static_cast<double>(ids.size()) /
                                     static_cast<double>(vocabulary),
                                 ids.size() == 1 ? "s" : "");
  if (listed > 0)
    text += fmt::format(", {} of --hot-ids", listed);
  if (counted > 0)
    text += fmt::format(", {:.1f} % of the {} tokens counted", 100 * covered,
                        counted);
  return text;
}

HotIds stem::chooseHotIds(const std::vector<int64_t> &counts,
                          const ColdRowOptions &options,
                          std::span<const int32_t> listed) {
  std::vector<int32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int32_t id) {
    return std::pair(-counts[static_cast<size_t>(id)], id);
  };
  std::ranges::sort(order, {}, key);
  HotIds hot;
  hot.counted = std::accumulate(counts.begin(), counts.end(), int64_t(0));
  const auto all = static_cast<double>(hot.counted);
  const auto wanted = static_cast<size_t>(
      std::llround(options.hotShare * static_cast<double>(counts.size())));
  if (options.hotShare > 0 && wanted == 0)
    printNote(fmt::format("--hot-fraction={}: of {} ids that is less than half "
                          "of one, so that none keeps full precision for it",
                          options.hotShare, counts.size()));
  int64_t covered = 0;
  for (const int32_t id : order) {
    const bool isEnough =
        options.isAuto ? static_cast<double>(covered) >= kAutoCoverage * all
                       : hot.ids.size() >= wanted;
    if (isEnough)
      break;
    hot.ids.push_back(id);
    covered += counts[static_cast<size_t>(id)];
  }
  std::ranges::sort(hot.ids);
  hot.listed = listed.size();
  for (const int32_t id : listed)
    if (const auto place = std::ranges::lower_bound(hot.ids, id);
        place == hot.ids.end() || *place != id) {
      hot.ids.insert(place, id);
      covered += counts[static_cast<size_t>(id)];
    }
  hot.covered = hot.counted ? static_cast<double>(covered) / all : 0;
  return hot;
}

std::vector<int32_t> stem::readHotIds(const Checkpoint &checkpoint,
                                      const ColdRowOptions &options) {
  return options.list.empty() ? std::vector<int32_t>()
                              : readTokenList(checkpoint, options.list);
}

std::vector<int64_t> stem::countIds(const TokenStream &stream,
                                    uint64_t vocabulary) {
  std::vector<int64_t> counts(vocabulary);
  for (size_t i = 0; i < stream.ids.size(); ++i)
    if (stream.sequences[i] >= 0)
      ++counts[static_cast<size_t>(stream.ids[i])];
  return counts;
}

static void parseHotFraction(const std::string &text, ColdRowOptions &options) {
  options.isAuto = text == "auto";
  const bool isPercent = text.ends_with('%');
  const std::optional<double> value =
      readFinite(std::string_view(text).substr(0, text.size() - isPercent));
  options.hotShare = value.value_or(-1) / (isPercent ? 100 : 1);
  if (options.isAuto)
    options.hotShare = 0;
  else if (options.hotShare < 0 || options.hotShare > 1)
    throw UsageError(fmt::format("--hot-fraction={}: give auto, or a share of "
                                 "the vocabulary from 0 to 100%, like 10% or "
                                 "0.1",
                                 printable(text)));
}

void stem::addColdRowOptions(CLI::App &command, ColdRowOptions &options) {
  command
      .add_option_function<std::string>(
          "--cold-rows",
          [&](const std::string &type) { options.areBytes = type == "int8"; },
          "Type of the rows that are not hot: keep (default: the rows' own), "
          "or int8: a byte for each value, a scale and a minimum for each row")
      ->check(CLI::IsMember({"keep", "int8"}))
      ->type_name("TYPE");
  command
      .add_option_function<std::string>(
          "--hot-fraction",
          [&](const std::string &text) { parseHotFraction(text, options); },
          fmt::format("With --cold-rows=int8, the share of the ids, those that "
                      "a text holds most often, whose rows keep their type, "
                      "like 10%; auto: the fewest ids that {:.0f} % of its "
                      "tokens are of (default: 0)",
                      100 * kAutoCoverage))
      ->type_name("SHARE");
  command
      .add_option("--hot-ids", options.list,
                  "With --cold-rows=int8, a file of tokens whose rows keep "
                  "their type, beside those of --hot-fraction; on each line an "
                  "id, a word or a text in quotes")
      ->type_name("FILE");
}

void stem::checkColdRows(const CLI::App &command,
                         const ColdRowOptions &options) {
  for (const char *option : {"--hot-fraction", "--hot-ids"})
    if (command.count(option) && !options.areBytes)
      throw UsageError(fmt::format("{} is for --cold-rows=int8: other rows all "
                                   "have one type",
                                   option));
}
