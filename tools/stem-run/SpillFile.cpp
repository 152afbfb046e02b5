//===- SpillFile.cpp - Memory in a file -----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SpillFile.h"

#include "stem/Support/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace stem;

SpillFile::SpillFile(const std::filesystem::path &folder, int64_t bytes,
                     const char *what)
    : folder(folder), size(bytes),
      file(mapUnnamedFile(folder, bytes, what, "give more --memory")) {}

SpillFile::~SpillFile() { munmap(file.start, static_cast<size_t>(size)); }

void SpillFile::write(std::span<const float> values) const {
  const auto bytes = std::as_bytes(values);
  if (static_cast<int64_t>(bytes.size()) > size)
    fail("{} bytes for a file of {}", bytes.size(), size);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = pwrite(file.descriptor.get(), bytes.data() + done,
                                 bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno != EINTR)
      fail("{}: cannot write to a file there: {}", folder.string(),
           std::strerror(errno));
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
}

void SpillFile::leave(int64_t first, int64_t count) const {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data() + first);
  const uintptr_t end = reinterpret_cast<uintptr_t>(data() + first + count);
  const uintptr_t from = begin / page * page;
  madvise(reinterpret_cast<void *>(from), end - from, MADV_DONTNEED);
}
