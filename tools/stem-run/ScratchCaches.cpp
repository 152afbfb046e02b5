//===- ScratchCaches.cpp - Caches that a step's attention works in --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScratchCaches.h"

#include "EngineMemory.h"

#include "stem/Runtime/KVCache.h"

#include <algorithm>

using namespace stem;

/// The entry describes a cache by layers, row and head_dim.
static stem_kv_options cacheOptions(const stem_argument &argument,
                                    int64_t sequences, int64_t positions) {
  stem_kv_options kv = {};
  kv.struct_size = sizeof(kv);
  kv.layers = argument.sizes[0];
  kv.head_dim = argument.sizes[2];
  kv.heads = argument.sizes[1] / argument.sizes[2];
  kv.max_positions = positions;
  kv.max_sequences = sequences;
  kv.dtype = argument.element;
  return kv;
}

void ScratchCaches::make(stem_context *context, const stem_entry &entry) {
  caches.clear();
  for (int64_t i = 0; i < entry.argument_count; ++i) {
    const stem_argument &argument = entry.arguments[i];
    if (argument.kind != STEM_ARG_CACHE)
      continue;
    const stem_kv_options kv = cacheOptions(argument, sequences, positions);
    stem_kv_cache *made = nullptr;
    throwIfFailed(context, stem_kv_create(context, &kv, &made));
    caches[entry.texts + argument.name].reset(made);
  }
}

/// A tile is whole pages, so the tiles of all sequences have as many as one
/// sequence of so many tokens.
int64_t ScratchCaches::bytes(const stem_entry &entry, const BatchBound &bound) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < entry.argument_count; ++i)
    if (entry.arguments[i].kind == STEM_ARG_CACHE)
      bytes = sumOfBytes(
          {bytes,
           kvSequenceBytes(cacheOptions(entry.arguments[i], 1, bound.tokens),
                           bound.tokens)});
  return bytes;
}

void ScratchCaches::prepare(stem_context *context, const stem_entry &entry,
                            const TiledBatch &batch) {
  const auto count = static_cast<int64_t>(batch.lengths.size());
  const int64_t longest = count ? *std::ranges::max_element(batch.lengths) : 1;
  if (count > sequences || longest > positions || caches.empty()) {
    sequences = std::max<int64_t>({sequences, count, 1});
    positions = std::max(positions, longest);
    make(context, entry);
  }
  for (auto &[name, cache] : caches) {
    for (int32_t s = 0; s < sequences; ++s)
      throwIfFailed(context, stem_kv_truncate(context, cache.get(), s, 0));
    for (int32_t s = 0; s < count; ++s)
      throwIfFailed(context,
                    stem_kv_reserve(context, cache.get(), s, batch.lengths[s]));
  }
}
