//===- TrainingRun.h - The steps of a training run --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAININGRUN_H
#define STEM_TOOLS_STEM_RUN_TRAININGRUN_H

#include "Progress.h"
#include "RunFolder.h"
#include "Train.h"
#include "TrainedResult.h"
#include "TrainingMetrics.h"
#include "TrainingPlan.h"
#include "stem/Support/Process.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stem {

/// One run, from the command line to the exported model.
class TrainingRun {
public:
  explicit TrainingRun(TrainArguments arguments);
  void run();

private:
  // Before the first step.
  void chooseShape();
  void openRows();
  void openTeacher();
  int64_t residualTokens();
  void makeStep();
  void compileStep();
  void keepTablesInFile();
  TrainingPlan planFor(const BatchBound &bound) const;
  void makePlan(const BatchBound &bound);
  std::string memoryAdvice() const;
  void noteTables() const;
  void openData(stem_context *context);
  bool isDataAtHand() const;
  void fitData();
  void checkPresence();
  void makeSchedule();
  void resume();
  void requireSpace() const;

  // The steps.
  void train(const StopOnSignal &stop);
  void takeBatches();
  void takeStep();
  void recordStep(const StepResult &result, double rate, double seconds);
  void printStep(const Json &line, double tokensPerSecond);
  void endLine();
  void validate();
  void save();

  // After them.
  void finish();
  Json result() const;
  Json provenance() const;
  double evaluateGiven(const Batch &batch);

  /// What changes the bits of a run, by the name of its option.
  Json options() const;
  /// Where the tokens come from whose rows are trained, for messages.
  std::string rowsName() const;
  bool isEvaluationDue(int64_t step) const;
  double seconds() const { return secondsBefore + watch.seconds(); }

  TrainArguments arguments;
  RunFolder folder;
  Checkpoint checkpoint;
  std::string fingerprint; ///< of the model
  std::optional<Checkpoint> teacher;
  std::string teacherFingerprint;
  StepShape shape;
  std::unique_ptr<TrainingStep> step;
  std::optional<TrainingPlan> plan;
  std::unique_ptr<TrainingData> data;
  std::optional<Schedule> schedule, tableSchedule;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<TrainingMetrics> metrics;
  std::unique_ptr<TrainedResult> trained;
  std::vector<int32_t> rowIds; ///< --train=rows: of these, rising
  RowBase rowBase;
  int64_t rowsPresent = 0; ///< of them in the data

  std::vector<Batch> batches, nextBatches;
  DataPosition position; ///< behind `batches`
  int64_t done = 0;      ///< steps of the run
  int64_t savedStep = -1;
  int64_t skipped = 0; ///< steps without a label
  int64_t labels = 0;
  double lastLoss = 0;
  double lastDivergence = 0;       ///< from the teacher, per label
  std::optional<double> finalLoss; ///< of --batch-ids, after the last step
  std::optional<double> validationLoss, validationDivergence;
  double stepSeconds = 0; ///< of the steps of this process, without the rest
  int64_t stepTokens = 0;
  double secondsBefore = 0; ///< of the processes before
  Stopwatch watch;
  double lastPrinted = -1e9;
  bool isLineOpen = false; ///< of a terminal
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAININGRUN_H
