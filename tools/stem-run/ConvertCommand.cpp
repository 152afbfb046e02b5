//===- ConvertCommand.cpp - The command line of stem-run convert ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Convert.h"

#include "CalibrationSources.h"
#include "stem/Support/Format.h"

#include <algorithm>

using namespace stem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run convert dense stem --calibrate=a.txt --calibrate=b.txt
  stem-run convert dense stem --calibrate=a.txt --layers=auto:15 --mix-rank=64
  stem-run convert dense stem-r{rank} --calibrate=a.txt --mix-rank=0,64
  stem-run convert dense stem --layers=2,5,8 --init=embedding
  stem-run convert model.gguf stem --layers=all --init=xavier --seed=7

Rows are
  calibrated what fits the dense model's up-projection on a text, weighted by
             the gate (the default); W_down is fitted again to what the rows
             lack. Works without training
or start from
  embedding  U[t] = W_up norm(emb[t]) + b, what the layer would compute from the
             token's embedding alone
  row-mean   the mean of these rows over all ids, in every row
  xavier     random numbers, variance 2 / (V + d_ff)
The last three ruin a trained model: they are starts for training.

Next: stem-run eval OUT --text=FILE, stem-run bench SRC OUT)";

/// Options that only a calibration understands.
void refuseForOtherInit(const CLI::App &command,
                        const ConvertArguments &arguments) {
  for (const char *option :
       {"--calibrate", "--calibrate-tokens", "--calibrate-seed",
        "--dialogue-share", "--self-share", "--force-calibration", "--mix-rank",
        "--flops", "--rows", "--dense-below", "--dense-special-below",
        "--memory"})
    if (command.count(option))
      throw UsageError(fmt::format("{} is for --init=calibrated, not for "
                                   "--init={}",
                                   option, arguments.init.kind));
  if (arguments.calibration.coldRows.needsText())
    throw UsageError(fmt::format(
        "--hot-fraction: ids are counted on the text of a calibration, and "
        "--init={} has none; name them with --hot-ids, or count later: "
        "stem-run apply OUT --cold-rows=int8 --hot-fraction=SHARE --text=FILE",
        arguments.init.kind));
  if (arguments.layers.empty() || arguments.layers.starts_with("auto"))
    throw UsageError(fmt::format("--init={}: name the layers, like "
                                 "--layers=1/3; only a calibration can choose",
                                 arguments.init.kind));
}

/// With a calibration the texts' seed is likely meant.
void refuseSeed(const CLI::App &command, const std::string &init) {
  if (command.count("--seed"))
    throw UsageError(fmt::format(
        "--seed is for --init=xavier, not for --init={}; {}", init,
        init == "calibrated" ? "give --calibrate-seed for what a calibration "
                               "takes of its texts"
                             : "leave it out"));
}

void addRowOptions(CLI::App &command, ConvertArguments &arguments) {
  command
      .add_option("--layers", arguments.layers,
                  "auto:N (the N layers that cost least, measured; default: a "
                  "third of them), 1/3 (layers 2, 5, 8, ...), 1/2 (1, 3, 5, "
                  "...), all (all but the first), or a list like 2,5,8; "
                  "counted from 0")
      ->type_name("LAYERS");
  command
      .add_option("--init", arguments.init.kind,
                  "What the rows are: calibrated (default), embedding, "
                  "row-mean or xavier")
      ->check(CLI::IsMember({"calibrated", "embedding", "row-mean", "xavier"}))
      ->type_name("KIND");
  command.add_option("--seed", arguments.init.seed, "For xavier (default: 0)")
      ->check(wholeNumber(UINT64_MAX));
  command
      .add_option("--row-dtype", arguments.rowDType,
                  "Type of the rows: keep (default: the model's own), f32, "
                  "f16 or bf16")
      ->check(CLI::IsMember({"keep", "f32", "f16", "bf16"}))
      ->type_name("TYPE");
  addColdRowOptions(command, arguments.calibration.coldRows);
}

/// "20%" or "0.2".
double parseShare(const std::string &text) {
  const bool isPercent = text.ends_with('%');
  const std::optional<double> value =
      readFinite(std::string_view(text).substr(0, text.size() - isPercent));
  const double share = value.value_or(0) / (isPercent ? 100 : 1);
  if (share <= 0 || share > 1)
    throw UsageError(fmt::format("--flops={}: give a share above 0 and up to "
                                 "100%, like 20% or 0.2",
                                 printable(text)));
  return share;
}

/// "64" or "0,64".
std::vector<int64_t> parseRanks(const std::string &text) {
  std::vector<int64_t> ranks = parseIntegers(text, "--mix-rank");
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0)
      throw UsageError(fmt::format("--mix-rank={}: {} is no rank; ranks are "
                                   "whole numbers from 0",
                                   text, ranks[i]));
    if (std::count(ranks.begin(), ranks.begin() + i, ranks[i]))
      throw UsageError(fmt::format("--mix-rank={}: {} is there twice; give it "
                                   "once",
                                   text, ranks[i]));
  }
  return ranks;
}

void addCalibrationOptions(CLI::App &command, CalibrationArguments &arguments) {
  addCalibrationTextOptions(command, arguments.text);
  command
      .add_option_function<std::string>(
          "--rows",
          [&](const std::string &kind) { arguments.isOneRow = kind == "mean"; },
          "ids (default: a row for each id), or mean: one row for all of them, "
          "to see what the table gives")
      ->check(CLI::IsMember({"ids", "mean"}))
      ->type_name("KIND");
  addSelectionOptions(command, arguments.selection);
  command
      .add_option_function<std::string>(
          "--memory",
          [&](const std::string &text) {
            arguments.memory = parseBytes(text, "--memory");
          },
          "Keep within so much memory, like 4GB; where it is too little hidden "
          "states and rows go to files, weights are read again, and rows are "
          "fitted in more passes (default: what is available)")
      ->type_name("BYTES");
  CLI::Option *rank =
      command
          .add_option_function<std::string>(
              "--mix-rank",
              [&](const std::string &text) {
                arguments.ranks = parseRanks(text);
              },
              "Rank of a low-rank map of the hidden state that is added to the "
              "rows (default: 0, none). Several, like 0,64: a folder each, OUT "
              "and --report with {rank} in their names")
          ->type_name("RANKS");
  command
      .add_option_function<std::string>(
          "--flops",
          [&](const std::string &text) { arguments.flops = parseShare(text); },
          "Such maps, of the ranks that serve best, for this share of the "
          "multiply-adds of the replaced matrices, like 20%")
      ->excludes(rank)
      ->type_name("SHARE");
}

} // namespace

void stem::addConvertCommand(CLI::App &app) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App *command =
      addCommand(app, "convert",
                 "Replace up-projections by tables: dense to STEM", footer);
  command->add_option("SRC", arguments->source, "Hugging Face folder or GGUF")
      ->required();
  command->add_option("OUT", arguments->out, "The folder to make")->required();
  addRowOptions(*command, *arguments);
  addCalibrationOptions(*command, arguments->calibration);
  command
      ->add_option("--dump-ir", arguments->dumpDirectory,
                   "Write the model's IR before and after into this folder, "
                   "and the phases of the module that calibrates into "
                   "DIR/calibration")
      ->type_name("DIR");
  command
      ->add_option("--report", arguments->reportFile,
                   "Draw the result on a page in this file, HTML")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force,
                    "Replace OUT if it is a folder that Stem made, and the "
                    "file of --report");
  addComputeOptions(*command, arguments->compile);
  addJsonOption(*command, arguments->json);
  command->callback([arguments, command] {
    checkColdRows(*command, arguments->calibration.coldRows);
    if (arguments->init.kind != "calibrated")
      refuseForOtherInit(*command, *arguments);
    if (arguments->init.kind != "xavier")
      refuseSeed(*command, arguments->init.kind);
    EngineOptions &engine = arguments->calibration.engine;
    engine = engineOptions(arguments->compile);
    if (!arguments->dumpDirectory.empty())
      engine.dumpDirectory = arguments->dumpDirectory / "calibration";
    arguments->isRankNamed = command->count("--mix-rank") > 0;
    convertModel(*arguments);
  });
}
