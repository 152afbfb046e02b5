//===- UnnamedFile.h - Memory in a file without a name ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_UNNAMEDFILE_H
#define STEM_SUPPORT_UNNAMEDFILE_H

#include "stem/Support/Files.h"

#include <cstdint>
#include <filesystem>

namespace stem {

/// A file that has no name and is gone with its last user, mapped for reading
/// and writing; unmapping is the caller's.
struct UnnamedFile {
  FileDescriptor descriptor;
  void *start; ///< of zeros
};

/// In `folder`, of at least one byte. Takes the file's blocks, as a write to a
/// mapped page has no way to fail. An Error names the folder, `what` is to lie
/// there ("hidden states") and what else would help (`advice`: "give more
/// --memory").
UnnamedFile mapUnnamedFile(const std::filesystem::path &folder, int64_t bytes,
                           const char *what, const char *advice);

} // namespace stem

#endif // STEM_SUPPORT_UNNAMEDFILE_H
