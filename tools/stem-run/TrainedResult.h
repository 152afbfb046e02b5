//===- TrainedResult.h - What a training run leaves -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAINEDRESULT_H
#define STEM_TOOLS_STEM_RUN_TRAINEDRESULT_H

#include "Json.h"
#include "Trainer.h"

#include <cstdint>

namespace stem {

/// At the top of the run's folder, when the run is over.
class TrainedResult {
public:
  virtual ~TrainedResult() = default;

  /// As messages call it.
  virtual const char *name() const = 0;
  virtual uint64_t bytesNeeded() const = 0;
  /// In the types of the model that the run began with, rounded to nearest.
  virtual void write(const Trainer &trainer, const Json &provenance) = 0;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAINEDRESULT_H
