//===- RowPages.h - Rows in memory that is a file's -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_ROWPAGES_H
#define STEM_RUNTIME_ROWPAGES_H

#include "stem-c/Runtime.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace stem {

/// Rows of a table, or one of their moments: the whole of an Arena::inFile, or
/// of a part of it.
struct FileRows {
  std::string name; ///< for messages
  std::byte *data = nullptr;
  int64_t rows = 0;
  int64_t rowBytes = 0;
  int file = -1; ///< the Arena's
};

/// Which rows of files are in memory. A step's rows, of all parts, are brought
/// before it, so that nothing waits for a disk, or fails by it, in the middle
/// of the step. After the step they are the page cache's, which keeps what
/// there is room for, and what has changed is written beside what follows.
class STEM_EXPORT RowPages {
public:
  /// The memory and the context outlive the object.
  RowPages(stem_context *context, std::vector<FileRows> parts);
  ~RowPages();
  RowPages(const RowPages &) = delete;
  RowPages &operator=(const RowPages &) = delete;

  /// Asks for rows that will be brought, beside what the caller does next.
  void readAhead(std::vector<int32_t> ids);

  /// Waits until the rows of these rising ids can be read and written. Throws
  /// an Error that names the part and the row of what the disk does not give,
  /// or says that it did not take what was written before.
  void bring(std::span<const int32_t> ids);

  /// Their pages leave the process, and begin to be written. A fault of that
  /// is told by the next bring or settle.
  void leave() noexcept;

  /// Waits until all rows are written. Throws an Error that names the part
  /// that the disk did not take.
  void settle();

private:
  void endWriter() noexcept;
  void requireWritten() const;
  void writeBack(unsigned more);

  stem_context *context;
  std::vector<FileRows> parts;
  std::thread reader, writer;
  std::string writerFault; ///< the running writer's
  std::string fault;       ///< the first of writers that have ended
};

} // namespace stem

#endif // STEM_RUNTIME_ROWPAGES_H
