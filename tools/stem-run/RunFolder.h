//===- RunFolder.h - The folder of a training run ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_RUNFOLDER_H
#define STEM_TOOLS_STEM_RUN_RUNFOLDER_H

#include "stem/Support/UnfinishedPath.h"
#include "stem/Training/CheckpointStore.h"

#include <filesystem>
#include <memory>
#include <optional>

namespace stem {

/// OUT, whose top is for the finished model, and OUT/training with what the run
/// keeps. The run holds it alone. A folder that the constructor made goes
/// again unless keepIt() was called.
class RunFolder {
public:
  /// Makes what is not there, or finds the run that is resumed. Throws when the
  /// folder holds anything else, and when it is the model's own.
  RunFolder(const std::filesystem::path &out,
            const std::filesystem::path &model, bool resume, int64_t keep);
  RunFolder(const RunFolder &) = delete;
  RunFolder &operator=(const RunFolder &) = delete;
  /// The run begins: from now on the folder stays.
  void keepIt();

  const std::filesystem::path &out() const { return top; }
  const std::filesystem::path &training() const { return inner; }
  CheckpointStore &checkpoints() { return *store; }
  const CheckpointStore &checkpoints() const { return *store; }

private:
  void open(bool resume, int64_t keep);

  std::filesystem::path top, inner;
  /// The folder, where the constructor made it, until it is kept: a signal
  /// removes it too.
  std::unique_ptr<UnfinishedPath> made;
  std::optional<CheckpointStore> store;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_RUNFOLDER_H
