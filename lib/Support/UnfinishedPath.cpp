//===- UnfinishedPath.cpp - What a signal must not leave behind -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/UnfinishedPath.h"

#include <fcntl.h>
#include <mutex>
#include <set>
#include <sys/file.h>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

namespace {

struct Registry {
  std::recursive_mutex mutex;
  std::set<fs::path> paths;
};

/// Never destroyed: a signal may come while the process ends.
Registry &registry() {
  static Registry *instance = new Registry;
  return *instance;
}

} // namespace

UnfinishedPath::UnfinishedPath(const std::function<fs::path()> &create) {
  const std::lock_guard lock(registry().mutex);
  const fs::path created = create();
  std::error_code error;
  location = fs::absolute(created, error);
  if (error) // the working folder is gone
    location = created;
  registry().paths.insert(location);
  descriptor = ::open(location.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor >= 0)
    ::flock(descriptor, LOCK_EX | LOCK_NB);
}

UnfinishedPath::~UnfinishedPath() {
  if (isKept)
    return;
  std::error_code ignored;
  fs::remove_all(location, ignored);
  keep();
}

void UnfinishedPath::keep() {
  const std::lock_guard lock(registry().mutex);
  if (isKept)
    return;
  registry().paths.erase(location);
  if (descriptor >= 0)
    ::close(descriptor);
  isKept = true;
}

void stem::uninterrupted(const std::function<void()> &work) {
  const std::lock_guard lock(registry().mutex);
  work();
}

void stem::removeUnfinished() {
  registry().mutex.lock();
  for (const fs::path &path : registry().paths) {
    std::error_code error;
    // Other threads may still add files to a folder.
    for (int attempt = 0; attempt < 10; ++attempt) {
      fs::remove_all(path, error);
      if (!error)
        break;
    }
  }
}
