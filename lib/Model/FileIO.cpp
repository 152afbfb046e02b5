//===- FileIO.cpp - Mapped files, durable writes --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FileIO.h"

#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
#include "stem/Support/Process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace stem;

namespace {

std::string systemError() { return std::strerror(errno); }

} // namespace

MappedFile::MappedFile(const std::filesystem::path &path) {
  const FileDescriptor file(openRegularFile(path, size));
  if (size == 0)
    return;
  void *address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED)
    fail("{}: cannot map {} bytes: {}", path.string(), size, systemError());
  start = static_cast<const std::byte *>(address);
  nameMapping(start, size, path);
}

MappedFile::~MappedFile() {
  if (!start)
    return;
  forgetMapping(start);
  ::munmap(const_cast<std::byte *>(start), size);
}

void MappedFile::release(std::span<const std::byte> part) const {
  if (part.empty() || part.data() < start ||
      part.data() + part.size() > start + size)
    return;
  // Outward to where a fault may have mapped pages: around it, and the whole of
  // a large folio. Who still reads there faults them in again.
  constexpr size_t window = 2 << 20;
  const size_t offset = static_cast<size_t>(part.data() - start);
  const size_t first = offset / window * window;
  const size_t end =
      std::min(size, (offset + part.size() + window - 1) / window * window);
  ::madvise(const_cast<std::byte *>(start) + first, end - first, MADV_DONTNEED);
}

void stem::copyNewFile(const std::filesystem::path &source,
                       const std::filesystem::path &path) {
  const MappedFile from(source);
  const NewFile file(path);
  // In pieces, so that a copy of a large file does not stay resident.
  constexpr size_t piece = 16 << 20;
  for (size_t at = 0; at < from.bytes().size(); at += piece) {
    const auto part =
        from.bytes().subspan(at, std::min(piece, from.bytes().size() - at));
    file.write(part);
    from.release(part);
  }
  file.sync();
}

std::string stem::foreignFormat(std::span<const std::byte> beginning) {
  const std::string_view text(reinterpret_cast<const char *>(beginning.data()),
                              std::min<size_t>(beginning.size(), 64));
  struct Format {
    std::string_view magic;
    std::string_view description;
  };
  static constexpr Format formats[] = {
      {"version https://git-lfs",
       "a Git LFS pointer, not the file itself; run `git lfs pull` in its "
       "folder"},
      {"PK\x03\x04",
       "a zip archive (a PyTorch .ckpt or .bin checkpoint?); convert it to "
       "safetensors first"},
      {"\x80\x02", "a Python pickle; convert it to safetensors first"},
      {"GGUF", "a GGUF file; give the file itself as the model"},
      {"<!DOCTYPE", "an HTML page; download the file again"},
      {"<!doctype", "an HTML page; download the file again"},
      {"<html", "an HTML page; download the file again"},
      {"\xff\xd8\xff", "a JPEG picture"},
      {"\x89PNG", "a PNG picture"},
  };
  for (const Format &format : formats)
    if (text.starts_with(format.magic))
      return std::string(format.description);
  return {};
}
