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
#include "TiledBatch.h"
#include "TrainingStep.h"

namespace stem {

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
  StepMemory memory() const override;
  stem_context *context() const override { return runner.context.get(); }

  void load() override;
  void setParameter(size_t parameter, std::span<const float> values) override;
  RowTable table(size_t table) override;
  double run(const Batch &batch, float scale) override;
  double evaluate(const Batch &batch) override;
  std::span<const float> gradient(size_t parameter) const override;
  Rows tableGradient(size_t table) const override;

private:
  struct StoreDeleter {
    void operator()(stem_table_store *store) const {
      stem_table_store_destroy(store);
    }
  };

  void compile(const TrainingStepOptions &options);
  void listGradients();
  void prepareScratch(const TiledBatch &batch);
  void makeScratch(int64_t sequences, int64_t positions);
  stem_kv_options scratchOptions(const stem_argument &argument) const;
  void findRows(const TiledBatch &batch);
  double call(const stem_entry &entry, const Batch &batch, float scale);
  stem_tensor input(const stem_argument &argument, const std::string &name,
                    TiledBatch &batch);
  stem_tensor output(const stem_entry &entry, const stem_argument &argument);

  const Checkpoint &checkpoint;
  EntryRunner runner;
  const stem_entry *lossEntry = nullptr, *stepEntry = nullptr;
  std::unique_ptr<EngineWeights> weights;
  std::unique_ptr<stem_table_store, StoreDeleter> store;
  int64_t tokens; ///< of the largest batch, in tiles

  std::vector<Parameter> parameterList;
  std::vector<Table> tableList;
  /// Of each trained table its number in the store.
  std::vector<size_t> tableNumbers;
  std::vector<int64_t> gradientOffsets, rowOffsets; ///< in floats
  int64_t gradientFloats = 0;
  Arena gradients;

  /// Caches that attention works in, by name, for so many sequences of so many
  /// positions.
  std::map<std::string, std::unique_ptr<stem_kv_cache, CacheDeleter>> scratch;
  int64_t scratchSequences = 0, scratchPositions = 0;

  std::vector<int32_t> rowIds, rowIndex; ///< of the last batch
  std::vector<float> losses, cotangents;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_COMPILEDSTEP_H
