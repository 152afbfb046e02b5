//===- HiddenStates.cpp - What calibration keeps between layers -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HiddenStates.h"

#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
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
int openUnnamed(const std::filesystem::path &folder) {
  int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0)
    return file;
  std::string name = (folder / ".stem-spill-XXXXXX").string();
  file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0)
    fail("{}: cannot make a file for hidden states there ({}); choose another "
         "place for the new folder, or give more --memory",
         folder.string(), std::strerror(errno));
  unlink(name.c_str());
  return file;
}

} // namespace

int64_t HiddenStates::bytes(const TokenStream &stream, int64_t width) {
  return std::max<int64_t>(stream.places(), 1) * width * int64_t(sizeof(float));
}

HiddenStates::HiddenStates(const TokenStream &stream, int64_t width,
                           const std::filesystem::path &spillFolder)
    : tokens(stream), width(width) {
  const int64_t size = bytes(stream, width);
  if (spillFolder.empty()) {
    memory = Arena(size, "hidden states");
    values = static_cast<float *>(memory.data());
  } else {
    mapFile(spillFolder, size);
  }
}

HiddenStates::HiddenStates(
    const TokenStream &stream, int64_t width,
    const std::filesystem::path &spillFolder,
    const std::function<void(const TokenStream::Step &, float *)> &fill)
    : HiddenStates(stream, width, spillFolder) {
  for (const TokenStream::Step &step : stream.steps) {
    fill(step, at(step));
    leave(step);
  }
}

void HiddenStates::mapFile(const std::filesystem::path &folder, int64_t size) {
  const FileDescriptor file(openUnnamed(folder));
  // The blocks are taken now: a write to a mapped page has no way to fail.
  if (const int error = posix_fallocate(file.get(), 0, size))
    fail("{}: cannot spill {} of hidden states there ({}); free some space, or "
         "give more --memory",
         folder.string(), formatBytes(static_cast<double>(size)),
         std::strerror(error));
  void *address = mmap(nullptr, static_cast<size_t>(size),
                       PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED)
    fail("{}: cannot map {} of hidden states ({}); give more --memory",
         folder.string(), formatBytes(static_cast<double>(size)),
         std::strerror(errno));
  mappedBytes = size;
  values = static_cast<float *>(address);
}

HiddenStates::~HiddenStates() {
  if (mappedBytes)
    munmap(values, static_cast<size_t>(mappedBytes));
}

void HiddenStates::leave(const TokenStream::Step &step) const {
  if (!mappedBytes)
    return;
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(at(step));
  const uintptr_t end =
      begin + static_cast<uintptr_t>(step.count * width) * sizeof(float);
  const uintptr_t first = begin / page * page;
  madvise(reinterpret_cast<void *>(first), end - first, MADV_DONTNEED);
}

void HiddenStates::copyFrom(const HiddenStates &other) {
  for (const TokenStream::Step &step : tokens.steps) {
    std::copy_n(other.at(step), step.count * width, at(step));
    other.leave(step);
    leave(step);
  }
}
