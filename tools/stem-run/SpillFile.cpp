//===- SpillFile.cpp - Memory in a file -----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SpillFile.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace stem;

namespace {

/// A file without a name; where the file system has no such files, one whose
/// name is taken away.
int openUnnamed(const std::filesystem::path &folder, const char *what) {
  int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0)
    return file;
  std::string name = (folder / ".stem-spill-XXXXXX").string();
  file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0)
    fail("{}: cannot make a file for {} there ({}); choose another place for "
         "the new folder, or give more --memory",
         folder.string(), what, std::strerror(errno));
  unlink(name.c_str());
  return file;
}

} // namespace

SpillFile::SpillFile(const std::filesystem::path &folder, int64_t bytes,
                     const char *what)
    : folder(folder), file(openUnnamed(folder, what)), size(bytes) {
  const auto text = [&] { return formatBytes(static_cast<double>(size)); };
  if (const int error = posix_fallocate(file.get(), 0, size))
    fail("{}: cannot spill {} of {} there ({}); free some space, or give more "
         "--memory",
         folder.string(), text(), what, std::strerror(error));
  void *address = mmap(nullptr, static_cast<size_t>(size),
                       PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED)
    fail("{}: cannot map {} of {} ({}); give more --memory", folder.string(),
         text(), what, std::strerror(errno));
  start = static_cast<float *>(address);
}

SpillFile::~SpillFile() { munmap(start, static_cast<size_t>(size)); }

void SpillFile::write(std::span<const float> values) const {
  const auto bytes = std::as_bytes(values);
  if (static_cast<int64_t>(bytes.size()) > size)
    fail("{} bytes for a file of {}", bytes.size(), size);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = pwrite(file.get(), bytes.data() + done,
                                 bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno != EINTR)
      fail("{}: cannot write to a file there: {}", folder.string(),
           std::strerror(errno));
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
}

void SpillFile::leave(int64_t first, int64_t count) const {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(start + first);
  const uintptr_t end = reinterpret_cast<uintptr_t>(start + first + count);
  const uintptr_t from = begin / page * page;
  madvise(reinterpret_cast<void *>(from), end - from, MADV_DONTNEED);
}
