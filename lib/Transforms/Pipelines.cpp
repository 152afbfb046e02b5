//===- Pipelines.cpp - The phases of a compilation ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Transforms/Pipelines.h"

#include "stem/Transforms/Passes.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace stem;

static constexpr std::pair<Phase, llvm::StringLiteral> kPhaseNames[] = {
    {Phase::Import, "import"},     {Phase::Graph, "graph"},
    {Phase::Schedule, "schedule"}, {Phase::Structured, "structured"},
    {Phase::Buffers, "buffers"},   {Phase::Target, "target"}};

StringRef stem::phaseName(Phase phase) {
  return kPhaseNames[static_cast<size_t>(phase)].second;
}

std::optional<Phase> stem::parsePhase(StringRef name) {
  for (auto &[phase, phaseName] : kPhaseNames)
    if (phaseName == name)
      return phase;
  return std::nullopt;
}

void stem::buildImportPipeline(OpPassManager &manager,
                               const ImportOptions &options) {
  if (!options.weightsFile.empty()) {
    StemExternalizeConstantsPassOptions externalize;
    externalize.file = options.weightsFile;
    externalize.minElements = options.minElements;
    manager.addPass(createStemExternalizeConstantsPass(externalize));
  }
  // After the constants are gone: equal ones may be weights of two layers.
  manager.addPass(createCSEPass());
  manager.addPass(createStemRaiseFFNPass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  StemVerifyImportPassOptions verify;
  verify.minElements = options.minElements;
  manager.addPass(createStemVerifyImportPass(verify));
}

void stem::buildGraphPipeline(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createStemVerifyGraphPass());
}

void stem::buildTrainingPipeline(OpPassManager &manager,
                                 const TrainingPipelineOptions &options) {
  StemAutodiffPassOptions autodiff;
  autodiff.function = options.function;
  manager.addPass(createStemAutodiffPass(autodiff));
  StemRecomputePassOptions recompute;
  recompute.budget = options.residualBudget;
  recompute.tokens = options.tokens;
  manager.addPass(createStemRecomputePass(recompute, options.onExcess));
  manager.addPass(createStemUnpairRowGradientsPass());
  manager.addNestedPass<func::FuncOp>(createStemDecomposeGradientsPass());
  // Cotangents that nothing reads, of what is frozen, take no weight backwards.
  manager.addPass(createCanonicalizerPass());
  // After the VJPs are apart: their products are what runs backwards.
  manager.addPass(createStemTransposeWeightsPass());
  // Once gradients have the ops that make them, and before these have places.
  if (options.optimizer) {
    StemInsertOptimizerPassOptions optimizer;
    optimizer.function = options.function + "_vjp";
    optimizer.beta1 = options.beta1;
    optimizer.beta2 = options.beta2;
    optimizer.epsilon = options.epsilon;
    manager.addPass(createStemInsertOptimizerPass(optimizer));
  }
  // What is computed twice, such as a rounded cotangent.
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

void stem::buildSchedulePipeline(OpPassManager &manager,
                                 const ScheduleOptions &options) {
  manager.addPass(createStemSpecializePass());
  manager.addPass(createStemResultsToArgumentsPass());
  manager.addNestedPass<func::FuncOp>(createStemFuseFFNPass());
  // After fusion and specialisation: both change who reads a weight.
  manager.addPass(createStemPackWeightsPass());
  manager.addPass(createStemBindParamsPass());
  // Tables are arguments, and no pass of this phase changes who reads rows.
  StemInsertPrefetchPassOptions prefetch;
  prefetch.distance = options.distance;
  prefetch.staging = options.staging;
  prefetch.tokens = options.tokens;
  manager.addPass(createStemInsertPrefetchPass(prefetch));
  manager.addPass(createStemVerifyTablesPass());
  manager.addPass(createStemVerifySchedulePass());
}

void stem::buildStructuredPipeline(OpPassManager &manager,
                                   const StructuredOptions &options) {
  manager.addPass(createStemScratchAttentionPass());
  // Before tiling: keys and values of all tiles are written before any reads.
  manager.addNestedPass<func::FuncOp>(createStemSplitAttentionPass());
  manager.addNestedPass<func::FuncOp>(createStemTileTokensPass());
  manager.addNestedPass<func::FuncOp>(createStemTileColumnsPass());
  StemToLinalgPassOptions toLinalg;
  toLinalg.ffnBlock = options.ffnBlock;
  toLinalg.vocabularyBlock = options.vocabularyBlock;
  manager.addNestedPass<func::FuncOp>(createStemToLinalgPass(toLinalg));
  manager.addNestedPass<func::FuncOp>(createConvertElementwiseToLinalgPass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createStemVerifyStructuredPass());
}

void stem::buildBufferPipeline(OpPassManager &manager) {
  // Function by function: over the whole module its analysis takes longer with
  // each call of a layer.
  manager.addNestedPass<func::FuncOp>(
      bufferization::createEmptyTensorEliminationPass());
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  bufferize.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  manager.addPass(bufferization::createOneShotBufferizePass(bufferize));
  // Results are built in arguments: nothing is returned afterwards. What a loop
  // carries is only then seen to be an argument when it is no longer carried.
  manager.addPass(createCanonicalizerPass());
  manager.addPass(bufferization::createDropEquivalentBufferResultsPass());
  // The second round removes copies of a buffer onto itself, which only CSE
  // makes visible.
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createCanonicalizerPass());
  manager.addNestedPass<func::FuncOp>(createStemVectorizePass());
  // After vectorisation, which may need no temporaries that it could plan.
  manager.addPass(createStemPlanMemoryPass());
  manager.addPass(createStemOutlineParallelPass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  // Tensors have become buffers: reads happen where they stand.
  manager.addPass(createStemVerifyTablesPass());
  manager.addPass(createStemVerifyBuffersPass());
}

void stem::buildTargetPipeline(OpPassManager &manager,
                               const TargetOptions &options) {
  StemExpandMathPassOptions expand;
  expand.nativeBf16 = options.nativeBf16;
  manager.addPass(createStemExpandMathPass(expand));
  StemLowerToHostPassOptions lower;
  lower.isa = options.isa;
  manager.addPass(createStemLowerToHostPass(lower));
}

void stem::buildHostPipeline(OpPassManager &manager,
                             const HostPipelineOptions &options, Phase last) {
  buildImportPipeline(manager, options);
  if (last >= Phase::Graph)
    buildGraphPipeline(manager);
  if (last >= Phase::Schedule)
    buildSchedulePipeline(manager, options);
  if (last >= Phase::Structured)
    buildStructuredPipeline(manager, options);
  if (last >= Phase::Buffers)
    buildBufferPipeline(manager);
  if (last >= Phase::Target)
    buildTargetPipeline(manager, options);
}

void stem::registerStemPipelines() {
  PassPipelineRegistration<PhasePipelineOptions<ImportOptions>>(
      "stem-import-pipeline",
      "From linalg or TOSA of exporters to the graph phase",
      buildImportPipeline);
  PassPipelineRegistration<>("stem-graph-pipeline",
                             "Clean up and verify the graph phase",
                             buildGraphPipeline);
  PassPipelineRegistration<TrainingPipelineOptions>(
      "stem-training-pipeline",
      "From a loss in the graph phase to the step that gives its gradients",
      buildTrainingPipeline);
  PassPipelineRegistration<PhasePipelineOptions<ScheduleOptions>>(
      "stem-schedule-pipeline", "From the graph phase to the schedule phase",
      buildSchedulePipeline);
  PassPipelineRegistration<PhasePipelineOptions<StructuredOptions>>(
      "stem-structured-pipeline",
      "From the schedule phase to linalg on tensors", buildStructuredPipeline);
  PassPipelineRegistration<>(
      "stem-buffer-pipeline",
      "From linalg on tensors to planned buffers and outlined loops",
      buildBufferPipeline);
  PassPipelineRegistration<PhasePipelineOptions<TargetOptions>>(
      "stem-target-pipeline", "From buffers to the LLVM dialect for the host",
      buildTargetPipeline);
  PassPipelineRegistration<HostPipelineOptions>(
      "stem-host-pipeline",
      "All phases, from exporters' IR or the graph phase to the LLVM dialect",
      [](OpPassManager &manager, const HostPipelineOptions &options) {
        buildHostPipeline(manager, options);
      });
}
