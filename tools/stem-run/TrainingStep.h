//===- TrainingStep.h - Forward and backward of a batch ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAININGSTEP_H
#define STEM_TOOLS_STEM_RUN_TRAININGSTEP_H

#include "Engine.h"
#include "TiledBatch.h"

#include "stem/Data/Batch.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Runtime/RowPages.h"
#include "stem/Target/HostCompiler.h"
#include "stem/Training/RowOptimizer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// Which weights move: all, those of the layers that have a table (with it),
/// the tables alone, or some of their rows.
enum class TrainedPart { All, StemLayers, Tables, Rows };

std::string_view trainedPartName(TrainedPart part);

/// The checkpoint keys of these weights, without what has no gradient. Throws
/// when there are none.
std::set<std::string> trainedKeys(const Checkpoint &checkpoint,
                                  TrainedPart part);

/// Tokens that a compiled step pads sequences to. More than those of inference:
/// a tile reads the weights once, and there are enough tiles. A sequence's last
/// tile wastes more.
constexpr int64_t kTrainingTile = 128;

struct TrainingStepOptions {
  EngineOptions engine;
  TrainedPart train = TrainedPart::All;
  /// TrainedPart::Rows: of these ids, rising.
  std::vector<int32_t> trainedRows;
  /// Of the live rows, F32 or BF16; default: the table's own, F32 where that is
  /// neither.
  std::optional<DType> rowType;
  /// Where tables lie, in a file that goes with the process; empty: in memory.
  std::filesystem::path tableFolder;
  /// What to distil from; it outlives the step.
  const Checkpoint *teacher = nullptr;
  double teacherWeight = 1; ///< of the divergence; that of labels is the rest
  int64_t tokens = 0;       ///< places of the largest batch
  int64_t rows = 1;         ///< sequences of the largest batch
  /// Parameters are updated by the step itself, where there are any.
  std::optional<StepOptimizer> optimizer;
  /// Bytes that may be kept for the backward pass, as far as it can compute
  /// values again; 0: any.
  int64_t residualBudget = 0;
  /// Of how many tokens in tiles, padding too; 0: of `rows` sequences.
  int64_t residualTokens = 0;
};

/// What the live rows of a table are in.
DType liveRowType(const TensorInfo &table, std::optional<DType> wanted);

/// Bytes that a step takes, known before they are allocated.
struct StepMemory {
  int64_t weights = 0; ///< in the form that is executed
  int64_t tables = 0;  ///< the live rows in memory
  int64_t tablesInFile = 0;
  int64_t activations = 0; ///< the arena of a step
  int64_t gradients = 0;
  int64_t teacher = 0; ///< weights and activations; its head is in `weights`
};

/// Forward and backward of one batch or micro-batch, compiled.
class TrainingStep {
public:
  /// A dense weight that is trained, by its checkpoint key.
  struct Parameter {
    std::string key;
    std::vector<int64_t> shape;

    int64_t elements() const;
  };
  /// A table that is trained, or the rows of it that are, one after the other.
  struct Table {
    std::string key;
    int64_t rows, columns;
    DType dtype; ///< of the live rows
  };
  /// The gradient of a table: of these rows, each once and rising.
  struct Rows {
    std::span<const int32_t> ids;
    std::span<const float> rows;
  };

  virtual ~TrainingStep() = default;

  /// In the order of the forward pass.
  virtual const std::vector<Parameter> &parameters() const = 0;
  virtual const std::vector<Table> &tables() const = 0;
  virtual const EngineReport &report() const = 0;
  /// With batches within `bound`.
  virtual StepMemory memory(const BatchBound &bound) const = 0;
  /// Tokens that a batch's sequences are padded to.
  virtual int64_t tokenTile() const = 0;
  /// Whose threads compute; lives as long as the step.
  virtual stem_context *context() const = 0;

  /// Allocates, and reads from the checkpoint what is not trained and the rows
  /// of all tables. Before anything below.
  virtual void load() = 0;

  /// Puts new values of a parameter, row-major [N, K], in place of the executed
  /// weight: packed, rounded to bf16 where products are computed in it.
  virtual void setParameter(size_t parameter,
                            std::span<const float> values) = 0;
  /// The live rows, which a run reads and the optimizer changes in place.
  virtual RowTable table(size_t table) = 0;
  /// Rows of all tables, trained or not, by id: of those in a file.
  virtual std::vector<FileRows> tablesInFile() const { return {}; }
  /// Where the tables above have the rows of these ids, in their order; ids
  /// whose rows are not trained are left out.
  virtual std::vector<int32_t> rowsOf(std::span<const int32_t> ids) const {
    return {ids.begin(), ids.end()};
  }

  /// The ids whose rows the tables above are, rising; empty: of all.
  virtual std::span<const int32_t> trainedRows() const { return {}; }

  /// Forward and backward. Gives the sum of the losses of all labels; gradients
  /// are those of sum · scale and replace those of the run before.
  virtual double run(const Batch &batch, float scale) = 0;
  /// The sum of the losses alone; gradients stay.
  virtual double evaluate(const Batch &batch) = 0;

  /// With a teacher gradients are those of ((1 - w) sum + w divergence) · scale
  /// with w the teacher's weight, 0 without one.
  virtual double teacherWeight() const { return 0; }
  /// The sum of the divergences from the teacher at all labels of the last run
  /// or evaluation.
  virtual double divergence() const { return 0; }

  /// \name Parameters that a run updates
  /// @{
  /// Of one parameter, in memory that outlives the step's runs.
  struct ParameterState {
    float *weight, *first, *second;
  };
  /// A run moves all parameters, their executed form apart, and gives norms in
  /// place of their gradients.
  virtual bool updatesParameters() const { return false; }
  virtual void bindState(size_t parameter, const ParameterState &state);
  /// What the next runs multiply by.
  virtual void setScalars(const AdamWScalars &scalars);
  /// Of the last run, parameters first and then tables. Once one is NaN or
  /// infinite no further parameter was moved.
  virtual std::span<const float> gradientNorms() const { return {}; }
  /// @}

  /// Of a step that does not update parameters.
  virtual std::span<const float> gradient(size_t parameter) const = 0;
  virtual Rows tableGradient(size_t table) const = 0;
};

/// Chooses types and knows its memory; nothing large is allocated before
/// load().
std::unique_ptr<TrainingStep>
makeTrainingStep(const Checkpoint &checkpoint,
                 const TrainingStepOptions &options);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAININGSTEP_H
