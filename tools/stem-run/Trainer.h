//===- Trainer.h - Optimizers around a training step ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAINER_H
#define STEM_TOOLS_STEM_RUN_TRAINER_H

#include "TrainingStep.h"

#include "stem/Training/CheckpointStore.h"
#include "stem/Training/GradientNorm.h"
#include "stem/Training/RowGradients.h"

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace stem {

struct TrainerOptions {
  AdamWOptions dense;       ///< the decay is that of matrices
  RowOptimizerOptions rows; ///< `stream` is set for each table
  double clip = 0;          ///< global norm; 0: not clipped
  int64_t accumulate = 1;   ///< micro-batches of a step
  /// Where the moments of rows lie, in files; empty: in memory.
  std::filesystem::path rowFolder;
};

/// For the step, where it can update dense parameters as well as its caller: of
/// a single batch, and without a norm to clip to, for which all gradients would
/// be kept.
std::optional<StepOptimizer> stepOptimizer(const TrainerOptions &options);

/// Bytes beside those of the step (StepMemory).
struct TrainerMemory {
  int64_t masters = 0;
  int64_t moments = 0;  ///< of dense parameters
  int64_t rowState = 0; ///< moments and last steps of rows
  int64_t rowStateInFiles = 0;
  int64_t gradients = 0; ///< sums over micro-batches
  int64_t rowsAside = 0; ///< mode exact: those of a batch, while it validates
};

TrainerMemory trainerMemory(const TrainingStep &step,
                            const TrainerOptions &options, int64_t tokens);

/// Where the time of a step went; the rest is the norm of the gradient.
struct StepSeconds {
  /// Forward and backward, sums over micro-batches, and AdamW on dense weights
  /// where the step updates them.
  double compute = 0;
  /// AdamW where the step does not, and the weights in the form that is
  /// executed.
  double dense = 0;
  double rows = 0;  ///< row optimizers, and rows that are caught up
  double files = 0; ///< waiting for rows that lie in files
};

/// What an optimizer step did.
struct StepResult {
  double nll = 0;        ///< summed over the labels, before the update
  double divergence = 0; ///< from the teacher, likewise
  double teacherWeight = 0;
  int64_t labels = 0;      ///< 0: nothing was updated
  double norm = 0;         ///< of the gradient, before clipping
  int64_t rowsTouched = 0; ///< in all tables together
  StepSeconds seconds;

  double perLabel(double sum) const {
    return labels ? sum / double(labels) : 0;
  }
  /// What the step makes smaller.
  double loss() const {
    return perLabel((1 - teacherWeight) * nll + teacherWeight * divergence);
  }
};

/// Weights in f32, what moves them, and the rows of tables, which move in
/// place.
class Trainer {
public:
  /// The step is loaded; it and the checkpoint outlive the object. Reads the
  /// weights of the checkpoint.
  Trainer(const Checkpoint &checkpoint, TrainingStep &step,
          const TrainerOptions &options);
  ~Trainer();

  /// One optimizer step on the mean loss of all labels. Throws when the loss or
  /// a gradient is no finite number, naming the first bad tensor. Then nothing
  /// has changed, unless the step updates parameters: those whose gradients
  /// were complete before the bad one have moved, and nothing should be done
  /// with the object.
  StepResult update(std::span<const Batch> batches, double learningRate,
                    double tableLearningRate);

  /// What the update after the next one takes: rows in files are read ahead.
  void announce(std::span<const Batch> batches);

  /// The sum of the losses with rows as they are caught up. Changes nothing.
  double evaluate(const Batch &batch);

  /// What a checkpoint holds: the state of all optimizers, as files. The views
  /// are of live memory.
  std::vector<CheckpointFile> state() const;
  /// Takes it back; on an Error nothing should be done with the object.
  void restore(std::span<const TensorView> tensors);

  /// Throws when a file of rows did not take what the steps have changed.
  void settle() const;

  /// Throws when a weight or a moment is NaN or infinite: such a state must
  /// not replace a good one.
  void requireFinite() const;

  /// \name For the exported model
  /// @{
  bool isTrained(const std::string &key) const;
  /// Values of a dense parameter.
  std::span<const float> values(const std::string &key) const;
  /// Caught-up rows of a table in f32.
  void readRows(const std::string &key, int64_t first, int64_t count,
                std::span<float> out) const;
  /// @}

private:
  struct Dense;
  struct Rows;
  struct FilePages;

  void accumulate(std::span<const Batch> batches, float scale,
                  StepResult &result);
  std::vector<NamedGradient> namedGradients() const;
  void bindStates();
  void prepareUpdate(double learningRate);
  double normOfGradients() const;
  double normOfUpdate() const;
  [[noreturn]] void failNotFinite(const std::string &fault) const;
  std::string firstBadWeight() const;
  void applyDense(double learningRate, double scale);
  void applyRows(double learningRate, double scale);

  TrainingStep &step;
  TrainerOptions options;
  std::vector<std::unique_ptr<Dense>> dense;
  std::vector<std::unique_ptr<Rows>> tables;
  std::unique_ptr<FilePages> files; ///< null: no rows lie in files
  std::vector<int32_t> announced;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAINER_H
