//===- SpillFile.h - Memory in a file -------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_SPILLFILE_H
#define STEM_TOOLS_STEM_RUN_SPILLFILE_H

#include "stem/Support/UnnamedFile.h"

#include <cstdint>
#include <filesystem>
#include <span>

namespace stem {

/// Memory for numbers in a file that has no name and goes with the object.
class SpillFile {
public:
  /// See mapUnnamedFile.
  SpillFile(const std::filesystem::path &folder, int64_t bytes,
            const char *what);
  ~SpillFile();
  SpillFile(const SpillFile &) = delete;
  SpillFile &operator=(const SpillFile &) = delete;

  float *data() const { return static_cast<float *>(file.start); }

  /// Writes from the start on, past the process's memory.
  void write(std::span<const float> values) const;

  /// The numbers [first, first + count) are not needed for a while: their pages
  /// leave the process.
  void leave(int64_t first, int64_t count) const;

private:
  std::filesystem::path folder;
  int64_t size;
  UnnamedFile file;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_SPILLFILE_H
