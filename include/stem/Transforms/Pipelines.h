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

struct HostPipelineOptions : mlir::PassPipelineOptions<HostPipelineOptions> {
  Option<std::string> weightsFile{
      *this, "stem-file",
      llvm::cl::desc("The safetensors file into which import moves weights; "
                     "without it they must be symbols already")};
  Option<int64_t> minElements{
      *this, "stem-min-elements",
      llvm::cl::desc("Constants with fewer elements stay in the IR"),
      llvm::cl::init(kDefaultMinElements)};
  Option<int64_t> ffnBlock{
      *this, "stem-ffn-block",
      llvm::cl::desc("Largest number of d_ff columns of one FFN block"),
      llvm::cl::init(kDefaultFFNBlock)};
  Option<int32_t> isa{*this, "stem-isa",
                      llvm::cl::desc("stem_isa that the compiled code needs"),
                      llvm::cl::init(0)};
  Option<bool> nativeBf16{
      *this, "stem-native-bf16",
      llvm::cl::desc("The target converts f32 to bf16 in hardware"),
      llvm::cl::init(false)};
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
  Option<int64_t> tokens{*this, "stem-tokens",
                         llvm::cl::desc("Tokens of a step, for the budget"),
                         llvm::cl::init(1)};
};

/// Within the graph phase: the step that gives a loss and its gradients, in
/// pieces that the later phases lower.
void buildTrainingPipeline(mlir::OpPassManager &manager,
                           const TrainingPipelineOptions &options);

/// \name One phase each, from the end of the one before
/// @{
void buildImportPipeline(mlir::OpPassManager &manager,
                         const HostPipelineOptions &options);
void buildGraphPipeline(mlir::OpPassManager &manager);
void buildSchedulePipeline(mlir::OpPassManager &manager);
void buildStructuredPipeline(mlir::OpPassManager &manager,
                             const HostPipelineOptions &options);
void buildBufferPipeline(mlir::OpPassManager &manager);
void buildTargetPipeline(mlir::OpPassManager &manager,
                         const HostPipelineOptions &options);
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
