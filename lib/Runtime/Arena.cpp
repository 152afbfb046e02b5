//===- Arena.cpp - Large aligned memory and what is left of it ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Arena.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/UnnamedFile.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace stem;

namespace {

constexpr int64_t hugePage = 2 << 20;

/// The number that follows a word in a file; -1 when there is none.
int64_t numberAfter(const char *path, std::string_view name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t value = 0;
    if (word == name && file >> value)
      return value;
  }
  return -1;
}

/// The kB figure of a line "Name:   123 kB" of a file of /proc, in bytes; -1
/// when there is none.
int64_t procField(const char *path, const std::string &name) {
  int64_t kilobytes = numberAfter(path, name + ":");
  return kilobytes < 0 ? -1 : kilobytes * 1024;
}

/// A file that holds one number; -1 for none or "max".
int64_t numberIn(const char *path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

/// Below the limit of the process's address space (ulimit -v), which files that
/// are mapped count to; -1 for none.
int64_t addressSpaceLeft() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return -1;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) -
                                  procField("/proc/self/status", "VmSize"));
}

} // namespace

Arena::Arena(int64_t bytes, const char *purpose) {
  if (bytes < 0)
    fail("cannot allocate {} bytes for {}", bytes, purpose);
  if (bytes == 0)
    return;
  void *address =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    fail("cannot allocate {} for {}: {} available{}", formatBytes(bytes),
         purpose, formatBytes(std::max<int64_t>(0, memoryStatus().available)),
         addressSpaceLeft() >= 0 ? " below the limit of ulimit -v; raise it"
                                 : "");
  // Advice only: a kernel without huge pages refuses, and nothing is lost.
  if (bytes >= 2 * hugePage)
    madvise(address, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  start = address;
  length = bytes;
}

Arena Arena::inFile(const std::filesystem::path &folder, int64_t bytes,
                    const char *purpose, const char *advice) {
  Arena arena;
  if (bytes <= 0)
    return arena;
  UnnamedFile file = mapUnnamedFile(folder, bytes, purpose, advice);
  arena.start = file.start;
  arena.length = bytes;
  arena.descriptor = file.descriptor.release();
  // Rows lie anywhere: their neighbours are not asked for.
  madvise(arena.start, static_cast<size_t>(bytes), MADV_RANDOM);
  return arena;
}

Arena::~Arena() {
  if (start)
    munmap(start, static_cast<size_t>(length));
  if (descriptor >= 0)
    close(descriptor);
}

MemoryStatus stem::memoryStatus() {
  MemoryStatus status = {procField("/proc/meminfo", "MemAvailable"),
                         procField("/proc/self/status", "VmRSS"),
                         procField("/proc/self/status", "VmHWM")};
  if (const int64_t left = addressSpaceLeft(); left >= 0)
    status.available =
        status.available < 0 ? left : std::min(status.available, left);
  int64_t limit = numberIn("/sys/fs/cgroup/memory.max");
  int64_t used = numberIn("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    // Pages of files count as used, but are given up when memory is short.
    for (const char *files : {"active_file", "inactive_file"})
      used -= std::max<int64_t>(
          0, numberAfter("/sys/fs/cgroup/memory.stat", files));
    int64_t left = std::clamp<int64_t>(limit - used, 0, limit);
    status.available =
        status.available < 0 ? left : std::min(status.available, left);
  }
  return status;
}

void stem::resetPeakResident() {
  std::ofstream("/proc/self/clear_refs") << "5\n";
}
