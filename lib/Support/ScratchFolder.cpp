//===- ScratchFolder.cpp - Folders of unfinished work ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/ScratchFolder.h"

#include "stem/Support/Error.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

using namespace stem;
namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const fs::path &parent, const std::string &prefix)
    : folder([&] {
        std::string pattern = (parent / (prefix + "XXXXXX")).string();
        if (!::mkdtemp(pattern.data()))
          fail("cannot create a folder in {}: {}", parent.string(),
               std::strerror(errno));
        return fs::path(pattern);
      }) {}

std::unique_ptr<ScratchFolder>
ScratchFolder::tryMake(const fs::path &parent, const std::string &prefix) {
  try {
    return std::make_unique<ScratchFolder>(parent, prefix);
  } catch (const Error &) {
    return nullptr;
  }
}

fs::path stem::temporaryFolder() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error)
    fail("there is no folder for temporary files: {}; set TMPDIR to one",
         error.message());
  return folder;
}

static bool isUnfinishedName(const std::string &name,
                             const std::string &prefix) {
  return name.size() == prefix.size() + 6 && name.starts_with(prefix) &&
         std::all_of(name.end() - 6, name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0; });
}

/// The latest write to a file, or to a folder and what it holds.
static fs::file_time_type lastWrite(const fs::path &path) {
  std::error_code error;
  fs::file_time_type latest = fs::last_write_time(path, error);
  for (fs::recursive_directory_iterator it(path, error), end;
       !error && it != end; it.increment(error)) {
    std::error_code gone;
    const fs::file_time_type time = it->last_write_time(gone);
    if (!gone)
      latest = std::max(latest, time);
  }
  return latest;
}

void stem::removeStale(const fs::path &parent, const std::string &prefix) {
  const auto dayAgo = fs::file_time_type::clock::now() - std::chrono::hours(24);
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    const fs::file_status status = it->symlink_status(ignored);
    const bool isOurs =
        (fs::is_regular_file(status) || fs::is_directory(status)) &&
        isUnfinishedName(it->path().filename().string(), prefix);
    if (isOurs && lastWrite(it->path()) < dayAgo)
      fs::remove_all(it->path(), ignored);
  }
}
