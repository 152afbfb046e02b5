//===- Files.h - Opening files that others made -----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_FILES_H
#define STEM_SUPPORT_FILES_H

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace stem {

/// An open file; closes on every way out.
class FileDescriptor {
public:
  explicit FileDescriptor(int number) : number(number) {}
  FileDescriptor(FileDescriptor &&other) noexcept
      : number(std::exchange(other.number, -1)) {}
  FileDescriptor(const FileDescriptor &) = delete;
  FileDescriptor &operator=(const FileDescriptor &) = delete;
  ~FileDescriptor();
  int get() const { return number; }
  /// The caller closes it from here on.
  int release() { return std::exchange(number, -1); }

private:
  int number;
};

/// Opens a regular file for reading and gives its descriptor and size. Anything
/// else is an Error at once: a pipe or a device would let the process wait.
int openRegularFile(const std::filesystem::path &path, uint64_t &size);

/// A regular file, read from its beginning.
class FileReader {
public:
  explicit FileReader(const std::filesystem::path &path);

  /// Fills the front of `buffer` and says how much of it; 0 at the end.
  size_t read(std::span<std::byte> buffer);

  uint64_t sizeAtOpening() const { return size; }

private:
  std::filesystem::path path;
  uint64_t size = 0;
  FileDescriptor file;
};

/// Writes all bytes, or throws; `path` stands for the file in messages.
void writeAll(int descriptor, std::span<const std::byte> bytes,
              const std::filesystem::path &path);

/// A file that did not exist before, for writing.
class NewFile {
public:
  explicit NewFile(const std::filesystem::path &path);
  void write(std::span<const std::byte> bytes) const {
    writeAll(file.get(), bytes, path);
  }
  void sync() const;

private:
  std::filesystem::path path;
  FileDescriptor file;
};

/// fsync of a file or folder.
void syncPath(const std::filesystem::path &path);

/// Writes a whole file that does not exist yet, and syncs it.
void writeNewFile(const std::filesystem::path &path, std::string_view text);

/// The whole of a regular file of at most `limit` bytes.
std::string readWholeFile(const std::filesystem::path &path, uint64_t limit);

/// Writes a file whole: under another name beside it, then renamed, so that
/// `path` is never a cut file. Makes no promise about power failures.
void replaceFile(const std::filesystem::path &path, std::string_view text);

/// Renames; an Error says what could not be renamed to what.
void renamePath(const std::filesystem::path &from,
                const std::filesystem::path &to);

/// Puts `fresh` in the place of `old`; afterwards `fresh` is the old one.
void exchangePaths(const std::filesystem::path &fresh,
                   const std::filesystem::path &old);

/// How exchangeByRenames renames; a test has one that fails.
using Rename = std::function<std::error_code(const std::filesystem::path &from,
                                             const std::filesystem::path &to)>;

/// exchangePaths for file systems that exchange nothing: the old one goes to
/// `fresh`-old first, so there is a moment without either. An Error says what
/// failed, and where the old one is then.
void exchangeByRenames(const std::filesystem::path &fresh,
                       const std::filesystem::path &old, const Rename &rename);

/// The names in a folder, hidden ones too, sorted.
std::vector<std::string> namesInFolder(const std::filesystem::path &folder);

/// Whether something is at `path`, links followed. An Error where that cannot
/// be found out: the name is too long, links form a circle, a folder on the way
/// may not be entered.
bool pathExists(const std::filesystem::path &path);
/// Whether a folder is at `path`; errors as above.
bool isFolder(const std::filesystem::path &path);

/// Whether `path` is `folder` or lies below it, links followed; neither has to
/// be there.
bool liesWithin(const std::filesystem::path &path,
                const std::filesystem::path &folder);

} // namespace stem

#endif // STEM_SUPPORT_FILES_H
