//===- Files.cpp - Opening files that others made -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Files.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/ScratchFolder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

FileDescriptor::~FileDescriptor() {
  if (number >= 0)
    ::close(number);
}

int stem::openRegularFile(const fs::path &path, uint64_t &size) {
  // Opening a pipe for reading waits for a writer unless told not to.
  const int number =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (number < 0 && errno == ENXIO) // a socket, a device without a driver
    fail("{}: not a regular file", path.string());
  if (number < 0)
    fail("{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat status;
  if (::fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(number);
    fail("{}: not a regular file", path.string());
  }
  size = static_cast<uint64_t>(status.st_size);
  return number;
}

FileReader::FileReader(const fs::path &path)
    : path(path), file(openRegularFile(path, size)) {}

size_t FileReader::read(std::span<std::byte> buffer) {
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count >= 0)
      return static_cast<size_t>(count);
    if (errno != EINTR)
      fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
  }
}

void stem::writeAll(int descriptor, std::span<const std::byte> bytes,
                    const fs::path &path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0 && (errno == ENOSPC || errno == EDQUOT))
      fail("{}: the disk is full with {} bytes left to write; free space or "
           "choose another destination",
           path.string(), bytes.size());
    if (written < 0)
      fail("{}: cannot write: {}", path.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

static void syncDescriptor(int descriptor, const fs::path &path) {
  if (::fsync(descriptor) != 0)
    fail("{}: cannot sync to disk: {}", path.string(), std::strerror(errno));
}

NewFile::NewFile(const fs::path &path)
    : path(path), file(::open(path.c_str(),
                              O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)) {
  if (file.get() < 0)
    fail("{}: cannot create: {}", path.string(), std::strerror(errno));
}

void NewFile::sync() const { syncDescriptor(file.get(), path); }

void stem::syncPath(const fs::path &path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0)
    fail("{}: cannot open to sync: {}", path.string(), std::strerror(errno));
  syncDescriptor(file.get(), path);
}

void stem::writeNewFile(const fs::path &path, std::string_view text) {
  const NewFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
}

std::string stem::readWholeFile(const fs::path &path, uint64_t limit) {
  FileReader file(path);
  const auto checkSize = [&](uint64_t bytes) {
    if (bytes > limit)
      fail("{}: has {}; at most {} can be read at once, split it",
           path.string(), formatBytes(static_cast<double>(bytes)),
           formatBytes(static_cast<double>(limit)));
  };
  checkSize(file.sizeAtOpening());
  // One more, so that a file of this size ends without another allocation. The
  // size may be wrong: the file grows, or it is one of the system's.
  std::string text(std::max<size_t>(file.sizeAtOpening() + 1, 4096), '\0');
  for (size_t done = 0;;) {
    if (done == text.size())
      text.resize(done + done / 2);
    const size_t count =
        file.read(std::as_writable_bytes(std::span(text)).subspan(done));
    done += count;
    checkSize(done);
    if (count == 0) {
      text.resize(done);
      return text;
    }
  }
}

void stem::replaceFile(const fs::path &path, std::string_view text) {
  int number = -1;
  const UnfinishedPath unfinished([&] {
    fs::path created;
    number = createTemporary(path, created);
    return created;
  });
  const FileDescriptor file(number);
  while (!text.empty()) {
    const ssize_t count = ::write(number, text.data(), text.size());
    if (count < 0 && errno != EINTR)
      fail("cannot write {}: {}", path.string(), std::strerror(errno));
    text.remove_prefix(count < 0 ? 0 : static_cast<size_t>(count));
  }
  if (::rename(unfinished.path().c_str(), path.c_str()) != 0)
    fail("cannot write {}: {}", path.string(), std::strerror(errno));
}

void stem::renamePath(const fs::path &from, const fs::path &to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail("{}: cannot rename {} to it: {}", to.string(), from.string(),
         std::strerror(errno));
}

void stem::exchangePaths(const fs::path &fresh, const fs::path &old) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(),
                  RENAME_EXCHANGE) != 0)
    exchangeByRenames(fresh, old, [](const fs::path &from, const fs::path &to) {
      std::error_code error;
      fs::rename(from, to, error);
      return error;
    });
}

void stem::exchangeByRenames(const fs::path &fresh, const fs::path &old,
                             const Rename &rename) {
  const fs::path aside = fresh.string() + "-old";
  if (const std::error_code error = rename(old, aside))
    fail("{}: cannot rename it to {}, to make room: {}; it stays as it was",
         old.string(), aside.string(), error.message());
  if (const std::error_code error = rename(fresh, old)) {
    if (const std::error_code backError = rename(aside, old))
      fail("{}: cannot rename {} to it: {}; what was there lies at {} now, and "
           "cannot be renamed back: {}; rename it yourself",
           old.string(), fresh.string(), error.message(), aside.string(),
           backError.message());
    fail("{}: cannot rename {} to it: {}; what was there is back in its place",
         old.string(), fresh.string(), error.message());
  }
  if (const std::error_code error = rename(aside, fresh))
    fail("{}: is complete, but what was there before lies at {} and cannot be "
         "renamed to {}: {}; remove it yourself",
         old.string(), aside.string(), fresh.string(), error.message());
}

std::vector<std::string> stem::namesInFolder(const fs::path &folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    names.push_back(it->path().filename().string());
  if (error)
    fail("{}: cannot be listed: {}", folder.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

static fs::file_status statusOf(const fs::path &path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none ||
      (error && status.type() != fs::file_type::not_found &&
       status.type() != fs::file_type::unknown))
    fail("{}: {}", printable(path.string()), error.message());
  return status;
}

bool stem::pathExists(const fs::path &path) {
  return fs::exists(statusOf(path));
}

bool stem::isFolder(const fs::path &path) {
  return fs::is_directory(statusOf(path));
}

static fs::path canonicalPath(const fs::path &path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(fs::absolute(path), error);
  if (error)
    fail("{}: {}", printable(path.string()), error.message());
  // "a/b/" ends with an empty part.
  return result.has_filename() ? result : result.parent_path();
}

bool stem::liesWithin(const fs::path &path, const fs::path &folder) {
  const fs::path inner = canonicalPath(path), outer = canonicalPath(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end())
             .first == outer.end();
}
