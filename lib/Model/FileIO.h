//===- FileIO.h - Mapped files, durable writes ------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_FILEIO_H
#define STEM_LIB_MODEL_FILEIO_H

#include "stem/Support/Files.h"
#include "stem/Support/Format.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace stem {

/// A whole file mapped read-only.
class MappedFile {
public:
  explicit MappedFile(const std::filesystem::path &path);
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {start, size}; }

  /// Drops the pages that `part` touches; they are read again when needed.
  void release(std::span<const std::byte> part) const;

private:
  const std::byte *start = nullptr;
  uint64_t size = 0;
};

/// Copies into a file that does not exist yet, and syncs it.
void copyNewFile(const std::filesystem::path &source,
                 const std::filesystem::path &path);

/// What a file with this beginning is when it is plainly something else ("a Git
/// LFS pointer: run `git lfs pull` …"); empty when it is nothing known.
std::string foreignFormat(std::span<const std::byte> beginning);

} // namespace stem

#endif // STEM_LIB_MODEL_FILEIO_H
