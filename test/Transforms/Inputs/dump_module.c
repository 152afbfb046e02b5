/*===- dump_module.c - Print what a compiled module says of itself --------===*\
|*                                                                            *|
|* Part of Stem, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* Linked with a module. Reads the description through the real header, so a  *|
|* layout that differs shows.                                                 *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "stem-c/Runtime.h"

#include <stdio.h>

const stem_module *stem_module_query(int32_t abi_version);

static void dump_argument(const stem_argument *argument, const char *texts) {
  printf("  argument '%s' key '%s' kind %d dtype %d packed %d sizes [",
         texts + argument->name, texts + argument->key, argument->kind,
         argument->dtype, argument->packed);
  for (int i = 0; i < argument->rank; ++i)
    printf("%s%lld", i ? ", " : "", (long long)argument->sizes[i]);
  printf("] strides [");
  for (int i = 0; i < argument->rank && !argument->packed; ++i)
    printf("%s%lld", i ? ", " : "", (long long)argument->strides[i]);
  printf("] rows %d ids %d %lld", argument->rows, argument->ids,
         (long long)argument->id_bound);
  if (argument->kind == STEM_ARG_CACHE)
    printf(" element %d", argument->element);
  printf("\n");
}

int dump_module(void) {
  if (stem_module_query(STEM_ABI_VERSION + 1))
    return printf("another ABI version must give NULL\n"), 1;
  const stem_module *module = stem_module_query(STEM_ABI_VERSION);
  printf("module size %d abi %d isa %d\n",
         module->struct_size == sizeof(stem_module), module->abi_version,
         module->isa);
  for (int64_t i = 0; i < module->entry_count; ++i) {
    const stem_entry *entry = &module->entries[i];
    printf("entry '%s' function %d tile %lld bytes %lld %lld %lld %lld\n",
           entry->name, entry->function != NULL, (long long)entry->token_tile,
           (long long)entry->fixed_bytes, (long long)entry->bytes_per_token,
           (long long)entry->bytes_per_output,
           (long long)entry->bytes_per_thread);
    for (int64_t j = 0; j < entry->argument_count; ++j)
      dump_argument(&entry->arguments[j], entry->texts);
    printf("  tables %lld %d\n", (long long)entry->table_count,
           entry->tables == module->tables);
  }
  for (int64_t i = 0; i < module->table_count; ++i) {
    const stem_table_info *table = &module->tables[i];
    printf("table '%s' key '%s' %lld x %lld dtype %d\n", table->name,
           table->key, (long long)table->rows, (long long)table->columns,
           table->dtype);
  }
  return 0;
}
