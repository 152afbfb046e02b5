//===- SpillFile.h - Memory in a file -------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_SPILLFILE_H
#define STEM_TOOLS_STEM_RUN_SPILLFILE_H

#include "stem/Support/Files.h"

#include <cstdint>
#include <filesystem>
#include <span>

namespace stem {

/// Memory for numbers in a file that has no name and goes with the object.
class SpillFile {
public:
  /// Takes the file's blocks, as a write to a mapped page has no way to fail.
  /// `what` stands in messages: "hidden states".
  SpillFile(const std::filesystem::path &folder, int64_t bytes,
            const char *what);
  ~SpillFile();
  SpillFile(const SpillFile &) = delete;
  SpillFile &operator=(const SpillFile &) = delete;

  float *data() const { return start; }

  /// Writes from the start on, past the process's memory.
  void write(std::span<const float> values) const;

  /// The numbers [first, first + count) are not needed for a while: their pages
  /// leave the process.
  void leave(int64_t first, int64_t count) const;

private:
  std::filesystem::path folder;
  FileDescriptor file;
  int64_t size;
  float *start;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_SPILLFILE_H
