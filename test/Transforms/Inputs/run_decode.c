/*===- run_decode.c - Run the entry of lower-to-host-run.mlir -------------===*\
|*                                                                            *|
|* Part of Stem, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* Stands in for the runtime: says what is called, and can be told to fail.   *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#include "stem-c/Runtime.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, V = 10, TOKENS = 3, OUTPUTS = 2, THREADS = 2 };

const stem_module *stem_module_query(int32_t abi_version);
int dump_module(void);

static const char *fail_at = "";
static float table[2][V][D];
static const int32_t *planned;
static int64_t planned_count;

static stem_status say(const char *what, int64_t number) {
  char line[64];
  snprintf(line, sizeof(line), "%s %lld", what, (long long)number);
  printf(" %s;", line);
  return strcmp(line, fail_at) == 0 ? STEM_IO_ERROR : STEM_OK;
}

/* The real one has tests of its own (EntryCheckTest.cpp). */
stem_status stem_check_entry(stem_context *context, const stem_entry *entry,
                             const stem_tensor *arguments, int64_t count,
                             const void *arena, int64_t arena_bytes,
                             int64_t *out_frame_bytes) {
  *out_frame_bytes = entry->fixed_bytes +
                     arguments[0].sizes[0] * entry->bytes_per_token +
                     arguments[4].sizes[0] * entry->bytes_per_output;
  if (count != entry->argument_count || (uintptr_t)arena % 64 ||
      arena_bytes != *out_frame_bytes + THREADS * entry->bytes_per_thread)
    abort();
  return say("check", count);
}

void stem_parallel_for(stem_context *context, int64_t tasks,
                       stem_parallel_body body, void *captures) {
  for (int64_t task = 0; task < tasks; ++task)
    body(captures, task, task % THREADS);
}

/* One panel of f32 is the matrix itself, row by row. */
void stem_packed_matmul(stem_context *context, const void *a, int64_t lda,
                        const void *b, int32_t b_dtype, int64_t b_rows,
                        int64_t b_columns, int64_t k0, int64_t n0, float *c,
                        int64_t ldc, int64_t m, int64_t k, int64_t n,
                        int32_t accumulate) {
  if (b_dtype != STEM_F32 || b_rows != D || b_columns != D || k0 || n0)
    abort();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = accumulate ? c[i * ldc + j] : 0;
      for (int64_t p = 0; p < k; ++p)
        sum += ((const float *)a)[i * lda + p] * ((const float *)b)[p * D + j];
      c[i * ldc + j] = sum;
    }
}

stem_status stem_table_make_plan(stem_context *context, stem_table_store *store,
                                 const int32_t *ids, int64_t count,
                                 stem_table_plan **out_plan) {
  planned = ids;
  planned_count = count;
  *out_plan = (stem_table_plan *)&planned;
  return say("plan", count);
}

void stem_table_release_plan(stem_table_store *store, stem_table_plan *plan) {
  say("release_plan", plan == (stem_table_plan *)&planned);
}

stem_status stem_table_prefetch(stem_context *context, stem_table_store *store,
                                int64_t number, stem_table_plan *plan,
                                stem_ticket *out_ticket) {
  *out_ticket = number + 100;
  return say("prefetch", number);
}

stem_status stem_table_await(stem_context *context, stem_table_store *store,
                             stem_ticket ticket, stem_tensor *out_rows,
                             stem_tensor *out_index) {
  stem_tensor rows = {table[ticket - 100], STEM_F32, 2, {V, D}, {D, 1}};
  stem_tensor index = {(void *)planned, STEM_I32, 1, {planned_count}, {1}};
  *out_rows = rows;
  *out_index = index;
  return say("await", ticket);
}

void stem_table_release(stem_table_store *store, stem_ticket ticket) {
  say("release", ticket);
}

/* Of an entry that is described only. */
void stem_kv_append(stem_kv_cache *cache, int64_t layer, const void *k,
                    int64_t ldk, const void *v, int64_t ldv,
                    const int32_t *positions, const int32_t *sequences,
                    int64_t rows) {
  abort();
}

const void *stem_kv_page(stem_kv_cache *cache, int64_t layer, int32_t sequence,
                         int64_t page, int64_t head, int32_t values) {
  abort();
}

/*===-- The step ----------------------------------------------------------===*/

static int32_t ids[TOKENS] = {7, 0, 7};
static float x[TOKENS][D], w[D][D], bias[D], y[OUTPUTS][D], cache;
static stem_packed packed = {w, STEM_F32, 0, D, D};

static stem_tensor arguments[7];

static void set_arguments(void) {
  stem_tensor all[7] = {
      {ids, STEM_I32, 1, {TOKENS}, {1}},
      {x, STEM_F32, 2, {TOKENS, D}, {D, 1}},
      {&packed, STEM_HANDLE, 0, {0}, {0}},
      {bias, STEM_F32, 1, {D}, {1}},
      {y, STEM_F32, 2, {OUTPUTS, D}, {D, 1}},
      {&cache, STEM_HANDLE, 0, {0}, {0}},
      {table, STEM_HANDLE, 0, {0}, {0}},
  };
  memcpy(arguments, all, sizeof(all));
}

static void *arena;
static int64_t arena_bytes;

static int run(const char *what) {
  const stem_entry *entry = &stem_module_query(STEM_ABI_VERSION)->entries[0];
  printf("%s:", what);
  stem_status status = entry->function((stem_context *)&planned, arguments, 7,
                                       arena, arena_bytes);
  printf(" status %d\n", status);
  return status;
}

/* h = h w + table[ids] + bias, once for each table. */
static double largest_error(void) {
  double worst = 0;
  for (int i = 0; i < OUTPUTS; ++i) {
    double h[D], next[D];
    int token = TOKENS - OUTPUTS + i;
    for (int j = 0; j < D; ++j)
      h[j] = x[token][j];
    for (int layer = 0; layer < 2; ++layer) {
      for (int j = 0; j < D; ++j) {
        next[j] = table[layer][ids[token]][j] + bias[j];
        for (int p = 0; p < D; ++p)
          next[j] += h[p] * w[p][j];
      }
      memcpy(h, next, sizeof(h));
    }
    for (int j = 0; j < D; ++j) {
      double error = h[j] - y[i][j];
      worst = error > worst ? error : -error > worst ? -error : worst;
    }
  }
  return worst;
}

static void fill(float *values, int count) {
  static unsigned state = 1;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 8) / (1 << 24) - 0.5f;
  }
}

int main(void) {
  if (dump_module())
    return 1;
  fill(&table[0][0][0], 2 * V * D);
  fill(&x[0][0], TOKENS * D);
  fill(&w[0][0], D * D);
  fill(bias, D);
  const stem_entry *entry = &stem_module_query(STEM_ABI_VERSION)->entries[0];
  arena_bytes = entry->fixed_bytes + TOKENS * entry->bytes_per_token +
                OUTPUTS * entry->bytes_per_output +
                THREADS * entry->bytes_per_thread;
  /* Bytes behind the arena would show a write that is out of bounds. */
  arena = aligned_alloc(64, arena_bytes + 64);
  memset(arena, 0x5a, arena_bytes + 64);
  set_arguments();
  run("step");
  printf("values %s\n", largest_error() < 1e-4 ? "right" : "wrong");
  for (int i = 0; i < 64; ++i)
    if (((unsigned char *)arena)[arena_bytes + i] != 0x5a)
      return printf("wrote behind the arena\n"), 1;

  const char *failures[] = {"check 7",    "plan 3",    "prefetch 0",
                            "prefetch 1", "await 100", "await 101"};
  for (int i = 0; i < 6; ++i) {
    fail_at = failures[i];
    run(fail_at);
  }
  return 0;
}
