//===- Passes.td - Passes of Stem --------------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRANSFORMS_PASSES_TD
#define STEM_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

include "stem/Transforms/ImportPasses.td"
include "stem/Transforms/GraphPasses.td"
include "stem/Transforms/TrainingPasses.td"
include "stem/Transforms/SchedulePasses.td"
include "stem/Transforms/StructuredPasses.td"
include "stem/Transforms/BufferPasses.td"
include "stem/Transforms/TargetPasses.td"
include "stem/Transforms/ReferencePasses.td"
include "stem/Transforms/VectorizePasses.td"

#endif // STEM_TRANSFORMS_PASSES_TD
