//===- TrainedFolder.h - The model that a run has trained -------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TRAINEDFOLDER_H
#define STEM_TOOLS_STEM_RUN_TRAINEDFOLDER_H

#include "TensorCopy.h"
#include "TrainedResult.h"

#include <filesystem>
#include <string>
#include <vector>

namespace stem {

/// Writes the trained model to the top of a run's folder, in the types of the
/// model that it began with. Trained weights are rounded to nearest; others are
/// copied.
class TrainedFolder : public TrainedResult {
public:
  /// Files are written in `scratch`, a folder below `out`, first.
  TrainedFolder(const Checkpoint &checkpoint, std::filesystem::path out,
                std::filesystem::path scratch);

  const char *name() const override { return "the model"; }
  uint64_t bytesNeeded() const override;

  /// While files are moved the folder has no config.json, so that no reader
  /// takes a mixture for a model.
  void write(const Trainer &trainer, const Json &provenance) override;

private:
  std::vector<const TensorInfo *> declare(ModelFolderWriter &writer) const;
  void writeTrained(const TensorInfo &tensor, const Trainer &trainer,
                    ModelFolderWriter &writer);
  void publish() const;

  const Checkpoint &checkpoint;
  std::filesystem::path out, fresh;
  TypeChoice types;
  RoundingError rounding;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TRAINEDFOLDER_H
