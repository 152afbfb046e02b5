//===- CalibrationSources.cpp - Where a calibration's text comes from -----===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationSources.h"

#include "CommandLine.h"
#include "Tokenizing.h"

#include "stem/Support/Process.h"

using namespace stem;

namespace {

constexpr double kLeastCoverage = 0.6;

void requireCoverage(const CalibrationText &text) {
  const double coverage = text.coverage();
  if (coverage >= kLeastCoverage)
    return;
  fail("of the tokens held back only {:.1f} % have an id that the text to fit "
       "holds, and {:.0f} % are the least: most rows would be guesses; give "
       "more text (--calibrate-tokens, --calibrate=FILE), or "
       "--force-calibration to convert all the same",
       100 * coverage, 100 * kLeastCoverage);
}

double share(const RepeatedPassages &repeated) {
  return repeated.bytesOfAll ? static_cast<double>(repeated.bytes) /
                                   static_cast<double>(repeated.bytesOfAll)
                             : 0;
}

void printRepeated(const RepeatedPassages &repeated) {
  if (repeated.count)
    printStderr("calibration: {} passages that occur before are left out, "
                "{:.1f} % of the text\n",
                repeated.count, 100 * share(repeated));
}

} // namespace

CalibrationText
stem::gatherCalibrationText(const Checkpoint &checkpoint,
                            const CalibrationTextOptions &options,
                            const EngineOptions &engine) {
  if (options.files.empty())
    throw UsageError("--init=calibrated needs a text: give --calibrate=FILE, "
                     "best several of what the model is for (the other kinds "
                     "of --init need none and ruin a trained model)");
  const Tokenizer tokenizer =
      requireTokenizer(checkpoint, "calibration needs one");
  CalibrationText text = readCalibrationText(options, tokenizer);
  printRepeated(text.repeated);
  if (!options.force)
    requireCoverage(text);
  return text;
}

Json stem::textSummary(const CalibrationText &text,
                       const CalibrationTextOptions &options) {
  Json sources = Json::array();
  for (const CalibrationSource &source : text.sources)
    sources.push_back({{"file", source.file},
                       {"sha256", source.sha256},
                       {"documents", source.documents},
                       {"tokens", source.tokens},
                       {"tokens_taken", source.tokensTaken},
                       {"split", source.split}});
  return {{"texts", sources},
          {"seed", options.seed},
          {"dropped_passages",
           {{"count", text.repeated.count}, {"share", share(text.repeated)}}},
          {"window", options.window},
          {"tokens_fit", text.fit.tokens},
          {"tokens_choose", text.choose.tokens},
          {"tokens_check", text.check.tokens},
          {"coverage", text.coverage()}};
}

void stem::addCalibrationTextOptions(CLI::App &command,
                                     CalibrationTextOptions &options) {
  command
      .add_option("--calibrate", options.files,
                  "A text to calibrate on, UTF-8; may be repeated. Form feeds "
                  "part documents; of FILE.jsonl each line is one, "
                  "{\"text\": ...}")
      ->allow_extra_args(false)
      ->type_name("FILE");
  // Sums of an id's positions are f32: beyond 2^24 a position adds nothing.
  command
      .add_option("--calibrate-tokens", options.tokens,
                  "Tokens to take from the texts (default: 50000)")
      ->check(CLI::Range(int64_t(8192), int64_t(10'000'000)));
  command
      .add_option("--calibrate-seed", options.seed,
                  "Which documents are taken, and for what (default: 0, evenly "
                  "in their order)")
      ->check(wholeNumber(UINT64_MAX));
  command.add_flag("--force-calibration", options.force,
                   "Convert even where the text holds less than 60 % of the "
                   "tokens that it is checked on");
}
