//===- State.h - Optimizer state as tensors ---------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRAINING_STATE_H
#define STEM_LIB_TRAINING_STATE_H

#include "stem/Model/Safetensors.h"

#include <span>
#include <string>
#include <vector>

namespace stem {

/// A view of `data`, whose length follows from type and shape.
TensorView stateTensor(std::string name, DType dtype,
                       std::vector<uint64_t> shape, const void *data);

/// The tensor named as `wanted`, of its type and shape; an Error that says what
/// was found instead.
const TensorView &findState(std::span<const TensorView> tensors,
                            const TensorView &wanted);

/// The step count of NAME.steps.
int64_t restoredSteps(std::span<const TensorView> tensors,
                      const std::string &name);

} // namespace stem

#endif // STEM_LIB_TRAINING_STATE_H
