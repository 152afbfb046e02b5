//===- CompiledStep.h - A training step in compiled code --------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_COMPILEDSTEP_H
#define STEM_TOOLS_STEM_RUN_COMPILEDSTEP_H

#include "EngineWeights.h"
#include "EntryRunner.h"
#include "ScratchCaches.h"
#include "TiledBatch.h"
#include "TrainingStep.h"
#include "TrainingTeacher.h"

namespace stem {

/// What a user is told of a --recompute-budget where a batch of `tokens` keeps
/// `bytes` at least.
std::string budgetWarning(int64_t budget, int64_t tokens, int64_t bytes);

/// The entries `loss` and `loss_vjp` of a model (see buildModelGraph and
/// stem-autodiff), what they read and where they write.
class CompiledStep : public TrainingStep {
public:
  CompiledStep(const Checkpoint &checkpoint,
               const TrainingStepOptions &options);

  const std::vector<Parameter> &parameters() const override {
    return parameterList;
  }
  const std::vector<Table> &tables() const override { return tableList; }
  const EngineReport &report() const override { return runner.report; }
  StepMemory memory(const BatchBound &bound) const override;
  int64_t tokenTile() const override { return stepEntry->token_tile; }
  stem_context *context() const override { return runner.context.get(); }

  void load() override;
  void setParameter(size_t parameter, std::span<const float> values) override;
  RowTable table(size_t table) override;
  std::vector<FileRows> tablesInFile() const override {
    return weights->rowsInFile();
  }
  std::vector<int32_t> rowsOf(std::span<const int32_t> ids) const override;
  std::span<const int32_t> trainedRows() const override { return chosen; }
  double run(const Batch &batch, float scale) override;
  double evaluate(const Batch &batch) override;
  double teacherWeight() const override { return weightOfTeacher; }
  double divergence() const override { return divergenceSum; }
  bool updatesParameters() const override { return !states.empty(); }
  void bindState(size_t parameter, const ParameterState &state) override;
  void setScalars(const AdamWScalars &scalars) override;
  std::span<const float> gradientNorms() const override { return norms; }
  std::span<const float> gradient(size_t parameter) const override;
  Rows tableGradient(size_t table) const override;

private:
  void compile(const TrainingStepOptions &options);
  void listGradients();
  int32_t rowOf(int32_t id) const;
  int64_t mostGradientRows(int64_t rows) const;
  void takeChosenRows();
  void putChosenRows();
  void findRows(const TiledBatch &batch);
  double call(const stem_entry &entry, const Batch &batch, float scale);
  stem_tensor input(const stem_argument &argument, const std::string &name,
                    const TiledBatch &batch);
  stem_tensor output(const stem_entry &entry, const stem_argument &argument);
  stem_tensor report(const std::string &name);
  void setCotangents(const TiledBatch &batch, float scale);

  const Checkpoint &checkpoint;
  EntryRunner runner;
  const stem_entry *lossEntry = nullptr, *stepEntry = nullptr;
  std::unique_ptr<EngineWeights> weights;
  StorePtr store;
  /// Of the largest batch, in tiles where each row is one sequence: the rows
  /// of a table's gradient are no more.
  int64_t tokens;

  std::vector<Parameter> parameterList;
  std::vector<Table> tableList;
  /// Of each trained table its number in the store.
  std::vector<size_t> tableNumbers;
  /// Ids of the rows that are trained, rising; empty: all. Of these the tables
  /// have what chosenRows had before the step: rows of their own, so that
  /// optimizers and checkpoints hold nothing of the others.
  std::vector<int32_t> chosen;
  std::vector<Arena> chosenRows;
  std::vector<int64_t> gradientOffsets, rowOffsets; ///< in floats
  int64_t gradientFloats = 0;
  Arena gradients;

  /// Of each parameter that the step updates the weight and its moments.
  std::vector<float *> states;
  std::vector<float> scalars, norms;

  ScratchCaches scratch;

  const Checkpoint *teacherModel;
  std::unique_ptr<TrainingTeacher> teacher; ///< null without one
  double weightOfTeacher;
  stem_tensor teacherStates = {}; ///< of the batch

  /// Of the last batch: the rows that get a gradient, and each token's among
  /// them. Tokens whose rows are not trained share one more, the last.
  std::vector<int32_t> rowIds, rowIndex;
  int64_t gradientRows = 0;
  std::vector<float> losses, cotangents;
  std::vector<float> divergences, divergenceCotangents; ///< from the teacher
  double divergenceSum = 0;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_COMPILEDSTEP_H
