//===- ScratchFolder.h - Files and folders of unfinished work ---*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_SCRATCHFOLDER_H
#define STEM_SUPPORT_SCRATCHFOLDER_H

#include "stem/Support/UnfinishedPath.h"

#include <filesystem>
#include <memory>
#include <string>

namespace stem {

/// A new folder PREFIXxxxxxx with letters of its own, for this user alone. It
/// goes with the object or the process, and all that is in it. Removes stale
/// ones of the same prefix first.
class ScratchFolder {
public:
  /// Throws when `parent` does not take it.
  ScratchFolder(const std::filesystem::path &parent, const std::string &prefix);

  /// Null when `parent` does not take it.
  static std::unique_ptr<ScratchFolder>
  tryMake(const std::filesystem::path &parent, const std::string &prefix);

  const std::filesystem::path &path() const { return folder.path(); }

  /// The folder stays.
  void keep() { folder.keep(); }

private:
  UnfinishedPath folder;
};

/// The system's folder for temporary files.
std::filesystem::path temporaryFolder();

/// Removes what this user's killed processes left in `parent`: files and
/// folders named PREFIX and six letters or digits, in which nothing was written
/// for a day and which no process locks. What cannot be examined or removed is
/// left.
void removeStale(const std::filesystem::path &parent,
                 const std::string &prefix);

/// ".NAME.tmp-": what the unfinished forms of `path` beside it begin with.
std::string temporaryPrefix(const std::filesystem::path &path);

/// Creates a new file beside `path`, named temporaryPrefix() and six letters or
/// digits; gives its descriptor. Removes stale ones first.
int createTemporary(const std::filesystem::path &path,
                    std::filesystem::path &temporary);

/// The same for a folder; gives its path.
std::filesystem::path createTemporaryFolder(const std::filesystem::path &path);

} // namespace stem

#endif // STEM_SUPPORT_SCRATCHFOLDER_H
