//===- UnfinishedPath.cpp - What a signal must not leave behind -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/UnfinishedPath.h"

#include <mutex>
#include <set>

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
  location = create();
  // A later change of the working folder must not matter.
  std::error_code ignored;
  registry().paths.insert(fs::absolute(location, ignored));
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
  std::error_code ignored;
  registry().paths.erase(fs::absolute(location, ignored));
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
