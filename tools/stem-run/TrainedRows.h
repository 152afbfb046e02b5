//===- TrainedRows.h - The rows that a run has trained ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAINEDROWS_H
#define STEM_TOOLS_STEM_RUN_TRAINEDROWS_H

#include "TensorCopy.h"
#include "TrainedResult.h"

#include <filesystem>
#include <vector>

namespace stem {

/// rows.safetensors: an overlay with the trained rows, and no model.
class TrainedRows : public TrainedResult {
public:
  /// `base` is that of the model without overlays.
  TrainedRows(const Checkpoint &checkpoint, std::vector<int32_t> ids,
              RowBase base, const std::filesystem::path &out);

  const std::filesystem::path &path() const { return file; }

  const char *name() const override { return "the rows"; }
  uint64_t bytesNeeded() const override;
  void write(const Trainer &trainer, const Json &provenance) override;

private:
  const Checkpoint &checkpoint;
  std::filesystem::path file;
  RowOverlay overlay;
  RoundingError rounding;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAINEDROWS_H
