//===- UnfinishedPath.h - What a signal must not leave behind ---*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_UNFINISHEDPATH_H
#define STEM_SUPPORT_UNFINISHEDPATH_H

#include <filesystem>
#include <functional>

namespace stem {

/// A file or folder of unfinished work. It is removed with the object, and by
/// the signals that end the process once cleanUpOnSignals() was called. Until
/// then it is locked, where its file system can: removeStale() leaves it.
class UnfinishedPath {
public:
  /// `create` makes it and says where. No signal falls in between.
  explicit UnfinishedPath(const std::function<std::filesystem::path()> &create);
  UnfinishedPath(const UnfinishedPath &) = delete;
  UnfinishedPath &operator=(const UnfinishedPath &) = delete;
  ~UnfinishedPath();

  /// Absolute, so that a later change of the working folder does not matter.
  const std::filesystem::path &path() const { return location; }

  /// It stays, or lies elsewhere by now.
  void keep();

private:
  std::filesystem::path location;
  int descriptor = -1; ///< holds the lock
  bool isKept = false;
};

/// Runs `work` to its end before a signal ends the process.
void uninterrupted(const std::function<void()> &work);

/// Removes every unfinished path; who uses one afterwards waits for ever. For
/// the end of the process.
void removeUnfinished();

} // namespace stem

#endif // STEM_SUPPORT_UNFINISHEDPATH_H
