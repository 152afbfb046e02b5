//===- UnnamedFile.cpp - Memory in a file without a name ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/UnnamedFile.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace stem;

/// Where the file system has no files without a name, the name is taken away.
static int openUnnamed(const std::filesystem::path &folder, const char *what,
                       const char *advice) {
  int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0)
    return file;
  std::string name = (folder / ".stem-spill-XXXXXX").string();
  file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0)
    fail("{}: cannot make a file for {} there ({}); choose another place for "
         "the new folder, or {}",
         folder.string(), what, std::strerror(errno), advice);
  unlink(name.c_str());
  return file;
}

static uint64_t freeBytes(const std::filesystem::path &folder) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  return error ? 0 : space.available;
}

UnnamedFile stem::mapUnnamedFile(const std::filesystem::path &folder,
                                 int64_t bytes, const char *what,
                                 const char *advice) {
  UnnamedFile file{FileDescriptor(openUnnamed(folder, what, advice)), nullptr};
  const auto text = [&] { return formatBytes(static_cast<double>(bytes)); };
  if (const int error = posix_fallocate(file.descriptor.get(), 0, bytes))
    fail("{}: cannot take {} for {} there ({}, {} free); free some space, "
         "choose another place for the new folder, or {}",
         folder.string(), text(), what, std::strerror(error),
         formatBytes(static_cast<double>(freeBytes(folder))), advice);
  void *address =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
           MAP_SHARED, file.descriptor.get(), 0);
  if (address == MAP_FAILED)
    fail("{}: cannot map {} of {} ({})", folder.string(), text(), what,
         std::strerror(errno));
  file.start = address;
  return file;
}
