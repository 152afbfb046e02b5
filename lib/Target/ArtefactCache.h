//===- ArtefactCache.h - Compiled modules on disk -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TARGET_ARTEFACTCACHE_H
#define STEM_LIB_TARGET_ARTEFACTCACHE_H

#include "stem/Support/ScratchFolder.h"

#include <filesystem>
#include <optional>
#include <string>

namespace stem {

/// A folder of KEY-CONTENT.so, both hashes in hex. Processes may share it: an
/// entry appears by rename, and is read only when its content has the hash in
/// its name.
class ArtefactCache {
public:
  explicit ArtefactCache(std::filesystem::path folder)
      : folder(std::move(folder)) {}

  /// A whole entry for `key`. Entries that are not whole are removed.
  std::optional<std::filesystem::path> find(const std::string &key) const;

  /// A folder to build an entry in; throws an OutputError when the cache cannot
  /// be written. What processes that were killed left behind is removed after a
  /// day.
  ScratchFolder reserve() const;

  /// Gives a finished file its name in the cache, and gives that; throws an
  /// OutputError when it cannot.
  std::filesystem::path commit(const std::string &key,
                               const std::filesystem::path &built) const;

private:
  std::filesystem::path folder;
};

} // namespace stem

#endif // STEM_LIB_TARGET_ARTEFACTCACHE_H
