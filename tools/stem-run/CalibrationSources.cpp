//===- CalibrationSources.cpp - Where a calibration's text comes from -----===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CalibrationSources.h"

#include "CommandLine.h"
#include "Dialogues.h"
#include "SelfText.h"
#include "Tokenizing.h"

#include "stem/Graph/ModelGraph.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

using namespace stem;

namespace {

constexpr double kLeastCoverage = 0.6;
constexpr double kDialogueShare = 0.1;
/// Texts that the model writes at a time.
constexpr size_t kSlots = 32;
/// The name of what it writes, among files.
const std::filesystem::path kSelf = "self";

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

/// Share of the tokens that are dialogue.
double dialogueShare(const CalibrationTextOptions &options,
                     const Tokenizer &tokenizer) {
  return options.dialogueShare.value_or(
      tokenizer.chatTemplate() ? kDialogueShare : 0);
}

/// Writes text with the model, which is in memory as long as this.
class Writing {
public:
  Writing(const Checkpoint &checkpoint, const Tokenizer &tokenizer,
          const CalibrationTextOptions &options, EngineOptions engineOptions,
          int64_t positions);

  TextSource selfText(int64_t tokens) {
    return writeSelfText(writer, tokenizer, tokens, options.window,
                         options.seed);
  }
  TextSource dialogue(const DialogueWriter &dialogues, int64_t tokens) {
    return dialogues.write(writer, tokens, engine->maxPositions());
  }

private:
  const Tokenizer &tokenizer;
  const CalibrationTextOptions &options;
  std::unique_ptr<Engine> engine;
  ModelWriter writer;
};

std::unique_ptr<Engine> createWriter(const Checkpoint &checkpoint,
                                     EngineOptions options, int64_t positions) {
  options.maxPositions = positions;
  options.maxSequences = static_cast<int64_t>(kSlots);
  options.memoryAdvice =
      fmt::format("--dtype=bf16 halves the weights and the cache of f32{}",
                  options.memory > 0 ? ", or allow more --memory" : "");
  if (!options.dumpDirectory.empty())
    options.dumpDirectory = options.dumpDirectory.parent_path() / "writing";
  try {
    return createEngine(checkpoint, options);
  } catch (const Error &error) {
    fail("{} (the model writes text to calibrate on; with --calibrate=FILE and "
         "--dialogue-share=0 it does not)",
         error.what());
  }
}

Writing::Writing(const Checkpoint &checkpoint, const Tokenizer &tokenizer,
                 const CalibrationTextOptions &options,
                 EngineOptions engineOptions, int64_t positions)
    : tokenizer(tokenizer), options(options),
      engine(createWriter(checkpoint, std::move(engineOptions), positions)),
      writer(*engine, kSlots, options.seed, endIds(checkpoint, &tokenizer)) {}

/// Nothing where there is to be no dialogue, or no room for one.
std::optional<DialogueWriter> planDialogue(const Checkpoint &checkpoint,
                                           const Tokenizer &tokenizer,
                                           double share) {
  const std::string name = checkpoint.path().string();
  if (share == 0)
    return std::nullopt;
  if (!tokenizer.chatTemplate())
    fail("--dialogue-share={}: {} has no chat template; leave the option out",
         share, name);
  DialogueWriter dialogues(tokenizer, name);
  const int64_t own = static_cast<int64_t>(checkpoint.config().maxPositions);
  if (own == 0 || dialogues.fits(own))
    return dialogues;
  printNote(fmt::format("no dialogue to calibrate on: the model's context of "
                        "{} positions is too short for it",
                        own));
  return std::nullopt;
}

/// Where files have less than they are to give, what the model writes beside
/// them shrinks as they do, so that all shares stay what they are.
void fitToFiles(const std::vector<TextSource> &files,
                std::vector<int64_t> &shares, int64_t &dialogue,
                const CalibrationTextOptions &options) {
  if (files.empty())
    return;
  int64_t wanted = 0;
  for (size_t i = 0; i < files.size(); ++i)
    wanted += shares[i];
  const double part =
      std::min(1.0, static_cast<double>(tokensToTake(files, shares, options)) /
                        static_cast<double>(wanted));
  const auto shrink = [&](int64_t tokens) {
    return std::llround(part * static_cast<double>(tokens));
  };
  dialogue = shrink(dialogue);
  if (shares.size() > files.size())
    shares.back() =
        std::max<int64_t>(1, shrink(shares.back()) / options.window) *
        options.window;
}

} // namespace

CalibrationTextOptions stem::fittedOptions(CalibrationTextOptions options,
                                           const Checkpoint &checkpoint) {
  const int64_t own = static_cast<int64_t>(checkpoint.config().maxPositions);
  // A window's first token counts in no sum, and its last one is predicted.
  if (own == 1)
    fail("{}: the model's context is 1 token (max_position_embeddings); a "
         "calibration needs 2 at least",
         checkpoint.path().string());
  if (own > 0)
    options.window = std::min(options.window, own);
  return options;
}

EngineOptions stem::runnerOptions(EngineOptions engine,
                                  const CalibrationTextOptions &options) {
  engine.maxPositions = options.window;
  engine.maxStepTokens = options.maxStepTokens;
  engine.maxSequences = options.maxStepTokens / kTokenTile;
  return engine;
}

CalibrationText
stem::gatherCalibrationText(const Checkpoint &checkpoint,
                            const CalibrationTextOptions &options,
                            const EngineOptions &engine) {
  const Tokenizer tokenizer =
      requireTokenizer(checkpoint, "calibration needs one");
  CalibrationTextOptions ofFiles = options;
  const size_t selves = std::erase(ofFiles.files, kSelf);
  if (selves > 1)
    throw UsageError("--calibrate=self is there twice; give it once");
  if (options.selfShare && ofFiles.files.empty())
    throw UsageError("--self-share is the share beside files; give "
                     "--calibrate=FILE too, or leave it out: the text is all "
                     "the model's");
  const bool isSelf =
      selves == 1 || options.files.empty() || options.selfShare.has_value();
  double share = dialogueShare(options, tokenizer);
  const std::optional<DialogueWriter> dialogues =
      planDialogue(checkpoint, tokenizer, share);
  if (!dialogues)
    share = 0;
  int64_t wanted = dialogueTokens(options.tokens, share);
  std::vector<int64_t> shares =
      textShares(ofFiles.files.size() + isSelf, options.tokens, options.window,
                 {share, options.selfShare});
  RepeatedPassages repeated;
  std::vector<TextSource> sources =
      readTextSources(ofFiles, tokenizer, repeated);
  fitToFiles(sources, shares, wanted, options);
  if (isSelf || wanted > 0) {
    const int64_t own = static_cast<int64_t>(checkpoint.config().maxPositions);
    const int64_t positions = std::max(
        options.window, dialogues ? dialogues->positions() : options.window);
    Writing writing(checkpoint, tokenizer, options, engine,
                    own ? std::min(own, positions) : positions);
    if (isSelf)
      sources.push_back(writing.selfText(shares.back()));
    if (wanted > 0) {
      sources.push_back(writing.dialogue(*dialogues, wanted));
      shares.push_back(sources.back().tokens());
    }
  }
  CalibrationText text = dealTexts(sources, shares, options);
  text.repeated = repeated;
  printRepeated(repeated);
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
  const auto shareWhere = [&](auto isPart) {
    int64_t part = 0, all = 0;
    for (const CalibrationSource &source : text.sources) {
      all += source.tokensTaken;
      part += isPart(source) ? source.tokensTaken : 0;
    }
    return static_cast<double>(part) / static_cast<double>(all);
  };
  return {{"texts", sources},
          {"self_share",
           shareWhere([](const auto &source) { return source.file == kSelf; })},
          {"dialogue_share",
           shareWhere([](const auto &source) { return source.isDialogue; })},
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
                  "{\"text\": ...}. self (default): what the model writes")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command
      .add_option("--calibrate-tokens", options.tokens,
                  "Tokens to take from the texts (default: 50000)")
      ->check(CLI::Range(int64_t(8192), kMostTokens));
  command
      .add_option("--dialogue-share", options.dialogueShare,
                  "Share of the tokens that is dialogue in the model's chat "
                  "template, answered by the model (default: 0.1 where there "
                  "is one)")
      ->check(finiteNumber(0, 0.9));
  command
      .add_option("--self-share", options.selfShare,
                  "Share of the tokens that the model writes itself beside "
                  "files (default: none, or with --calibrate=self as many as "
                  "a file gives)")
      ->check(finiteNumber(0.01, 0.9));
  command
      .add_option("--calibrate-seed", options.seed,
                  "Which documents are taken, and for what, and what the model "
                  "writes (default: 0, documents evenly in their order)")
      ->check(wholeNumber(UINT64_MAX));
  command.add_flag("--force-calibration", options.force,
                   "Convert even where the text holds less than 60 % of the "
                   "tokens that it is checked on");
}
