//===- RowFile.h - A file that a table's rows lie in ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_ROWFILE_H
#define STEM_LIB_RUNTIME_ROWFILE_H

#include <cstdint>
#include <string>
#include <utility>

namespace stem {

/// Open for reading, and as it was when it was opened.
class RowFile {
public:
  RowFile() = default;
  ~RowFile();
  RowFile(RowFile &&other) noexcept { *this = std::move(other); }
  RowFile &operator=(RowFile &&other) noexcept {
    std::swap(path, other.path);
    std::swap(descriptor, other.descriptor);
    std::swap(bytes, other.bytes);
    std::swap(changed, other.changed);
    return *this;
  }

  /// Empty, or why it cannot be opened.
  std::string open(const char *name);
  /// Empty, or that it is not what was opened, and how it differs.
  std::string change() const;

  bool isOpen() const { return descriptor >= 0; }
  int handle() const { return descriptor; }
  int64_t size() const { return bytes; }
  const std::string &name() const { return path; }

private:
  std::string difference() const;

  std::string path;
  int descriptor = -1;
  int64_t bytes = 0;
  int64_t changed = 0; ///< nanoseconds since 1970
};

} // namespace stem

#endif // STEM_LIB_RUNTIME_ROWFILE_H
