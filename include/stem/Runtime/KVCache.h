//===- KVCache.h - Sizes of key-value caches --------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_KVCACHE_H
#define STEM_RUNTIME_KVCACHE_H

#include "stem-c/Runtime.h"

namespace stem {

/// Bytes of the pages that one sequence of `positions` positions takes in all
/// layers, the shorter rings of windows counted: what a plan prints before
/// anything is allocated. Throws an Error for options that stem_kv_create
/// refuses.
STEM_EXPORT int64_t kvSequenceBytes(const stem_kv_options &options,
                                    int64_t positions);

} // namespace stem

#endif // STEM_RUNTIME_KVCACHE_H
