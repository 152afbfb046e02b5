//===- BenchTraining.cpp - stem-run bench --train -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BenchTraining.h"

#include "ByteTable.h"
#include "Json.h"
#include "Progress.h"
#include "RandomWeights.h"
#include "Statistics.h"
#include "TrainOptions.h"
#include "TrainingData.h"
#include "TrainingPlan.h"
#include "ZipfBatches.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Machine.h"
#include "stem/Support/Format.h"
#include "stem/Support/Process.h"
#include "stem/Support/ScratchFolder.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

using namespace stem;
namespace fs = std::filesystem;

namespace {

/// Small enough that weights stay what they were.
constexpr double kLearningRate = 1e-4;

/// What a step took, and the parts of it.
struct Seconds {
  std::vector<double> step, compute, dense, rows;

  void add(double seconds, const StepSeconds &parts) {
    step.push_back(seconds);
    compute.push_back(parts.compute);
    dense.push_back(parts.dense);
    rows.push_back(parts.rows);
  }
};

class TrainingBench {
public:
  explicit TrainingBench(const TrainingBenchArguments &arguments)
      : arguments(arguments),
        checkpoint(arguments.config.empty()
                       ? openModel(arguments.model)
                       : openRandomModel(arguments.config, arguments.seed,
                                         arguments.compile.threads)) {
    requireFullRows(checkpoint, "training does not change them");
  }
  void run();

private:
  void chooseShape();
  void compile();
  void load();
  void measureMachine();
  Json takeStep();
  void measureInTurn();
  void measureAsAsked();
  double share(double rate) const;
  Json result() const;
  void print() const;

  const TrainingBenchArguments &arguments;
  Stopwatch watch;
  Checkpoint checkpoint;
  StepShape shape;
  std::unique_ptr<TrainingStep> step;
  std::optional<TrainingPlan> plan;
  std::unique_ptr<Trainer> trainer;
  std::optional<Batch> given;
  std::optional<ZipfBatches> drawn;

  Seconds seconds;
  double loss = 0;
  double loadSeconds = 0, firstStepSeconds = 0; ///< the latter from the start
  double matrixRate = 0, productRate = 0;
  int64_t startPeak = 0; ///< until the program was there
  int64_t baseBytes = 0; ///< what it held then
  int64_t stepPeak = 0;  ///< from then on
};

void TrainingBench::chooseShape() {
  shape = {arguments.rows, arguments.length, 1};
  if (!arguments.batchIds.empty()) {
    given = readGivenBatch(checkpoint, arguments.batchIds);
    shape = {given->rows, given->length, 1};
    if (given->ignoresAll())
      fail("{}: no place has a label; there is no step to measure",
           arguments.batchIds.string());
    return;
  }
  checkSequenceLength(static_cast<uint64_t>(shape.length),
                      checkpoint.config().maxPositions);
  drawn.emplace(checkpoint.config().vocabSize, arguments.seed);
}

/// Into an empty cache.
void TrainingBench::compile() {
  const ScratchFolder cache(temporaryFolder(), "stem-bench-");
  TrainingStepOptions options;
  options.engine = engineOptions(arguments.compile);
  options.engine.cacheDirectory = cache.path();
  options.engine.useCache = true;
  options.train = arguments.part == "all"      ? TrainedPart::All
                  : arguments.part == "tables" ? TrainedPart::Tables
                                               : TrainedPart::StemLayers;
  options.rowType = arguments.rowType;
  options.tokens = shape.batchTokens();
  options.rows = shape.rows;
  options.optimizer = stepOptimizer(arguments.trainer);
  {
    const Heartbeat heartbeat("compiling into an empty cache");
    step = makeTrainingStep(checkpoint, options);
  }
  if (!step->report().dtypeNote.empty())
    printNote(step->report().dtypeNote);
  plan.emplace(checkpoint, *step, arguments.trainer, shape,
               boundOfRows(shape.rows, shape.length, step->tokenTile()));
  printStderr("{}\n", plan->text());
  plan->requireMemory("give a smaller --batch, a smaller --ctx, "
                      "--row-optimizer=rowwise or --train=tables");
}

/// Peaks before and after are told apart: the compiler's is not the step's.
void TrainingBench::load() {
  startPeak = memoryStatus().peakResident;
  baseBytes = memoryStatus().resident;
  resetPeakResident();
  const Stopwatch stopwatch;
  step->load();
  trainer = std::make_unique<Trainer>(checkpoint, *step, arguments.trainer);
  loadSeconds = stopwatch.seconds();
}

/// The better of what was measured before and after.
void TrainingBench::measureMachine() {
  const stem_dtype type =
      step->report().dtype == DType::F32 ? STEM_F32 : STEM_BF16;
  matrixRate = std::max(matrixRate, measureMatrixRate(step->context(), type));
  productRate =
      std::max(productRate, measureProductRate(step->context(), type));
}

Json TrainingBench::takeStep() {
  const Batch batch = given ? *given : drawn->next(shape.rows, shape.length);
  const Stopwatch stopwatch;
  const StepResult result =
      trainer->update({&batch, 1}, kLearningRate, kLearningRate);
  const double all = stopwatch.seconds();
  if (firstStepSeconds == 0)
    firstStepSeconds = watch.seconds(); // untimed: pages are touched first
  else
    seconds.add(all, result.seconds);
  loss = result.loss();
  return {{"seconds", all},
          {"compute_seconds", result.seconds.compute},
          {"dense_optimizer_seconds", result.seconds.dense},
          {"row_optimizer_seconds", result.seconds.rows},
          {"rows_touched", result.rowsTouched},
          {"loss", loss}};
}

void TrainingBench::measureInTurn() {
  Progress progress("bench", static_cast<double>(arguments.repeat));
  for (int64_t i = 0; i < arguments.repeat; ++i) {
    takeStep();
    progress.update(static_cast<double>(i + 1));
  }
}

/// --paced: a step for each line. One that was never asked for is measured at
/// the end.
void TrainingBench::measureAsAsked() {
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line != "step")
      fail("standard input: '{}' was read; --train --paced expects lines that "
           "say step",
           line);
    fmt::print("{}\n", takeStep().dump());
    std::fflush(stdout);
  }
  if (seconds.step.empty())
    takeStep();
}

/// Of the rate, in the time that StepSeconds::dense and rows leave.
double TrainingBench::share(double rate) const {
  std::vector<double> rest;
  for (size_t i = 0; i < seconds.step.size(); ++i)
    rest.push_back(seconds.step[i] - seconds.dense[i] - seconds.rows[i]);
  return (plan->linearFlops + plan->attentionFlops) / median(rest) / rate;
}

void TrainingBench::run() {
  chooseShape();
  compile();
  measureMachine();
  load();
  takeStep();
  if (arguments.paced)
    measureAsAsked();
  else
    measureInTurn();
  stepPeak = memoryStatus().peakResident;
  measureMachine();
  if (arguments.json)
    return printJson(result());
  print();
}

Json TrainingBench::result() const {
  const EngineReport &report = step->report();
  const double one = median(seconds.step);
  Json json = resultObject("bench");
  json.update({{"model", arguments.config.empty() ? arguments.model.string()
                                                  : arguments.config.string()},
               {"train", arguments.part},
               {"row_optimizer", rowModeName(arguments.trainer.rows.mode)},
               {"dtype", dtypeConfigName(report.dtype)},
               {"isa", report.isa},
               {"threads", report.threads},
               {"sequences", shape.rows},
               {"length", shape.length},
               {"updates_in_step", step->updatesParameters()},
               {"step_seconds", seconds.step},
               {"compute_seconds", seconds.compute},
               {"dense_optimizer_seconds", seconds.dense},
               {"row_optimizer_seconds", seconds.rows},
               {"tokens_per_second", double(shape.tokens()) / one},
               {"loss", finiteOrNull(loss)},
               {"plan", plan->json()},
               {"matrix_rate", matrixRate},
               {"product_rate", productRate},
               {"share_of_matrix_rate", share(matrixRate)},
               {"share_of_product_rate", share(productRate)},
               {"compile_seconds_cold", report.compileSeconds},
               {"load_seconds", loadSeconds},
               {"first_step_seconds", firstStepSeconds},
               {"base_bytes", baseBytes},
               {"step_peak_bytes", stepPeak},
               {"peak_bytes", std::max(startPeak, stepPeak)}});
  return json;
}

void TrainingBench::print() const {
  const EngineReport &report = step->report();
  const auto milliseconds = [](const std::vector<double> &values) {
    return 1e3 * median(values);
  };
  const auto bytes = [](int64_t value) {
    return formatBytes(static_cast<double>(value));
  };
  fmt::print("training {} ({}, {}, {} threads), {} x {} tokens\n",
             arguments.config.empty() ? arguments.model.string()
                                      : arguments.config.string(),
             dtypeConfigName(report.dtype), report.isa, report.threads,
             shape.rows, shape.length);
  const bool updates = step->updatesParameters();
  const char *work =
      updates ? "forward, backward and AdamW" : "forward and backward";
  fmt::print("  step     {:.1f} ms, {:.0f} tokens/s: {} {:.1f}, {} {:.1f}, "
             "rows {:.1f}\n",
             milliseconds(seconds.step),
             double(shape.tokens()) / median(seconds.step), work,
             milliseconds(seconds.compute),
             updates ? "packing weights" : "optimizer",
             milliseconds(seconds.dense), milliseconds(seconds.rows));
  fmt::print("  FLOPs    in {} {:.0f} % of the matrix rate {:.1f} GFLOP/s, "
             "{:.0f} % of a large product's {:.1f}\n",
             work, 100 * share(matrixRate), matrixRate / 1e9,
             100 * share(productRate), productRate / 1e9);
  fmt::print("  compile  {} cold; first step after {}\n",
             formatSeconds(report.compileSeconds),
             formatSeconds(firstStepSeconds));
  fmt::print("  memory   {} at most while training, {} before, {} planned\n",
             bytes(stepPeak), bytes(baseBytes), bytes(plan->total()));
}

} // namespace

void stem::addTrainingBenchOptions(CLI::App &command,
                                   TrainingBenchArguments &arguments) {
  const std::string group = "Training";
  CLI::Option *train = command.add_flag(
      "--train{all}", arguments.part,
      "Measure steps of stem-run train: all (default), --train=tables or "
      "--train=stem-layers");
  train->check(CLI::IsMember({"all", "tables", "stem-layers"}))->group(group);
  const auto add = [&](CLI::Option *option, const char *type) {
    return option->needs(train)->group(group)->type_name(type);
  };
  const CLI::Range counts(int64_t(1), int64_t(1) << 40);
  add(command.add_option("--from-config", arguments.config,
                         "Random weights of a model of this config.json, in "
                         "place of MODEL"),
      "FILE");
  CLI::Option *given =
      add(command.add_option("--batch-ids", arguments.batchIds,
                             "The batch in this file (safetensors: input_ids "
                             "and labels) at each step; else ids are drawn"),
          "FILE");
  add(command.add_option("--batch", arguments.rows,
                         "Sequences of a batch (default: 4)"),
      "N")
      ->check(counts)
      ->excludes(given);
  CLI::Option *length =
      command.add_option("--ctx,--length", arguments.length,
                         "Tokens of a sequence (default: 512)");
  add(length, "N")->check(counts)->excludes(given);
  length->default_str("");
  add(command.add_option("--seed", arguments.seed,
                         "Of the ids, and of random weights (default: 0)"),
      "N")
      ->check(wholeNumber(UINT64_MAX));
  add(command.add_option_function<std::string>(
          "--row-optimizer",
          [&](const std::string &name) {
            arguments.trainer.rows.mode = parseRowMode(name);
          },
          "exact, lazy or rowwise (default)"),
      "MODE")
      ->check(CLI::IsMember({"exact", "lazy", "rowwise"}));
  add(command.add_option_function<std::string>(
          "--table-betas",
          [&](const std::string &text) {
            parseBetas(text, "--table-betas", arguments.trainer.rows.adamw);
          },
          "Of tables (default: 0.9,0.95); with 0 as the first there is no "
          "first moment"),
      "B1,B2");
  add(command.add_option_function<std::string>(
          "--row-dtype",
          [&](const std::string &name) {
            arguments.rowType = name == "f32" ? DType::F32 : DType::BF16;
          },
          "Rows while they are trained: f32 or bf16 (default: bf16 where the "
          "table is, else f32)"),
      "TYPE")
      ->check(CLI::IsMember({"f32", "bf16"}));
}

void stem::benchTraining(const TrainingBenchArguments &arguments) {
  TrainingBench(arguments).run();
}
