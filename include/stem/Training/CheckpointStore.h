//===- CheckpointStore.h - Checkpoints of a training run --------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint is a folder step-NNNNNNNNNN with safetensors files, a text about
// the run, and a manifest with size and SHA-256 of each. It appears under its
// name when all of it is on the disk. See docs/training-checkpoints.md.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRAINING_CHECKPOINTSTORE_H
#define STEM_TRAINING_CHECKPOINTSTORE_H

#include "stem/Model/Safetensors.h"
#include "stem/Support/Files.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stem {

/// Tensors that go into one file. The views are of live memory.
struct CheckpointFile {
  std::string name; ///< "dense.safetensors" and its like
  std::vector<TensorView> tensors;
};

/// A checkpoint whose files have the sizes and hashes of its manifest.
struct LoadedCheckpoint {
  std::filesystem::path path;
  int64_t step = 0;
  std::string run; ///< as it was saved
  std::vector<SafetensorsFile> files;

  /// Of all files; the views live as long as these.
  std::vector<TensorView> tensors() const;
};

/// The checkpoints of one run, of which one process writes at a time.
class CheckpointStore {
public:
  /// The folder is there. Takes a lock on it: an Error when another process
  /// holds it. Removes what a process that was killed has left unfinished.
  /// `keep` is 1 or more.
  CheckpointStore(std::filesystem::path folder, int64_t keep);

  /// The newest one that is complete. `onDamaged` is told of each newer one
  /// that is not, and why.
  std::optional<LoadedCheckpoint>
  newest(const std::function<void(const std::string &)> &onDamaged) const;

  /// Whether a folder is there that has the name of a checkpoint.
  bool isEmpty() const;

  /// Writes a checkpoint, syncs and publishes it, then removes what is not
  /// among the last `keep`, and damaged ones of later steps. After an Error the
  /// ones before are as they were.
  void save(int64_t step, const std::vector<CheckpointFile> &files,
            const std::string &run);

  /// Bytes that such a checkpoint takes on the disk, about.
  static uint64_t plannedBytes(const std::vector<CheckpointFile> &files);
  /// Bytes of the checkpoints that are there.
  uint64_t presentBytes() const;

private:
  std::vector<int64_t> steps() const;
  std::filesystem::path pathOf(int64_t step) const;
  LoadedCheckpoint load(int64_t step) const;
  void remove(int64_t step) const;
  void prune(int64_t saved) const;

  std::filesystem::path folder;
  FileDescriptor lock;
  int64_t keep;
};

} // namespace stem

#endif // STEM_TRAINING_CHECKPOINTSTORE_H
