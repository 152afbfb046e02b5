//===- InterpretedStep.h - The reference of a training step -----*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_ENGINE_INTERPRETEDSTEP_H
#define STEM_TEST_UNIT_ENGINE_INTERPRETEDSTEP_H

#include "TrainingStep.h"

namespace stem {

/// A step by the interpreter, in double precision.
std::unique_ptr<TrainingStep>
makeInterpretedStep(const Checkpoint &checkpoint,
                    const TrainingStepOptions &options);

} // namespace stem

#endif // STEM_TEST_UNIT_ENGINE_INTERPRETEDSTEP_H
