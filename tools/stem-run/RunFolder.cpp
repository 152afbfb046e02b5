//===- RunFolder.cpp - The folder of a training run -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunFolder.h"

#include "stem/Support/Error.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

using namespace stem;
namespace fs = std::filesystem;

static fs::path withoutTrailingSlash(const fs::path &path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

static fs::path makeFolder(const fs::path &path) {
  if (::mkdir(path.c_str(), 0777) != 0)
    fail("{}: cannot make this folder: {}", path.string(),
         std::strerror(errno));
  return path;
}

void RunFolder::keepIt() {
  if (made)
    made->keep();
}

RunFolder::RunFolder(const fs::path &out, const fs::path &model, bool resume,
                     int64_t keep)
    : top(withoutTrailingSlash(out)), inner(top / "training") {
  if (top.filename().empty() || top.filename() == "." || top.filename() == "..")
    fail("{}: give the new folder a name", out.string());
  if (pathExists(top) && pathExists(model) && liesWithin(model, top))
    fail("{}: --out is where the model lies; choose another folder",
         top.string());
  open(resume, keep);
}

void RunFolder::open(bool resume, int64_t keep) {
  if (!pathExists(top)) {
    if (resume)
      fail("{}: --resume finds no such folder; leave it out to begin a run",
           top.string());
    made = std::make_unique<UnfinishedPath>([&] { return makeFolder(top); });
  }
  if (!isFolder(top))
    fail("{}: is no folder; choose another --out", top.string());
  if (!pathExists(inner)) {
    if (!fs::is_empty(top))
      fail("{}: is not empty, and no training run made it; choose another "
           "--out",
           top.string());
    if (resume)
      fail("{}: --resume finds no training run; leave it out to begin one",
           top.string());
    makeFolder(inner);
  }
  if (::access(inner.c_str(), W_OK | X_OK) != 0)
    fail("{}: cannot write there: {}", inner.string(), std::strerror(errno));
  store.emplace(inner, keep);
  if (!resume && !store->isEmpty())
    fail("{}: holds a run with checkpoints; --resume goes on with it, or "
         "choose another --out",
         top.string());
  if (resume && store->isEmpty())
    fail("{}: --resume finds no checkpoint; leave it out to begin anew",
         top.string());
}
