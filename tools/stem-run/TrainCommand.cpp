//===- TrainCommand.cpp - The command line of stem-run train --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Train.h"
#include "TrainOptions.h"

#include "stem/Support/Format.h"

using namespace stem;

namespace {

constexpr const char *footer = R"(Examples:
  stem-run train stem --data=a.txt --data=b.jsonl --out=better --steps=500
  stem-run train stem --data=a.txt --out=better --train=tables --eval-every=50
  stem-run train stem --data=law.txt --out=law --train=rows:words.txt
  stem-run train stem --data=a.txt --out=better --resume
  stem-run train --from-config=config.json --data=a.txt --out=new

OUT is a model folder when the run is over (with --train=rows or rows:FILE it
has rows.safetensors alone, for --rows and stem-run apply); OUT/training has the checkpoints,
metrics.jsonl and report.html. An interrupted run saves and stops; the same
command with --resume goes on with the same bits.

Next: stem-run eval OUT --text=FILE)";

constexpr int64_t kLargestCount = int64_t{1} << 40;

/// "1.5x" or "3e-4".
void parseTableRate(const std::string &text, TrainArguments &arguments) {
  constexpr const char *wanted =
      "a learning rate, or a factor of --lr like 1.5x";
  const bool isFactor = text.ends_with('x');
  const double value = parseNumber(
      text.substr(0, text.size() - (isFactor ? 1 : 0)), "--table-lr", wanted);
  if (value < 0)
    throw UsageError(
        fmt::format("--table-lr={}: give {}", printable(text), wanted));
  if (isFactor)
    arguments.tableRateFactor = value;
  else
    arguments.tableRate = value;
}

CLI::Option *addNumber(CLI::App &command, const std::string &flag,
                       double &target, const std::string &help) {
  return command
      .add_option_function<std::string>(
          flag,
          [&target, flag](const std::string &text) {
            target = parseAtLeastZero(text, flag);
          },
          help)
      ->type_name("X");
}

CLI::Option *addCount(CLI::App &command, const std::string &flag,
                      int64_t &target, int64_t least, const std::string &help) {
  return command.add_option(flag, target, help)
      ->check(wholeNumber(uint64_t{kLargestCount}))
      ->check(CLI::Range(least, kLargestCount))
      ->type_name("N");
}

void addDataOptions(CLI::App &command, TrainArguments &arguments) {
  const std::string group = "Data";
  TrainingDataOptions &data = arguments.data;
  command
      .add_option("--data", data.files,
                  "Texts: a document each, parted by form feeds, or JSON lines "
                  "(FILE.jsonl) whose string \"text\" is a document")
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--shard", data.shard,
                  "Keep the tokenized texts in this file, for other runs too "
                  "(default: OUT/training/tokens.safetensors); without --data "
                  "one that is there")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--batch-ids", data.batchIds,
                  "Train on the batch in this file (safetensors: input_ids and "
                  "labels, shifted already) at each step, in place of --data")
      ->type_name("FILE")
      ->group(group);
  addCount(command, "--batch", data.rows, 1,
           "Sequences of a batch (default: 4)")
      ->group(group);
  CLI::Option *length =
      addCount(command, "--ctx,--length", data.length, 1,
               "Tokens of a sequence (default: 2048, or the model's context "
               "where that is less)")
          ->group(group);
  length->default_str("");
  command
      .add_flag("--respect-documents", data.respectDocuments,
                "A token sees its own document alone")
      ->group(group);
  command
      .add_flag("--special", data.parsesSpecial,
                "Special tokens spelled in the texts are tokens")
      ->group(group);
  command
      .add_option("--separator", data.separator,
                  "What parts the documents of a text file (default: a form "
                  "feed); empty: a file is one document")
      ->group(group);
  addNumber(command, "--validation", data.validation,
            "Share of the documents that is for validation (default: 0.05 with "
            "--eval-every, else 0)")
      ->group(group);
}

void addOptimizerOptions(CLI::App &command, TrainArguments &arguments) {
  const std::string group = "Optimizer";
  TrainerOptions &trainer = arguments.trainer;
  addNumber(command, "--lr", arguments.learningRate,
            "Learning rate, the largest of the schedule (default: 3e-4)")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--schedule",
          [&](const std::string &name) {
            arguments.schedule.kind = parseScheduleKind(name);
          },
          "constant, linear, cosine (default) or wsd: warm-up, stable, decay")
      ->check(CLI::IsMember({"constant", "linear", "cosine", "wsd"}))
      ->type_name("KIND")
      ->group(group);
  addCount(command, "--warmup", arguments.schedule.warmup, 0,
           "Steps of the rise at the start (default: 0)")
      ->group(group);
  addCount(command, "--decay-steps", arguments.schedule.decay, 1,
           "Steps of the fall at the end of wsd (default: a fifth)")
      ->group(group);
  addNumber(command, "--final-lr", arguments.schedule.final,
            "Where the fall ends, as a share of --lr (default: 0)")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--betas",
          [&](const std::string &text) {
            parseBetas(text, "--betas", trainer.dense);
          },
          "Of AdamW (default: 0.9,0.95)")
      ->type_name("B1,B2")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--eps",
          [&](const std::string &text) {
            trainer.dense.epsilon = parseEpsilon(text, "--eps");
          },
          "Of AdamW, from 1e-12 to 1 (default: 1e-8)")
      ->type_name("X")
      ->group(group);
  addNumber(command, "--weight-decay", trainer.dense.decay,
            "Of matrices; norms and biases have none (default: 0.1)")
      ->group(group);
  addNumber(command, "--clip", trainer.clip,
            "Largest global norm of the gradient (default: 0, not clipped)")
      ->group(group);
  addCount(command, "--accumulate", trainer.accumulate, 1,
           "Batches whose gradients make one step (default: 1)")
      ->group(group);
}

void parsePart(const std::string &text, TrainArguments &arguments) {
  constexpr std::string_view rows = "rows:";
  for (const TrainedPart part :
       {TrainedPart::All, TrainedPart::Tables, TrainedPart::StemLayers})
    if (text == trainedPartName(part)) {
      arguments.part = part;
      return;
    }
  const bool isList = text.starts_with(rows) && text.size() > rows.size();
  if (!isList && text != trainedPartName(TrainedPart::Rows))
    throw UsageError(
        fmt::format("--train={}: give all, tables, stem-layers, rows (of the "
                    "tokens in the data) or rows:FILE, a file with a token on "
                    "each line",
                    printable(text)));
  arguments.part = TrainedPart::Rows;
  if (isList)
    arguments.rowList = text.substr(rows.size());
}

void addTableOptions(CLI::App &command, TrainArguments &arguments) {
  const std::string group = "Tables";
  RowOptimizerOptions &rows = arguments.trainer.rows;
  command
      .add_option_function<std::string>(
          "--train",
          [&](const std::string &text) { parsePart(text, arguments); },
          "What is trained: all (default), tables, stem-layers: layers that "
          "have a table, with all of their weights, rows: of the tokens that "
          "the data has, or rows:FILE: of those that FILE has, an id or a text "
          "on each line")
      ->type_name("PART")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--row-optimizer",
          [&](const std::string &name) { rows.mode = parseRowMode(name); },
          "exact (AdamW over the whole table), lazy (only rows of the batch "
          "move) or rowwise (default: and one second moment a row)")
      ->check(CLI::IsMember({"exact", "lazy", "rowwise"}))
      ->type_name("MODE")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--table-lr",
          [&](const std::string &text) { parseTableRate(text, arguments); },
          "Learning rate of tables, or a factor of --lr (default: 1x)")
      ->type_name("X")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--table-betas",
          [&](const std::string &text) {
            parseBetas(text, "--table-betas", rows.adamw);
          },
          "Of tables (default: --betas); with 0 as the first there is no first "
          "moment")
      ->type_name("B1,B2")
      ->group(group);
  addNumber(command, "--table-weight-decay", rows.adamw.decay,
            "Of tables (default: --weight-decay)")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--row-dtype",
          [&](const std::string &name) {
            arguments.rowType = name == "f32" ? DType::F32 : DType::BF16;
          },
          "Rows while they are trained: f32, or bf16 with stochastic rounding "
          "(default: bf16 where the table is, else f32)")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("TYPE")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--tables",
          [&](const std::string &place) {
            arguments.tablesInFile = place == "file";
            arguments.tablesMayGoToFile = place == "auto";
          },
          "Where rows and their moments lie while they are trained: resident "
          "(default) or host, in memory; file, in files of OUT/training that "
          "go with "
          "the run, and the rows of a batch are brought before its step; or "
          "auto, in memory if they fit, else in files")
      ->check(CLI::IsMember({"resident", "host", "file", "auto"}))
      ->type_name("PLACE")
      ->group(group);
}

/// A share; a UsageError names what is none.
double parseShare(const std::string &text, std::string_view flag) {
  constexpr const char *wanted = "a number from 0 to 1";
  const double value = parseNumber(text, flag, wanted);
  if (value < 0 || value > 1)
    throw UsageError(
        fmt::format("{}={}: give {}", flag, printable(text), wanted));
  return value;
}

void addTeacherOptions(CLI::App &command, TrainArguments &arguments) {
  const std::string group = "Distillation";
  command
      .add_option(
          "--distill", arguments.teacher,
          "Follow the distribution of this model, a Hugging Face folder "
          "or GGUF with the same vocabulary")
      ->type_name("TEACHER")
      ->group(group);
  command
      .add_option_function<std::string>(
          "--distill-weight",
          [&](const std::string &text) {
            arguments.teacherWeight = parseShare(text, "--distill-weight");
          },
          "Of the divergence from the teacher; the rest is that of the labels "
          "(default: 1)")
      ->type_name("X")
      ->group(group);
}

void addRunOptions(CLI::App &command, TrainArguments &arguments) {
  addCount(command, "--steps", arguments.steps, 0,
           "Steps of the run (default: once over the data)");
  command
      .add_option("--seed", arguments.data.seed,
                  "Of the order of sequences, the choice of validation "
                  "documents, the rounding of bf16 rows and the weights of "
                  "--from-config (default: 0)")
      ->check(wholeNumber(UINT64_MAX));
  addCount(command, "--eval-every", arguments.evalEvery, 0,
           "Validate before the first step, every N steps and after the last "
           "(default: 0, never)");
  addCount(command, "--eval-batches", arguments.evalBatches, 1,
           "Batches of a validation, at most (default: 16)");
  addCount(command, "--save-every", arguments.saveEvery, 0,
           "Steps between checkpoints (default: 100; 0: after the last step "
           "alone)");
  addCount(command, "--keep", arguments.keep, 0,
           "Checkpoints that are kept (default: 1; 0: none is written, and the "
           "run cannot go on once it has ended)");
  command
      .add_option_function<std::string>(
          "--recompute-budget",
          [&](const std::string &text) {
            arguments.residualBudget = parseBytes(text, "--recompute-budget");
          },
          "Keep at most so many bytes of a batch for its backward pass, like "
          "500MB, and compute the rest again (default: keep all that is not "
          "cheap)")
      ->type_name("BYTES");
  command
      .add_option_function<std::string>(
          "--memory",
          [&](const std::string &text) {
            arguments.memory = parseBytes(text, "--memory");
          },
          "Keep within so many bytes of memory, like 4GB (default: what is "
          "available)")
      ->type_name("BYTES");
  command.add_flag("--resume", arguments.resume,
                   "Go on from the newest complete checkpoint in OUT");
}

/// Options that stand for others, and those that exclude each other.
void completeArguments(const CLI::App &command, TrainArguments &arguments) {
  if (arguments.source().empty())
    throw UsageError("there is no model; give MODEL, or --from-config=FILE to "
                     "begin with random weights");
  if (arguments.isRandom() &&
      (!arguments.rows.empty() || arguments.part == TrainedPart::Rows))
    throw UsageError("--from-config begins with random weights, which rows of "
                     "a file do not fit; give MODEL for --rows and "
                     "--train=rows:FILE");
  TrainingDataOptions &data = arguments.data;
  const bool isGiven = !data.batchIds.empty();
  if (!isGiven && data.files.empty() && data.shard.empty())
    throw UsageError("there is nothing to train on; give --data=FILE or "
                     "--batch-ids=FILE");
  for (const char *option :
       {"--data", "--shard", "--batch", "--ctx", "--respect-documents",
        "--special", "--separator", "--validation", "--eval-every"})
    if (isGiven && command.count(option))
      throw UsageError(fmt::format("{} does not go with --batch-ids", option));
  if (isGiven && !command.count("--steps"))
    throw UsageError("--batch-ids needs --steps=N: the batch has no end");
  if (data.validation >= 1)
    throw UsageError(
        fmt::format("--validation={}: give a share below 1", data.validation));
  if (arguments.evalEvery && !command.count("--validation"))
    data.validation = 0.05;
  if (arguments.evalEvery && data.validation == 0)
    throw UsageError("--eval-every needs documents to validate on; give "
                     "--validation above 0");
  if (arguments.keep == 0 && arguments.resume)
    throw UsageError("--keep=0 writes no checkpoint, and --resume goes on from "
                     "one: leave one of them out");
  if (command.count("--distill-weight") && arguments.teacher.empty())
    throw UsageError("--distill-weight goes with --distill=TEACHER");
  RowOptimizerOptions &rows = arguments.trainer.rows;
  const AdamWOptions own = rows.adamw;
  rows.adamw = arguments.trainer.dense;
  if (command.count("--table-betas")) {
    rows.adamw.beta1 = own.beta1;
    rows.adamw.beta2 = own.beta2;
  }
  if (command.count("--table-weight-decay"))
    rows.adamw.decay = own.decay;
  rows.seed = data.seed;
  if (command.count("--decay-steps") &&
      arguments.schedule.kind != ScheduleKind::WarmupStableDecay)
    throw UsageError("--decay-steps goes with --schedule=wsd");
}

} // namespace

void stem::addTrainCommand(CLI::App &app) {
  auto arguments = std::make_shared<TrainArguments>();
  arguments->data.rows = 4;
  arguments->schedule.kind = ScheduleKind::Cosine;
  CLI::App *command = addCommand(
      app, "train", "Train a model, its tables or rows of tokens", footer);
  CLI::Option *model = command->add_option(
      "MODEL", arguments->model, "Hugging Face folder or GGUF to start from");
  command
      ->add_option("--from-config", arguments->config,
                   "Begin with random weights, drawn by --seed, of a model of "
                   "this config.json, in place of MODEL; a tokenizer may lie "
                   "beside it")
      ->type_name("FILE")
      ->excludes(model);
  command->add_option("--out", arguments->out, "The folder of the run")
      ->required()
      ->type_name("DIR");
  addRowsOption(*command, arguments->rows);
  addRunOptions(*command, *arguments);
  addDataOptions(*command, *arguments);
  addOptimizerOptions(*command, *arguments);
  addTableOptions(*command, *arguments);
  addTeacherOptions(*command, *arguments);
  addCompileOptions(*command, arguments->compile);
  addJsonOption(*command, arguments->json);
  command->callback([arguments, command] {
    completeArguments(*command, *arguments);
    trainModel(*arguments);
  });
}
