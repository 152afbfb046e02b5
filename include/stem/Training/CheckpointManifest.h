//===- CheckpointManifest.h - The files of a checkpoint ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TRAINING_CHECKPOINTMANIFEST_H
#define STEM_TRAINING_CHECKPOINTMANIFEST_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// manifest.json of a checkpoint: every other file in its folder.
struct CheckpointManifest {
  struct File {
    std::string name; ///< without a folder
    uint64_t bytes = 0;
    std::string sha256;
  };

  /// The file with the text about the run, which there always is.
  static constexpr const char *runFile = "run.json";

  int64_t step = 0;
  std::vector<File> files;

  std::string text() const;
  /// An Error that begins with `name` and says what is wrong.
  static CheckpointManifest parse(std::string_view text,
                                  const std::string &name);
};

} // namespace stem

#endif // STEM_TRAINING_CHECKPOINTMANIFEST_H
