//===- Pipelines.h - The phases of a compilation --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_PIPELINES_H
#define STEM_TRANSFORMS_PIPELINES_H

#include "stem/Transforms/Defaults.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

#include <optional>

namespace stem {

/// Phases in order. What does not belong into one is reported at its end.
enum class Phase { Import, Graph, Schedule, Structured, Buffers, Target };

/// "import", "graph", "schedule", "structured", "buffers" or "target".
llvm::StringRef phaseName(Phase phase);
std::optional<Phase> parsePhase(llvm::StringRef name);

/// \name What a phase can be told
/// Options of one or several pipelines: `owner` is that whose options they are.
/// @{
struct ImportOptions {
  explicit ImportOptions(mlir::detail::PassOptions &owner)
      : weightsFile(
            owner, "stem-file",
            llvm::cl::desc("The safetensors file into which import moves "
                           "weights; without it they must be symbols "
                           "already")),
        minElements(
            owner, "stem-min-elements",
            llvm::cl::desc("Constants with fewer elements stay in the IR"),
            llvm::cl::init(kDefaultMinElements)) {}

  mlir::detail::PassOptions::Option<std::string> weightsFile;
  mlir::detail::PassOptions::Option<int64_t> minElements;
};

struct ScheduleOptions {
  explicit ScheduleOptions(mlir::detail::PassOptions &owner)
      : distance(owner, "stem-distance",
                 llvm::cl::desc("How many tables ahead rows are asked for, or "
                                "auto, see stem-insert-prefetch"),
                 llvm::cl::init("auto")),
        staging(owner, "stem-staging",
                llvm::cl::desc("Bytes for these rows; 0: any"),
                llvm::cl::init(0)),
        tokens(owner, "stem-tokens",
               llvm::cl::desc("Different ids of a step, for the staging"),
               llvm::cl::init(1)) {}

  mlir::detail::PassOptions::Option<std::string> distance;
  mlir::detail::PassOptions::Option<int64_t> staging;
  mlir::detail::PassOptions::Option<int64_t> tokens;
};

struct StructuredOptions {
  explicit StructuredOptions(mlir::detail::PassOptions &owner)
      : ffnBlock(
            owner, "stem-ffn-block",
            llvm::cl::desc("Largest number of d_ff columns of one FFN block"),
            llvm::cl::init(kDefaultFFNBlock)),
        vocabularyBlock(
            owner, "stem-vocabulary-block",
            llvm::cl::desc("Largest number of vocabulary columns of one block "
                           "of a loss"),
            llvm::cl::init(kDefaultVocabularyBlock)) {}

  mlir::detail::PassOptions::Option<int64_t> ffnBlock;
  mlir::detail::PassOptions::Option<int64_t> vocabularyBlock;
};

struct TargetOptions {
  explicit TargetOptions(mlir::detail::PassOptions &owner)
      : isa(owner, "stem-isa",
            llvm::cl::desc("stem_isa that the compiled code needs"),
            llvm::cl::init(0)),
        nativeBf16(
            owner, "stem-native-bf16",
            llvm::cl::desc("The target converts f32 to bf16 in hardware"),
            llvm::cl::init(false)) {}

  mlir::detail::PassOptions::Option<int32_t> isa;
  mlir::detail::PassOptions::Option<bool> nativeBf16;
};
/// @}

/// The pipeline of one phase has the options of that phase. The cast names the
/// owner; without it a copy of the options is meant.
template <typename Options>
struct PhasePipelineOptions
    : mlir::PassPipelineOptions<PhasePipelineOptions<Options>>,
      Options {
  PhasePipelineOptions()
      : Options(static_cast<mlir::detail::PassOptions &>(*this)) {}
};

struct HostPipelineOptions : mlir::PassPipelineOptions<HostPipelineOptions>,
                             ImportOptions,
                             ScheduleOptions,
                             StructuredOptions,
                             TargetOptions {
  HostPipelineOptions()
      : ImportOptions(static_cast<mlir::detail::PassOptions &>(*this)),
        ScheduleOptions(static_cast<mlir::detail::PassOptions &>(*this)),
        StructuredOptions(static_cast<mlir::detail::PassOptions &>(*this)),
        TargetOptions(static_cast<mlir::detail::PassOptions &>(*this)) {}
};

struct TrainingPipelineOptions
    : mlir::PassPipelineOptions<TrainingPipelineOptions> {
  Option<std::string> function{*this, "stem-function",
                               llvm::cl::desc("The loss to derive"),
                               llvm::cl::init("loss")};
  Option<int64_t> residualBudget{
      *this, "stem-budget",
      llvm::cl::desc("Bytes that residuals of a step may take; 0: any"),
      llvm::cl::init(0)};
  /// Of createStemRecomputePass; no option of a command line.
  std::function<void(int64_t)> onExcess;
  Option<int64_t> tokens{*this, "stem-tokens",
                         llvm::cl::desc("Tokens of a step, for the budget"),
                         llvm::cl::init(1)};
  Option<bool> optimizer{
      *this, "stem-optimizer",
      llvm::cl::desc("Update dense parameters in the step, by AdamW, instead "
                     "of giving their gradients"),
      llvm::cl::init(false)};
  Option<double> beta1{*this, "stem-beta1",
                       llvm::cl::desc("Of stem-insert-optimizer"),
                       llvm::cl::init(kDefaultBeta1)};
  Option<double> beta2{*this, "stem-beta2",
                       llvm::cl::desc("Of stem-insert-optimizer"),
                       llvm::cl::init(kDefaultBeta2)};
  Option<double> epsilon{*this, "stem-epsilon",
                         llvm::cl::desc("Of stem-insert-optimizer"),
                         llvm::cl::init(kDefaultEpsilon)};
};

/// Within the graph phase: the step that gives a loss and its gradients, in
/// pieces that the later phases lower.
void buildTrainingPipeline(mlir::OpPassManager &manager,
                           const TrainingPipelineOptions &options);

/// \name One phase each, from the end of the one before
/// @{
void buildImportPipeline(mlir::OpPassManager &manager,
                         const ImportOptions &options);
void buildGraphPipeline(mlir::OpPassManager &manager);
void buildSchedulePipeline(mlir::OpPassManager &manager,
                           const ScheduleOptions &options);
void buildStructuredPipeline(mlir::OpPassManager &manager,
                             const StructuredOptions &options);
void buildBufferPipeline(mlir::OpPassManager &manager);
void buildTargetPipeline(mlir::OpPassManager &manager,
                         const TargetOptions &options);
/// @}

/// From what an exporter writes, or a module in the graph phase, to the end of
/// `last`.
void buildHostPipeline(mlir::OpPassManager &manager,
                       const HostPipelineOptions &options,
                       Phase last = Phase::Target);

/// Registers stem-import-pipeline, ..., and stem-host-pipeline for all of them.
void registerStemPipelines();

} // namespace stem

#endif // STEM_TRANSFORMS_PIPELINES_H
