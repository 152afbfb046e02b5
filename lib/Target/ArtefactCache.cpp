//===- ArtefactCache.cpp - Compiled modules on disk -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArtefactCache.h"

#include "stem/Support/Hash.h"
#include "stem/Target/HostTarget.h"

using namespace stem;
namespace fs = std::filesystem;

/// None when it cannot be read.
static std::optional<std::string> hashOf(const fs::path &path) {
  try {
    return hashFile(path);
  } catch (const Error &) {
    return std::nullopt;
  }
}

std::optional<fs::path> ArtefactCache::find(const std::string &key) const {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(key + "-") || !name.ends_with(".so"))
      continue;
    std::string content = name.substr(key.size() + 1);
    content.resize(content.size() - 3);
    if (hashOf(it->path()) == content)
      return it->path();
    std::error_code ignored;
    fs::remove(it->path(), ignored);
  }
  return std::nullopt;
}

ScratchFolder ArtefactCache::reserve() const {
  if (folder.empty())
    throw OutputError("there is no folder for compiled modules: set "
                      "STEM_CACHE_DIR to one, or HOME");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw OutputError(fmt::format("cannot create the folder {}: {}",
                                  folder.string(), error.message()));
  try {
    return ScratchFolder(folder, "building-");
  } catch (const Error &failed) {
    throw OutputError(failed.what());
  }
}

fs::path ArtefactCache::commit(const std::string &key,
                               const fs::path &built) const {
  try {
    fs::path entry = folder / (key + "-" + hashFile(built) + ".so");
    fs::rename(built, entry);
    return entry;
  } catch (const std::runtime_error &failed) { // of hashFile or rename
    throw OutputError(failed.what());
  }
}
