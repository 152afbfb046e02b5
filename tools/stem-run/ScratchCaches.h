//===- ScratchCaches.h - Caches that a step's attention works in -*- C++
//-*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_SCRATCHCACHES_H
#define STEM_TOOLS_STEM_RUN_SCRATCHCACHES_H

#include "EntryRunner.h"
#include "TiledBatch.h"

#include <map>
#include <memory>
#include <string>

namespace stem {

/// The caches that an entry without a cache of its own attends in, by the
/// names of its arguments (see stem-scratch-attention).
class ScratchCaches {
public:
  /// Room for every position of the batch, and zeros where it has none. They
  /// grow with the largest batch.
  void prepare(stem_context *context, const stem_entry &entry,
               const TiledBatch &batch);
  /// The most that they come to for batches within `bound`.
  static int64_t bytes(const stem_entry &entry, const BatchBound &bound);
  stem_kv_cache *find(const std::string &name) const {
    return caches.at(name).get();
  }

private:
  void make(stem_context *context, const stem_entry &entry);

  std::map<std::string, std::unique_ptr<stem_kv_cache, CacheDeleter>> caches;
  int64_t sequences = 0, positions = 0;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_SCRATCHCACHES_H
