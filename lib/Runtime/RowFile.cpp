//===- RowFile.cpp - A file that a table's rows lie in --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace stem;

static int64_t changeTime(const struct stat &status) {
  return int64_t(status.st_mtim.tv_sec) * 1'000'000'000 +
         status.st_mtim.tv_nsec;
}

RowFile::~RowFile() {
  if (isOpen())
    close(descriptor);
}

std::string RowFile::open(const char *name) {
  path = name;
  descriptor = ::open(name, O_RDONLY | O_CLOEXEC);
  if (!isOpen())
    return std::strerror(errno);
  struct stat status;
  if (fstat(descriptor, &status) != 0)
    return std::strerror(errno);
  if (!S_ISREG(status.st_mode))
    return "it is no regular file";
  bytes = status.st_size;
  changed = changeTime(status);
  // Rows lie anywhere: what the system would read ahead is not asked for.
  (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
  return "";
}

std::string RowFile::difference() const {
  struct stat status;
  if (fstat(descriptor, &status) != 0)
    return std::strerror(errno);
  if (status.st_size != bytes)
    return fmt::format("it has {} bytes, {} when it was opened",
                       int64_t(status.st_size), bytes);
  if (changeTime(status) != changed)
    return "it was written to since it was opened";
  return "";
}

std::string RowFile::change() const {
  const std::string found = difference();
  return found.empty()
             ? ""
             : fmt::format("{} changed while it was in use: {}", path, found);
}
