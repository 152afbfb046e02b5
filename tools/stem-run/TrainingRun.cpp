//===- TrainingRun.cpp - The steps of a training run ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TrainingRun.h"

#include "ByteTable.h"
#include "CommandLine.h"
#include "RandomWeights.h"
#include "RunState.h"
#include "TokenNames.h"
#include "TrainedFolder.h"
#include "TrainedRows.h"
#include "TrainingReport.h"
#include "stem/Model/ModelFolder.h"
#include "stem/Runtime/Context.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"

#include <algorithm>
#include <cmath>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

TrainingRun::TrainingRun(TrainArguments given)
    : arguments(std::move(given)), folder(arguments.out, arguments.source(),
                                          arguments.resume, arguments.keep),
      checkpoint(arguments.isRandom()
                     ? openRandomModel(arguments.config, arguments.data.seed,
                                       arguments.compile.threads)
                     : openModel(arguments.model)) {
  requireFullRows(checkpoint, "training does not change them");
  if (arguments.isRandom())
    for (const std::string &warning : checkpoint.warnings())
      printWarning(warning);
}

//===----------------------------------------------------------------------===//
// Before the first step
//===----------------------------------------------------------------------===//

std::string TrainingRun::rowsName() const {
  return arguments.rowList.empty() ? "--train=rows"
                                   : arguments.rowList.string();
}

/// Before anything depends on the values of rows.
void TrainingRun::openRows() {
  if (arguments.part == TrainedPart::Rows) {
    trainedKeys(checkpoint, arguments.part); // refuses a model without tables
    if (arguments.rowList.empty()) {
      openData(createContext(arguments.compile.threads).get());
      rowIds = data->presentIds();
    } else {
      rowIds = readTokenList(checkpoint, arguments.rowList);
    }
    warnOfSelectedRows(checkpoint, rowIds, rowsName());
    rowBase = rowBaseOf(checkpoint, rowIds, tableLayers(checkpoint));
  }
  attachRows(checkpoint, arguments.rows);
}

void TrainingRun::chooseShape() {
  TrainingDataOptions &data = arguments.data;
  if (!data.batchIds.empty()) {
    const Batch batch = readGivenBatch(checkpoint, data.batchIds);
    data.rows = batch.rows;
    data.length = batch.length;
  } else {
    constexpr int64_t usual = 2048;
    const auto own = static_cast<int64_t>(checkpoint.config().maxPositions);
    if (data.length == 0)
      data.length = own > 0 ? std::min(usual, own) : usual;
    checkSequenceLength(static_cast<uint64_t>(data.length),
                        checkpoint.config().maxPositions);
  }
  // Places of a step, whole tiles of each sequence, are counted in 32 bits.
  int64_t places;
  if (__builtin_mul_overflow(data.rows, (data.length - 1) / kTrainingTile + 1,
                             &places) ||
      places > INT32_MAX / kTrainingTile)
    throw UsageError(fmt::format(
        "--batch={} of --ctx={}: a batch has at most {} tokens, in tiles of {} "
        "for each sequence; give a smaller --batch with --accumulate",
        data.rows, data.length, INT32_MAX, kTrainingTile));
  shape = {data.rows, data.length, arguments.trainer.accumulate};
  if (arguments.tablesInFile)
    keepTablesInFile();
}

void TrainingRun::keepTablesInFile() {
  arguments.tablesInFile = true;
  // Of chosen rows the moments are few.
  if (arguments.part != TrainedPart::Rows)
    arguments.trainer.rowFolder = folder.training();
}

void TrainingRun::openTeacher() {
  if (arguments.teacher.empty())
    return;
  teacher.emplace(openModel(arguments.teacher));
  requireFullRows(*teacher, "a teacher's cannot be");
  const uint64_t positions = teacher->config().maxPositions;
  if (positions && static_cast<uint64_t>(shape.length) > positions)
    fail("--distill={}: sequences of length {} are longer than the teacher's "
         "{} positions (max_position_embeddings); give a smaller --ctx",
         arguments.teacher.string(), shape.length, positions);
}

/// What a budget for the backward pass is for: where each document begins a
/// tile that is known once the texts are read.
int64_t TrainingRun::residualTokens() {
  if (arguments.residualBudget == 0 || !arguments.data.respectDocuments)
    return 0;
  if (!data)
    openData(createContext(arguments.compile.threads).get());
  return data->bound(kTrainingTile).tokens;
}

void TrainingRun::compileStep() {
  TrainingStepOptions options;
  options.engine = engineOptions(arguments.compile);
  options.train = arguments.part;
  options.trainedRows = rowIds;
  options.rowType = arguments.rowType;
  if (arguments.tablesInFile)
    options.tableFolder = folder.training();
  options.teacher = teacher ? &*teacher : nullptr;
  options.teacherWeight = arguments.teacherWeight;
  options.tokens = shape.batchTokens();
  options.rows = shape.rows;
  options.optimizer = stepOptimizer(arguments.trainer);
  options.residualBudget = arguments.residualBudget;
  options.residualTokens = residualTokens();
  {
    const Heartbeat heartbeat("compiling");
    step = makeTrainingStep(checkpoint, options);
  }
}

void TrainingRun::makeStep() {
  compileStep();
  const BatchBound bound =
      boundOfRows(shape.rows, shape.length, step->tokenTile());
  if (arguments.tablesMayGoToFile && !step->tables().empty() &&
      !planFor(bound).fits(MemoryBound(arguments.memory))) {
    keepTablesInFile();
    compileStep(); // which finds it compiled
  }
  if (!step->report().dtypeNote.empty())
    printNote(step->report().dtypeNote);
  makePlan(bound);
  noteTables();
}

TrainingPlan TrainingRun::planFor(const BatchBound &bound) const {
  return TrainingPlan(checkpoint, *step, arguments.trainer, shape, bound,
                      teacher ? &*teacher : nullptr);
}

void TrainingRun::makePlan(const BatchBound &bound) {
  plan.emplace(planFor(bound));
  printStderr("{}\n", plan->text());
  plan->requireMemory(memoryAdvice(), MemoryBound(arguments.memory));
}

void TrainingRun::noteTables() const {
  if (arguments.tablesInFile && plan->inFiles.empty())
    printNote(fmt::format("{}: no layer has a table: --tables=file changes "
                          "nothing",
                          checkpoint.path().string()));
}

/// A step that updates parameters keeps no gradients of them; with --accumulate
/// there are the step's and their sums.
std::string TrainingRun::memoryAdvice() const {
  int64_t gradients = 0;
  if (step->updatesParameters())
    for (const TrainingStep::Parameter &parameter : step->parameters())
      gradients += 2 * int64_t(sizeof(float)) * parameter.elements();
  return fmt::format(
      "give {}a smaller --batch{}, a smaller --ctx, --row-optimizer=rowwise, "
      "--train=tables, or a --recompute-budget",
      arguments.tablesInFile || step->tables().empty() ? "" : "--tables=file, ",
      gradients == 0
          ? " with --accumulate"
          : fmt::format(" (--accumulate with it keeps about {} of "
                        "gradients)",
                        formatBytes(static_cast<double>(gradients))));
}

void TrainingRun::openData(stem_context *context) {
  TrainingDataOptions &options = arguments.data;
  if (options.shard.empty())
    options.shard = folder.training() / "tokens.safetensors";
  data = openTrainingData(checkpoint, options, context);
  printStderr("{}\n", data->description());
}

/// What is wrong with ids that are there is said before the step is compiled;
/// texts are tokenized once the step is known to fit.
bool TrainingRun::isDataAtHand() const {
  const TrainingDataOptions &options = arguments.data;
  std::error_code ignored;
  return options.files.empty() ||
         (!options.shard.empty() && fs::exists(options.shard, ignored));
}

void TrainingRun::fitData() {
  const BatchBound bound = data->bound(step->tokenTile());
  if (bound.sequences > shape.rows) {
    printStderr("each document begins a tile of {} tokens; with that, ",
                step->tokenTile());
    makePlan(bound);
  }
  if (arguments.steps < 0)
    arguments.steps = std::max<int64_t>(1, data->batchesPerEpoch() /
                                               arguments.trainer.accumulate);
}

void TrainingRun::checkPresence() {
  rowsPresent = static_cast<int64_t>(rowIds.size());
  if (arguments.rowList.empty())
    return; // none, or those of the data
  std::vector<int32_t> present;
  std::ranges::set_intersection(data->presentIds(), rowIds,
                                std::back_inserter(present));
  rowsPresent = static_cast<int64_t>(present.size());
  const auto count = static_cast<int64_t>(rowIds.size());
  if (rowsPresent == 0)
    fail("{}: none of its {} tokens is in the training data, so that no row "
         "would be trained; name tokens that are, or give other data",
         rowsName(), count);
  if (rowsPresent < count)
    printNote(fmt::format("{}: {} of its {} tokens are not in the training "
                          "data; their rows get no gradient",
                          rowsName(), count - rowsPresent, count));
}

void TrainingRun::makeSchedule() {
  if (arguments.steps == 0)
    return;
  ScheduleOptions options = arguments.schedule;
  options.steps = arguments.steps;
  if (options.kind == ScheduleKind::WarmupStableDecay && options.decay == 0)
    options.decay = std::max<int64_t>(1, options.steps / 5);
  options.peak = arguments.learningRate;
  schedule.emplace(options);
  options.peak = arguments.tableLearningRate();
  tableSchedule.emplace(options);
}

/// As options take it.
static const char *flagOf(DType type) {
  return type == DType::BF16 ? "bf16" : "f32";
}

/// What changes the bits of a run. A constant rate does not know how many steps
/// there are, so that such a run may be made longer.
Json TrainingRun::options() const {
  const TrainerOptions &trainer = arguments.trainer;
  const AdamWOptions &dense = trainer.dense, &rows = trainer.rows.adamw;
  const ScheduleOptions &rate = arguments.schedule;
  Json json = {{"model", fingerprint}};
  json.update(data->identity());
  json.update({{"--accumulate", trainer.accumulate},
               {"--lr", arguments.learningRate},
               {"--schedule", scheduleName(rate.kind)},
               {"--warmup", rate.warmup}});
  if (teacher)
    json.update({{"--distill", teacherFingerprint},
                 {"--distill-weight", arguments.teacherWeight}});
  if (!rowIds.empty()) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(rowIds)));
    json["row_ids_sha256"] = hash.finish();
  }
  if (rate.kind != ScheduleKind::Constant)
    json.update({{"--steps", arguments.steps},
                 {"--final-lr", rate.final},
                 {"--decay-steps", rate.decay}});
  json.update(
      {{"--betas", {dense.beta1, dense.beta2}},
       {"--eps", dense.epsilon},
       {"--weight-decay", dense.decay},
       {"--clip", trainer.clip},
       {"--train", trainedPartName(arguments.part)},
       {"--row-optimizer", rowModeName(trainer.rows.mode)},
       {"--table-lr", arguments.tableLearningRate()},
       {"--table-betas", {rows.beta1, rows.beta2}},
       {"--table-weight-decay", rows.decay},
       {"--row-dtype", arguments.rowType ? flagOf(*arguments.rowType) : "keep"},
       {"--seed", trainer.rows.seed},
       {"--dtype", flagOf(step->report().dtype)},
       {"--threads", step->report().threads},
       {"instruction set", step->report().isa}});
  return json;
}

void TrainingRun::resume() {
  if (!arguments.resume)
    return;
  const auto found = folder.checkpoints().newest(
      [](const std::string &why) { printWarning("passed over: " + why); });
  if (!found)
    fail("{}: no checkpoint is complete; begin a new run in another folder",
         folder.training().string());
  const RunState state = RunState::parse(found->run, found->path / "run.json");
  state.requireOptions(options(), folder.out().string());
  if (state.step > arguments.steps)
    fail("{}: the run is at step {} already, --steps={} are asked for; give "
         "as many or more",
         folder.out().string(), state.step, arguments.steps);
  trainer->restore(found->tensors());
  data->seek(state.position);
  done = savedStep = state.step;
  labels = state.labels;
  skipped = state.skipped;
  lastLoss = state.loss;
  secondsBefore = state.seconds;
  printStderr("going on from step {} of {}\n", done, arguments.steps);
}

/// A checkpoint is written while those before are still there.
void TrainingRun::requireSpace() const {
  const CheckpointStore &store = folder.checkpoints();
  const uint64_t rates = static_cast<uint64_t>(arguments.steps) *
                         step->tables().size() * sizeof(double);
  const uint64_t one = CheckpointStore::plannedBytes(trainer->state()) + rates;
  const uint64_t count =
      arguments.keep > 0 ? static_cast<uint64_t>(arguments.keep) + 1 : 0;
  const uint64_t present = std::min(store.presentBytes(), one * count);
  const uint64_t exported = trained->bytesNeeded();
  const uint64_t needed = one * count - present + exported;
  const uint64_t available = freeDiskBytes(folder.training());
  const auto text = [](uint64_t bytes) {
    return formatBytes(static_cast<double>(bytes));
  };
  printStderr("disk: {} for {}{} ({} free)\n", text(needed),
              count > 0
                  ? fmt::format("{} checkpoints of {} and ", count, text(one))
                  : "",
              trained->name(), text(available));
  if (needed <= available)
    return;
  const std::string out = folder.out().string();
  if (count == 0)
    fail("{}: {} are needed for {}, {} are free on this file system; free {} "
         "or choose another --out",
         out, text(needed), trained->name(), text(available),
         text(needed - available));
  fail("{}: {} are needed ({} checkpoints of {}, one more than --keep={} "
       "while one is written, and {} of {}, less {} that are there), "
       "{} are free on this file system; free {}, choose another --out, give "
       "--row-optimizer=rowwise or --train=tables, or --keep=0, a run that "
       "cannot go on once it has ended",
       out, text(needed), count, text(one), arguments.keep, text(exported),
       trained->name(), text(present), text(available),
       text(needed - available));
}

//===----------------------------------------------------------------------===//
// The steps
//===----------------------------------------------------------------------===//

bool TrainingRun::isEvaluationDue(int64_t at) const {
  return arguments.evalEvery > 0 &&
         (at % arguments.evalEvery == 0 || at == arguments.steps);
}

void TrainingRun::train(const StopOnSignal &stop) {
  if (done == 0 && isEvaluationDue(0))
    validate();
  while (done < arguments.steps) {
    takeStep();
    if (isEvaluationDue(done))
      validate();
    const bool isDue =
        arguments.saveEvery > 0 && done % arguments.saveEvery == 0;
    if (isDue || stop.signal() || done == arguments.steps)
      save();
    if (stop.signal() && done < arguments.steps) {
      endLine();
      throw Interrupted(
          fmt::format("stopped after step {} of {}{}", done, arguments.steps,
                      arguments.keep > 0
                          ? ", which is saved; the same command with --resume "
                            "goes on"
                          : "; --keep=0 saves nothing"),
          stop.signal());
    }
  }
}

/// Where tables lie in a file the batches of the next step are known a step
/// ahead.
void TrainingRun::takeBatches() {
  const auto read = [&](std::vector<Batch> &into) {
    into.resize(static_cast<size_t>(shape.accumulate));
    for (Batch &batch : into)
      data->next(batch);
  };
  if (nextBatches.empty())
    read(nextBatches);
  batches.swap(nextBatches);
  nextBatches.clear();
  position = data->position();
  if (!arguments.tablesInFile || done + 1 >= arguments.steps)
    return;
  read(nextBatches);
  trainer->announce(nextBatches);
}

void TrainingRun::takeStep() {
  takeBatches();
  const double rate = schedule->at(done + 1);
  const Stopwatch stopwatch;
  StepResult result;
  try {
    result = trainer->update(batches, rate, tableSchedule->at(done + 1));
  } catch (const Error &error) {
    endLine();
    fail("step {}: {}{}", done + 1, error.what(),
         savedStep < 0
             ? ""
             : fmt::format("; the checkpoint of step {} is kept", savedStep));
  }
  ++done;
  if (result.labels == 0) {
    ++skipped;
    endLine();
    printNote(fmt::format("step {}: no place of the batch has a label; loss 0, "
                          "step skipped",
                          done));
  }
  labels += result.labels;
  lastLoss = result.loss();
  lastDivergence = result.perLabel(result.divergence);
  recordStep(result, rate, stopwatch.seconds());
}

void TrainingRun::recordStep(const StepResult &result, double rate,
                             double seconds) {
  stepSeconds += seconds;
  stepTokens += shape.tokens();
  const double speed = static_cast<double>(shape.tokens()) / seconds;
  Json line = {{"step", done},
               {"loss", result.loss()},
               {"labels", result.labels},
               {"lr", rate},
               {"gradient_norm", result.norm},
               {"rows_touched", result.rowsTouched},
               {"seconds", seconds},
               {"tokens_per_second", speed},
               {"row_wait_seconds", result.seconds.files},
               {"resident_bytes", memoryStatus().resident}};
  if (teacher) {
    line["nll"] = result.perLabel(result.nll);
    line["kl"] = lastDivergence;
  }
  if (result.labels == 0)
    line["skipped"] = true;
  metrics->add(line);
  printStep(line, speed);
}

/// On a terminal one line that changes, elsewhere a line every few seconds.
void TrainingRun::printStep(const Json &line, double tokensPerSecond) {
  const bool isTerminal = isatty(STDERR_FILENO);
  const double now = watch.seconds();
  if (done != arguments.steps && now - lastPrinted < (isTerminal ? 0.2 : 5.0))
    return;
  lastPrinted = now;
  std::string losses = fmt::format("loss {:.4f}", lastLoss);
  if (teacher)
    losses += fmt::format(" (nll {:.4f}, kl {:.4f})", line["nll"].get<double>(),
                          lastDivergence);
  printStderr("{}step {}/{}  {}  lr {:.3g}  {:.0f} tokens/s  rows {}  {}{}",
              isTerminal ? "\r\033[K" : "", done, arguments.steps, losses,
              line["lr"].get<double>(), tokensPerSecond,
              line["rows_touched"].get<int64_t>(),
              formatBytes(line["resident_bytes"].get<double>()),
              isTerminal ? "" : "\n");
  isLineOpen = isTerminal;
}

/// Before something else is said.
void TrainingRun::endLine() {
  if (isLineOpen)
    printStderr("\n");
  isLineOpen = false;
}

void TrainingRun::validate() {
  double nll = 0, divergence = 0;
  int64_t count = 0;
  Batch batch;
  const int64_t most =
      std::min(arguments.evalBatches, data->validationBatches());
  for (int64_t i = 0; i < most; ++i) {
    data->readValidation(i, batch);
    nll += trainer->evaluate(batch);
    divergence += step->divergence();
    count += batch.labelCount;
  }
  if (count == 0)
    return;
  validationLoss = nll / static_cast<double>(count);
  Json line = {
      {"step", done},
      {"validation_loss", finiteOrNull(*validationLoss)},
      {"validation_perplexity", finiteOrNull(std::exp(*validationLoss))},
      {"validation_labels", count}};
  if (teacher) {
    validationDivergence = divergence / static_cast<double>(count);
    line["validation_kl"] = finiteOrNull(*validationDivergence);
  }
  metrics->add(line);
  endLine();
  printStderr("step {}: validation loss {:.4f}, perplexity {:.4f}{}\n", done,
              *validationLoss, std::exp(*validationLoss),
              teacher ? fmt::format(", kl {:.4f}", *validationDivergence) : "");
}

void TrainingRun::save() {
  if (savedStep == done)
    return;
  try {
    trainer->settle();
    trainer->requireFinite();
  } catch (const Error &error) {
    endLine();
    fail("after step {}: {}{}", done, error.what(),
         savedStep < 0
             ? ""
             : fmt::format("; the checkpoint of step {} is kept", savedStep));
  }
  if (arguments.keep == 0)
    return;
  RunState state;
  state.step = done;
  state.position = position;
  state.labels = labels;
  state.skipped = skipped;
  state.loss = lastLoss;
  state.seconds = seconds();
  state.options = options();
  folder.checkpoints().save(done, trainer->state(), state.text());
  savedStep = done;
}

//===----------------------------------------------------------------------===//
// After them
//===----------------------------------------------------------------------===//

Json TrainingRun::provenance() const {
  Json json = {{"command", "train"},
               {"source", fs::absolute(arguments.source()).string()},
               {"steps", done},
               {"tokens", done * shape.tokens()}};
  if (teacher)
    json["teacher"] = fs::absolute(arguments.teacher).string();
  if (!arguments.rows.empty())
    for (const fs::path &file : arguments.rows)
      json["rows"].push_back(fs::absolute(file).string());
  if (arguments.residualBudget > 0)
    json["recompute_budget"] = arguments.residualBudget;
  json["options"] = options();
  return json;
}

Json TrainingRun::result() const {
  const EngineReport &engine = step->report();
  Json json = resultObject("train");
  json.update({{"model", arguments.source().string()},
               {"out", folder.out().string()},
               {"steps", done},
               {"skipped_steps", skipped},
               {"tokens", done * shape.tokens()},
               {"labels", labels},
               {"loss", lastLoss}});
  if (teacher)
    json.update(
        {{"teacher", arguments.teacher.string()}, {"kl", lastDivergence}});
  if (!rowIds.empty())
    json["rows"] = {{"file", (folder.out() / "rows.safetensors").string()},
                    {"ids", rowIds.size()},
                    {"present", rowsPresent}};
  if (finalLoss)
    json["final_loss"] = finiteOrNull(*finalLoss);
  if (validationLoss) {
    json["validation_loss"] = finiteOrNull(*validationLoss);
    json["validation_perplexity"] = finiteOrNull(std::exp(*validationLoss));
  }
  if (validationDivergence)
    json["validation_kl"] = finiteOrNull(*validationDivergence);
  json.update(
      {{"tokens_per_second",
        stepSeconds > 0 ? Json(static_cast<double>(stepTokens) / stepSeconds)
                        : Json()},
       {"seconds", seconds()},
       {"dtype", dtypeConfigName(engine.dtype)},
       {"isa", engine.isa},
       {"threads", engine.threads},
       {"compile_seconds", engine.compileSeconds},
       {"plan", plan->json()},
       {"recompute_budget",
        arguments.residualBudget > 0 ? Json(arguments.residualBudget) : Json()},
       {"tables", arguments.tablesInFile ? "file" : "resident"},
       {"options", options()},
       {"metrics", (folder.training() / "metrics.jsonl").string()},
       {"report", (folder.training() / "report.html").string()},
       {"peak_bytes", memoryStatus().peakResident}});
  return json;
}

/// What the steps make smaller, per label.
double TrainingRun::evaluateGiven(const Batch &batch) {
  StepResult result;
  result.nll = trainer->evaluate(batch);
  result.divergence = step->divergence();
  result.teacherWeight = step->teacherWeight();
  result.labels = batch.labelCount;
  return result.loss();
}

void TrainingRun::finish() {
  if (!arguments.data.batchIds.empty()) {
    Batch batch;
    data->next(batch);
    if (!batch.ignoresAll())
      finalLoss = evaluateGiven(batch);
  }
  trained->write(*trainer, provenance());
  const Json json = result();
  replaceFile(folder.training() / "report.html",
              trainingReport(json, *metrics));
  if (arguments.json)
    return printJson(json);
  fmt::print("{}: {} steps, {} tokens, loss {:.4f}{}, in {}\n",
             folder.out().string(), done, done * shape.tokens(), lastLoss,
             validationLoss ? fmt::format(", validation perplexity {:.4f}",
                                          std::exp(*validationLoss))
                            : "",
             formatSeconds(seconds()));
}

void TrainingRun::run() {
  chooseShape();
  openRows();
  openTeacher();
  if (!data && isDataAtHand())
    openData(createContext(arguments.compile.threads).get());
  makeStep();
  if (!data)
    openData(step->context());
  fitData();
  checkPresence();
  fingerprint = arguments.isRandom()
                    ? randomModelFingerprint(checkpoint, arguments.data.seed)
                    : modelFingerprint(checkpoint);
  if (teacher)
    teacherFingerprint = modelFingerprint(*teacher);
  makeSchedule();
  plan->requireDisk(folder.training());
  step->load();
  trainer = std::make_unique<Trainer>(checkpoint, *step, arguments.trainer);
  if (rowIds.empty())
    trained = std::make_unique<TrainedFolder>(checkpoint, folder.out(),
                                              folder.training());
  else
    trained = std::make_unique<TrainedRows>(checkpoint, rowIds, rowBase,
                                            folder.out());
  resume();
  position = data->position();
  requireSpace();
  folder.keepIt();
  metrics = std::make_unique<TrainingMetrics>(
      folder.training() / "metrics.jsonl", done);
  {
    const StopOnSignal stop;
    train(stop);
  }
  endLine();
  if (done == 0)
    save(); // --steps=0
  finish();
}

void stem::trainModel(TrainArguments arguments) {
  TrainingRun(std::move(arguments)).run();
}
