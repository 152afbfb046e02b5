//===- HandleShapes.h - What lies behind a handle ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What compiled code takes for granted of a cache and of a table store.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_HANDLESHAPES_H
#define STEM_LIB_RUNTIME_HANDLESHAPES_H

#include "stem-c/Runtime.h"

namespace stem {

struct CacheShape {
  int64_t layers, heads, headDim;
  int32_t dtype;
};
CacheShape cacheShape(const stem_kv_cache &cache);

int64_t tableCount(const stem_table_store &store);
/// Of an opened table. The name lives until another one is opened.
stem_table_info tableInfo(const stem_table_store &store, int64_t table);

} // namespace stem

#endif // STEM_LIB_RUNTIME_HANDLESHAPES_H
