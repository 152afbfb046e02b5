/*===- run_host.c - Run an entry on the interpreter's inputs --------------===*\
|*                                                                            *|
|* Part of Stem, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* run ENTRY TOKENS SEQUENCES THREADS [HEADS HEAD_DIM DTYPE]                  *|
|*                                                                            *|
|* Linked with a module and the runtime. Makes the arguments and parameters   *|
|* that --stem-interpret makes (lib/Reference/Inputs.cpp), packs matrices as  *|
|* the runtime's header says, and prints the outputs in the same form.        *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "stem-c/Runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_BOUND = 16, LAYERS = 4 };

const stem_module *stem_module_query(int32_t abi_version);

static int64_t tokens, sequences, heads, head_dim;
static int32_t cache_dtype;

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static uint64_t stream_of(const char *name) {
  uint64_t state = mix(0x9e3779b97f4a7c15u);
  for (; *name; ++name)
    state = mix(state ^ (unsigned char)*name);
  return state;
}

static uint64_t bits_at(uint64_t stream, int64_t index) {
  return mix(stream + (uint64_t)(index + 1) * 0x9e3779b97f4a7c15u);
}

static double real_at(uint64_t stream, int64_t index) {
  return ((double)(bits_at(stream, index) >> 57) - 64.0) / 64.0;
}

static void fail(stem_context *context, const char *what, stem_status status) {
  fprintf(stderr, "%s: status %d: %s\n", what, (int)status,
          stem_context_message(context));
  exit(1);
}

static int64_t bytes_of(int32_t dtype) {
  return dtype == STEM_F32 || dtype == STEM_I32 ? 4 : 2;
}

/* The inputs are exact in bf16. */
static void store(void *data, int32_t dtype, int64_t index, double value) {
  float wide = (float)value;
  uint32_t word;
  memcpy(&word, &wide, sizeof(word));
  if (dtype == STEM_F32)
    ((float *)data)[index] = wide;
  else
    ((uint16_t *)data)[index] = (uint16_t)(word >> 16);
}

static double load(const void *data, int32_t dtype, int64_t index) {
  uint32_t word;
  float wide;
  if (dtype == STEM_F32)
    return ((const float *)data)[index];
  word = (uint32_t)((const uint16_t *)data)[index] << 16;
  memcpy(&wide, &word, sizeof(wide));
  return wide;
}

static double scale_of(int64_t inputs) {
  return exp2(-floor(0.5 * log2((double)inputs)));
}

/* A parameter or table in the layout of the checkpoint. */
static void *plain(const char *key, int32_t dtype, int64_t count,
                   double scale) {
  uint64_t stream = stream_of(key);
  void *data = aligned_alloc(64, (size_t)(count * 4 + 63) / 64 * 64);
  for (int64_t i = 0; i < count; ++i)
    store(data, dtype, i, scale * real_at(stream, i));
  return data;
}

/* A K x N matrix, [N, K] in the checkpoint, in panels of 64 columns. */
static stem_packed *packed(const stem_argument *argument, const char *key) {
  int64_t k = argument->sizes[0], n = argument->sizes[1];
  int64_t depth = argument->dtype == STEM_BF16 ? (k + 1) / 2 * 2 : k;
  stem_packed *result = calloc(1, sizeof(stem_packed));
  int64_t bytes = stem_packed_bytes(argument->dtype, k, n);
  void *data = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
  uint64_t stream = stream_of(key);
  memset(data, 0, (size_t)bytes);
  for (int64_t column = 0; column < n; ++column)
    for (int64_t row = 0; row < k; ++row) {
      int64_t panel = column / STEM_PANEL * depth * STEM_PANEL;
      int64_t at = column % STEM_PANEL;
      int64_t place = argument->dtype == STEM_BF16
                          ? row / 2 * 2 * STEM_PANEL + 2 * at + row % 2
                          : row * STEM_PANEL + at;
      store(data, argument->dtype, panel + place,
            scale_of(k) * real_at(stream, column * k + row));
    }
  result->data = data;
  result->dtype = argument->dtype;
  result->rows = k;
  result->columns = n;
  return result;
}

static void fill_input(const stem_argument *argument, const char *name,
                       int64_t number, void *data, int64_t count) {
  char label[32];
  int64_t length = (count + sequences - 1) / sequences;
  int isRow = strcmp(name, "output_rows") == 0;
  int64_t bound = isRow && tokens < ID_BOUND ? tokens : ID_BOUND;
  uint64_t stream;
  snprintf(label, sizeof(label), "argument %lld", (long long)number);
  stream = stream_of(label);
  for (int64_t i = 0; i < count; ++i) {
    if (argument->dtype != STEM_I32)
      store(data, argument->dtype, i, real_at(stream, i));
    else if (strcmp(name, "positions") == 0)
      ((int32_t *)data)[i] = (int32_t)(i % length);
    else if (strcmp(name, "sequences") == 0)
      ((int32_t *)data)[i] = (int32_t)(i / length);
    else
      ((int32_t *)data)[i] = (int32_t)(bits_at(stream, i) % (uint64_t)bound);
  }
}

static stem_kv_cache *make_cache(stem_context *context) {
  stem_kv_options options = {sizeof(options)};
  stem_kv_cache *cache = NULL;
  stem_status status;
  options.layers = LAYERS;
  options.heads = heads;
  options.head_dim = head_dim;
  options.max_positions = tokens;
  options.max_sequences = sequences;
  options.dtype = cache_dtype;
  status = stem_kv_create(context, &options, &cache);
  if (status != STEM_OK)
    fail(context, "stem_kv_create", status);
  for (int32_t s = 0; s < sequences; ++s) {
    status = stem_kv_reserve(context, cache, s,
                             (tokens + sequences - 1) / sequences);
    if (status != STEM_OK)
      fail(context, "stem_kv_reserve", status);
  }
  return cache;
}

static stem_table_store *make_store(stem_context *context,
                                    const stem_module *module) {
  stem_table_store *store = NULL;
  stem_status status = stem_table_store_create(context, NULL, &store);
  for (int64_t i = 0; status == STEM_OK && i < module->table_count; ++i) {
    const stem_table_info *table = &module->tables[i];
    stem_table_options options = {sizeof(options)};
    options.rows = table->rows;
    options.columns = table->columns;
    options.dtype = table->dtype;
    options.resident =
        plain(table->key, table->dtype, table->rows * table->columns,
              scale_of(table->columns));
    options.name = table->name;
    status = stem_table_open(context, store, &options);
  }
  if (status != STEM_OK)
    fail(context, "table store", status);
  return store;
}

static void make_tensor(stem_context *context, const stem_module *module,
                        const stem_entry *entry, int64_t number,
                        stem_tensor *tensor) {
  const stem_argument *argument = &entry->arguments[number];
  const char *texts = entry->texts;
  int64_t count = 1;
  tensor->dtype = argument->dtype;
  tensor->rank = argument->rank;
  for (int32_t i = argument->rank - 1; i >= 0; --i) {
    tensor->sizes[i] = argument->sizes[i] < 0 ? tokens : argument->sizes[i];
    tensor->strides[i] = count;
    count *= tensor->sizes[i];
  }
  if (argument->kind == STEM_ARG_CACHE) {
    tensor->data = make_cache(context);
  } else if (argument->kind == STEM_ARG_STORE) {
    tensor->data = make_store(context, module);
  } else if (argument->packed) {
    tensor->data = packed(argument, texts + argument->key);
    tensor->dtype = STEM_HANDLE;
    tensor->rank = 0;
  } else if (argument->kind == STEM_ARG_PARAM) {
    tensor->data = plain(texts + argument->key, argument->dtype, count,
                         argument->rank == 2 ? scale_of(tensor->sizes[1]) : 1);
  } else {
    tensor->data = calloc((size_t)count, (size_t)bytes_of(argument->dtype));
    if (argument->kind == STEM_ARG_INPUT)
      fill_input(argument, texts + argument->name, number, tensor->data, count);
  }
}

static void print_output(const stem_tensor *tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->rank; ++i)
    count *= tensor->sizes[i];
  for (int64_t i = 0; i < count; ++i)
    printf("%.9g\n", load(tensor->data, tensor->dtype, i));
}

static void run(stem_context *context, const stem_module *module,
                const stem_entry *entry) {
  stem_tensor arguments[64];
  int64_t bytes = entry->fixed_bytes + tokens * entry->bytes_per_token +
                  tokens * entry->bytes_per_output +
                  stem_context_threads(context) * entry->bytes_per_thread;
  void *arena = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
  stem_status status;
  memset(arguments, 0, sizeof(arguments));
  for (int64_t i = 0; i < entry->argument_count; ++i)
    make_tensor(context, module, entry, i, &arguments[i]);
  memset(arena, 0xff, (size_t)bytes); /* NaN, so that nothing reads it unset */
  status =
      entry->function(context, arguments, entry->argument_count, arena, bytes);
  if (status != STEM_OK)
    fail(context, entry->name, status);
  for (int64_t i = 0; i < entry->argument_count; ++i)
    if (entry->arguments[i].kind == STEM_ARG_OUTPUT)
      print_output(&arguments[i]);
}

int main(int argc, char **argv) {
  const stem_module *module = stem_module_query(STEM_ABI_VERSION);
  stem_context_options options = {sizeof(options)};
  stem_context *context = NULL;
  if (argc < 5 || !module)
    return 2;
  tokens = atoll(argv[2]);
  sequences = atoll(argv[3]);
  options.threads = atoi(argv[4]);
  heads = argc > 5 ? atoll(argv[5]) : 1;
  head_dim = argc > 6 ? atoll(argv[6]) : 1;
  cache_dtype = argc > 7 ? atoi(argv[7]) : STEM_F32;
  if (stem_context_create(&options, &context) != STEM_OK)
    return 2;
  for (int64_t i = 0; i < module->entry_count; ++i)
    if (strcmp(module->entries[i].name, argv[1]) == 0) {
      run(context, module, &module->entries[i]);
      return 0;
    }
  fprintf(stderr, "no entry '%s'\n", argv[1]);
  return 2;
}
