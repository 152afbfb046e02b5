/*===- TestModule.c - A module written by hand -------------------*- C -*-===*\
|*                                                                            *|
|* Part of Stem, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* MODULE_<VARIANT> chooses what is wrong with it; MODULE_GOOD is right.      *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "stem-c/Runtime.h"

#ifdef MODULE_OTHERABI
#define SPOKEN_VERSION (STEM_ABI_VERSION + 1)
#else
#define SPOKEN_VERSION STEM_ABI_VERSION
#endif

static stem_status check(stem_context *context, const stem_tensor *arguments,
                         int64_t count, void *arena, int64_t arena_bytes);

static const stem_argument arguments[] = {{.name = 0,
                                           .key = 3,
                                           .kind = STEM_ARG_INPUT,
                                           .dtype = STEM_I32,
                                           .rank = 1,
                                           .sizes = {-1},
                                           .id_bound = 10,
                                           .ids = STEM_IDS_BOUNDED}};

static const stem_entry entries[] = {
    {"check", check, arguments, 1, "ids\0", 64, 0, 0, 0, 0, 0, 0}};

/* Checks its arguments through the runtime, so that the test sees the call
   resolved. */
static stem_status check(stem_context *context, const stem_tensor *arguments,
                         int64_t count, void *arena, int64_t arena_bytes) {
  int64_t frame_bytes;
  return stem_check_entry(context, entries, arguments, count, arena,
                          arena_bytes, &frame_bytes);
}

static const stem_table_info tables[] = {
    {"table2", "model.layers.2.mlp.up_table.weight", 10, 4, STEM_F32, 0}};

static const stem_module description = {
#ifdef MODULE_OTHERSIZE
    8,
#else
    sizeof(stem_module),
#endif
    STEM_ABI_VERSION,
#ifdef MODULE_OTHERISA
    STEM_ISA_AVX512_BF16,
#else
    STEM_ISA_AVX2,
#endif
    entries,
#ifdef MODULE_DAMAGED
    -1,
#else
    1,
#endif
    tables,
    1};

#ifdef MODULE_NOQUERY
STEM_EXPORT const stem_module *another_query(int32_t abi_version);
const stem_module *another_query(int32_t abi_version) { return &description; }
#else
STEM_EXPORT const stem_module *stem_module_query(int32_t abi_version);
const stem_module *stem_module_query(int32_t abi_version) {
  return abi_version == SPOKEN_VERSION ? &description : 0;
}
#endif
