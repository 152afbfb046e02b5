/*===- Runtime.h - Interface of compiled code and the runtime -----*- C -*-===*\
|*                                                                            *|
|* Part of Stem, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
|*===----------------------------------------------------------------------===*|
|*                                                                            *|
|* All that the compiler and the runtime share. A compiled module is a shared *|
|* object that exports stem_module_query; it calls back only what is declared *|
|* here. Options, statistics and the description of a module start with their *|
|* own size; the other structs change with the version alone.                 *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef STEM_C_RUNTIME_H
#define STEM_C_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bumped when the layout or meaning of anything below changes. */
#define STEM_ABI_VERSION 3

#if defined(__GNUC__)
#define STEM_EXPORT __attribute__((visibility("default")))
#else
#define STEM_EXPORT
#endif

/* Status of every runtime call and every compiled entry; STEM_OK is 0. The
   message of the last failure lies in the context. */
typedef int32_t stem_status;
enum {
  STEM_OK = 0,
  STEM_INVALID_ARGUMENT = 1, /* the caller passed something unusable */
  STEM_OUT_OF_RANGE = 2,     /* an id, label or position beyond its bound */
  STEM_OUT_OF_MEMORY = 3,    /* the plan does not fit */
  STEM_IO_ERROR = 4,         /* a read or write failed */
  STEM_INCOMPATIBLE = 5,     /* another ABI version, CPU or model */
  STEM_INTERNAL = 6          /* a bug in Stem */
};

typedef enum stem_dtype {
  STEM_F32 = 0,
  STEM_BF16 = 1,
  STEM_I32 = 2,
  STEM_I8 = 3,
  STEM_F16 = 4,
  STEM_HANDLE = 5 /* `data` is a runtime object: a kv cache, a packed matrix */
} stem_dtype;

/* A strided tensor, or a handle. Strides count elements. */
#define STEM_MAX_RANK 4
typedef struct stem_tensor {
  void *data;
  int32_t dtype; /* stem_dtype */
  int32_t rank;
  int64_t sizes[STEM_MAX_RANK];
  int64_t strides[STEM_MAX_RANK];
} stem_tensor;

/*===-- Context -----------------------------------------------------------===*/

/* Threads, the last error, and later devices. One step at a time. */
typedef struct stem_context stem_context;
/* Execution stream and event of a device, which has them where the CPU has
   none: named now, so that devices come without another interface. */
typedef struct stem_stream stem_stream;
typedef struct stem_event stem_event;

typedef struct stem_context_options {
  uint64_t struct_size;
  int32_t threads; /* 0: one for each physical core */
  int32_t max_isa; /* stem_isa cap; 0: whatever the CPU has */
} stem_context_options;

typedef enum stem_isa {
  STEM_ISA_NATIVE = 0,
  STEM_ISA_AVX2 = 1,
  STEM_ISA_AVX512 = 2,
  STEM_ISA_AVX512_BF16 = 3,
  STEM_ISA_AMX = 4 /* AVX-512 BF16, and bf16 products by AMX tiles */
} stem_isa;

STEM_EXPORT stem_status stem_context_create(const stem_context_options *options,
                                            stem_context **out_context);
STEM_EXPORT void stem_context_destroy(stem_context *context);
STEM_EXPORT const char *stem_context_message(const stem_context *context);
STEM_EXPORT int32_t stem_context_threads(const stem_context *context);
STEM_EXPORT stem_isa stem_context_isa(const stem_context *context);

/* Runs body(captures, task, thread) for every task in [0, tasks), tasks taken
   in rising order by whichever thread is free; thread is less than
   stem_context_threads. */
typedef void (*stem_parallel_body)(void *captures, int64_t task,
                                   int64_t thread);
STEM_EXPORT void stem_parallel_for(stem_context *context, int64_t tasks,
                                   stem_parallel_body body, void *captures);

/*===-- Matrix kernels ----------------------------------------------------===*/

/* Columns of one panel of a packed matrix. */
#define STEM_PANEL 64

/* Layout of a packed K x N matrix: panels of STEM_PANEL columns (the last one
   padded with zeros), each K rows (bf16: pairs of rows interleaved by column,
   K padded to even with zeros) of STEM_PANEL columns. 64-byte aligned. */
typedef struct stem_packed {
  const void *data;
  int32_t dtype; /* STEM_F32 or STEM_BF16 */
  int32_t reserved;
  int64_t rows;    /* K */
  int64_t columns; /* N */
} stem_packed;

STEM_EXPORT int64_t stem_packed_bytes(int32_t dtype, int64_t rows,
                                      int64_t columns);

/* C (M x N, row stride ldc) = A (M x K, row stride lda) * B[k0:k0+K, n0:n0+N],
   plus the old C when accumulate is not 0. B is a b_rows x b_columns matrix in
   the layout of stem_packed whose panels start at `b`: the data of a packed
   weight or a page of the cache. A has the element type of B, b_dtype; sums are
   f32. A row of C depends on that row of A alone, bit for bit, whatever M is.
   k0 and n0 are multiples of STEM_PANEL. Single-threaded. */
STEM_EXPORT void stem_packed_matmul(stem_context *context, const void *a,
                                    int64_t lda, const void *b, int32_t b_dtype,
                                    int64_t b_rows, int64_t b_columns,
                                    int64_t k0, int64_t n0, float *c,
                                    int64_t ldc, int64_t m, int64_t k,
                                    int64_t n, int32_t accumulate);

/* out (count x rows, row stride ldo): out[t, k] = B[k, ids[t]] in f32. Ids lie
   in [0, columns). Single-threaded. */
STEM_EXPORT void stem_packed_gather(const void *b, int32_t b_dtype,
                                    int64_t b_rows, int64_t b_columns,
                                    const int32_t *ids, int64_t count,
                                    float *out, int64_t ldo);

/* Writes x (rows x columns, row stride ldx, columns <= STEM_PANEL) as the first
   rows of a panel of that layout; columns up to STEM_PANEL and the second row
   of a last pair are zeros. Single-threaded. */
STEM_EXPORT void stem_pack_tokens(const void *x, int64_t ldx, int32_t dtype,
                                  int64_t rows, int64_t columns, void *panel);

/* out[n, t] = x[t, n] for x (rows x columns, row stride ldx); out has the row
   stride ldo. Elements are STEM_F32 or STEM_BF16. Single-threaded. */
STEM_EXPORT void stem_transpose_tokens(const void *x, int64_t ldx,
                                       int32_t dtype, int64_t rows,
                                       int64_t columns, void *out, int64_t ldo);

/*===-- Key-value cache ---------------------------------------------------===*/

#define STEM_KV_PAGE 64

/* Pages of STEM_KV_PAGE positions; in a page and head the keys are packed as
   E x 64 and the values as 64 x E, ready for stem_packed_matmul. */
typedef struct stem_kv_cache stem_kv_cache;

typedef struct stem_kv_options {
  uint64_t struct_size;
  int64_t layers;
  int64_t heads; /* key-value heads */
  int64_t head_dim;
  int64_t max_positions; /* of one sequence */
  int64_t max_sequences;
  int32_t dtype; /* STEM_F32 or STEM_BF16 */
  int32_t reserved;
  const int64_t *windows; /* one a layer, 0: none; may be NULL: none at all.
                             A layer with a window keeps a ring of pages. */
  int64_t max_append; /* positions that one reserve may add to a sequence, 0:
                         max_positions. A ring holds window + max_append - 1
                         positions, in whole pages. */
} stem_kv_options;

STEM_EXPORT stem_status stem_kv_create(stem_context *context,
                                       const stem_kv_options *options,
                                       stem_kv_cache **out_cache);
STEM_EXPORT void stem_kv_destroy(stem_kv_cache *cache);
STEM_EXPORT int64_t stem_kv_bytes(const stem_kv_cache *cache);
STEM_EXPORT int64_t stem_kv_length(const stem_kv_cache *cache,
                                   int32_t sequence);
/* Makes room for positions below `length` and sets the sequence's length: all
   allocation, and copying of pages that a fork shares, happens here. `length`
   is at least the present one. Not called from compiled code: a step changes no
   length. */
STEM_EXPORT stem_status stem_kv_reserve(stem_context *context,
                                        stem_kv_cache *cache, int32_t sequence,
                                        int64_t length);
/* Makes `to` a copy of `from`; they share pages until one of them grows. Call
   it between steps: what a reserve made room for must have been appended. */
STEM_EXPORT stem_status stem_kv_fork(stem_context *context,
                                     stem_kv_cache *cache, int32_t from,
                                     int32_t to);
/* Forgets positions from `length` on. A ring may have lost the positions that
   the next query would need: then STEM_OUT_OF_RANGE, and nothing changes. */
STEM_EXPORT stem_status stem_kv_truncate(stem_context *context,
                                         stem_kv_cache *cache, int32_t sequence,
                                         int64_t length);

/* Called from compiled code. k and v are rows of heads * head_dim elements of
   the cache's type, `rows` of them with row strides ldk and ldv. A row whose
   sequence is negative is padding and skipped, as is one at a position that no
   reserve made room for. Calls for different rows may run at once. */
STEM_EXPORT void stem_kv_append(stem_kv_cache *cache, int64_t layer,
                                const void *k, int64_t ldk, const void *v,
                                int64_t ldv, const int32_t *positions,
                                const int32_t *sequences, int64_t rows);
/* The page that holds positions [64 * page, 64 * page + 64); `values` chooses
   between keys and values. Zeros where nothing was appended; a page of zeros
   for a negative sequence and for a page that the cache does not hold. */
STEM_EXPORT const void *stem_kv_page(stem_kv_cache *cache, int64_t layer,
                                     int32_t sequence, int64_t page,
                                     int64_t head, int32_t values);

/*===-- Table store -------------------------------------------------------===*/

/* Rows of the STEM tables of a model, wherever they lie. Every lookup goes
   through: plan once per step, then for each table prefetch, await, release. */
typedef struct stem_table_store stem_table_store;
typedef struct stem_table_plan stem_table_plan;
typedef int64_t stem_ticket;

/* A table of 8-bit rows: row r is minimum[r] + scale[r] * byte in f32, but rows
   of some ids are kept as they were. All of it is kept by the caller while the
   store lives. */
typedef struct stem_byte_rows {
  uint64_t struct_size;
  const float *scale;     /* V */
  const float *minimum;   /* V */
  const int32_t *hot_ids; /* of the rows that are kept, rising */
  int64_t hot_count;
  int32_t hot_dtype;    /* STEM_F32, STEM_BF16, STEM_F16 */
  const void *hot_rows; /* hot_count x F */
  const char *hot_file; /* where `hot_rows` is null: they lie in this file */
  int64_t hot_offset;   /* of the first of them in `hot_file` */
} stem_byte_rows;

typedef struct stem_table_options {
  uint64_t struct_size;
  int64_t rows;         /* V */
  int64_t columns;      /* F */
  int32_t dtype;        /* of the rows: STEM_F32, STEM_BF16, STEM_F16 */
  int32_t writable;     /* not 0: stem_table_write may change `resident` */
  const void *resident; /* V x F, kept by the caller while the store lives */
  const char *name;     /* for messages */
  const char *file;     /* where `resident` is null: V x F lie in this file */
  int64_t offset;       /* of the first row in `file` */
  /* Not null: `dtype` is STEM_F32, and what lies in `resident` or `file` are
     V x F bytes. Rows are decoded into staging. */
  const stem_byte_rows *byte_rows;
} stem_table_options;

typedef struct stem_table_store_options {
  uint64_t struct_size;
  int64_t staging_bytes;  /* for rows of files, see stem_table_staging_bytes */
  int64_t cache_ids;      /* whose rows, of all tables in files, are kept */
  int32_t reader_threads; /* that read them; 0: none, await reads */
} stem_table_store_options;

typedef struct stem_table_statistics {
  uint64_t struct_size;
  uint64_t lookups;     /* ids planned */
  uint64_t unique_rows; /* after deduplication */
  uint64_t bytes_moved; /* between tiers; 0 when resident */
  uint64_t stalls;      /* awaits that found rows missing */
  uint64_t stall_nanoseconds;
  uint64_t bytes_resident;
  uint64_t bytes_in_files;
  uint64_t rows_read;   /* from files */
  uint64_t rows_cached; /* that were wanted of files and had been kept */
  uint64_t evictions;   /* of ids */
} stem_table_statistics;

/* Bytes of staging that a ticket of `rows` different rows takes. */
STEM_EXPORT int64_t stem_table_staging_bytes(int64_t rows, int64_t columns,
                                             int32_t dtype);
/* Bytes of the counts that say whose rows are kept, beside these rows, in a
   store of tables of `rows` rows that keeps those of `cache_ids` ids. */
STEM_EXPORT int64_t stem_table_count_bytes(int64_t rows, int64_t cache_ids);
/* `options` may be null: tables are resident then. */
STEM_EXPORT stem_status stem_table_store_create(
    stem_context *context, const stem_table_store_options *options,
    stem_table_store **out_store);
STEM_EXPORT void stem_table_store_destroy(stem_table_store *store);
/* Opens one more table; tables are numbered from 0 in the order of opening. */
STEM_EXPORT stem_status stem_table_open(stem_context *context,
                                        stem_table_store *store,
                                        const stem_table_options *options);
/* Deduplicates the ids of one step: unique ids in order of first use, and the
   inverse map. The plan belongs to the store and holds until release_plan. An
   id beyond every table fails here, one beyond a smaller table in prefetch. */
STEM_EXPORT stem_status stem_table_make_plan(stem_context *context,
                                             stem_table_store *store,
                                             const int32_t *ids, int64_t count,
                                             stem_table_plan **out_plan);
STEM_EXPORT void stem_table_release_plan(stem_table_store *store,
                                         stem_table_plan *plan);
STEM_EXPORT int64_t stem_table_plan_unique(const stem_table_plan *plan,
                                           const int32_t **out_ids,
                                           const int32_t **out_inverse);
/* Starts reading the plan's rows of a table; those of a resident one are there.
   Fails with STEM_OUT_OF_MEMORY where the staging has no room for them. */
STEM_EXPORT stem_status stem_table_prefetch(stem_context *context,
                                            stem_table_store *store,
                                            int64_t table,
                                            stem_table_plan *plan,
                                            stem_ticket *out_ticket);
/* Gives rows (a matrix with the table's columns and type) and index (one for
   each planned id): table[ids[t]] = rows[index[t]]. Both hold until the ticket
   or its plan is released. Fails with STEM_IO_ERROR where a row cannot be
   read. */
STEM_EXPORT stem_status stem_table_await(stem_context *context,
                                         stem_table_store *store,
                                         stem_ticket ticket,
                                         stem_tensor *out_rows,
                                         stem_tensor *out_index);
/* Ends a ticket; one that is not outstanding is left alone. */
STEM_EXPORT void stem_table_release(stem_table_store *store,
                                    stem_ticket ticket);
/* Replaces rows of a writable table by count x F elements of its type; a write
   is seen by every later await. Of equal ids the last one counts. */
STEM_EXPORT stem_status stem_table_write(stem_context *context,
                                         stem_table_store *store, int64_t table,
                                         const int32_t *ids, int64_t count,
                                         const void *rows);
STEM_EXPORT stem_status stem_table_flush(stem_context *context,
                                         stem_table_store *store);
STEM_EXPORT stem_status stem_table_get_statistics(const stem_table_store *store,
                                                  stem_table_statistics *out);

/*===-- Compiled modules --------------------------------------------------===*/

/* Arguments of an entry, in the order of its description. Each is a
   stem_tensor; a handle argument has dtype STEM_HANDLE. The arena is not among
   them. */
typedef stem_status (*stem_entry_function)(stem_context *context,
                                           const stem_tensor *arguments,
                                           int64_t count, void *arena,
                                           int64_t arena_bytes);

typedef enum stem_argument_kind {
  STEM_ARG_INPUT = 0,  /* ids, positions, ...: given at each step */
  STEM_ARG_OUTPUT = 1, /* written by the step */
  STEM_ARG_PARAM = 2,  /* a stem.param; `key` is the checkpoint's name */
  STEM_ARG_STORE = 3,  /* the table store */
  STEM_ARG_CACHE = 4,  /* the kv cache */
  STEM_ARG_STATE = 5   /* read, and updated in place: of each `key` the weight
                          in f32, then the first and the second moment */
} stem_argument_kind;

/* What the leading size of an argument counts. Those that count the same are
   equal in a step. */
typedef enum stem_argument_rows {
  STEM_ROWS_OTHER = 0,
  STEM_ROWS_TOKENS = 1, /* a positive multiple of the entry's tile */
  STEM_ROWS_OUTPUTS = 2
} stem_argument_rows;

/* What the elements of an i32 vector lie in. */
typedef enum stem_argument_ids {
  STEM_IDS_ANY = 0,
  STEM_IDS_BOUNDED = 1, /* [0, id_bound) */
  STEM_IDS_LABELS = 2,  /* the same, or STEM_NO_LABEL */
  STEM_IDS_TOKENS = 3,  /* [0, tokens of the step) */
  STEM_IDS_OUTPUTS = 4  /* [0, output rows of the step) */
} stem_argument_ids;

/* What a parameter [N, K] is passed as. */
typedef enum stem_argument_packed {
  STEM_PLAIN = 0,
  STEM_PACKED = 1,          /* a stem_packed handle of K x N */
  STEM_PACKED_AS_STORED = 2 /* the same of N x K, for products backwards */
} stem_argument_packed;

/* The label of a token that has none. */
#define STEM_NO_LABEL (-100)

typedef struct stem_argument {
  int64_t name;   /* offset into the entry's texts */
  int64_t key;    /* the same: checkpoint key of a parameter, or of what an
                     output is the gradient or a state the optimizer's of,
                     else "" */
  int32_t kind;   /* stem_argument_kind */
  int32_t dtype;  /* stem_dtype of the elements */
  int32_t packed; /* stem_argument_packed; packed sizes are those of the
                     stem_packed */
  int32_t rank;
  /* -1: dynamic. Of a cache: its layers at least, then, or -1 where the entry
     does not say, heads * head_dim and head_dim. */
  int64_t sizes[STEM_MAX_RANK];
  int64_t
      strides[STEM_MAX_RANK]; /* -1: any; 0: the sizes behind it, multiplied */
  int64_t id_bound;           /* of ids that are bounded, and of labels */
  int32_t rows;               /* stem_argument_rows */
  int32_t ids;                /* stem_argument_ids */
  int32_t element;            /* of a cache: its stem_dtype, -1: any */
  int32_t reserved;
} stem_argument;

typedef struct stem_table_info {
  const char *name;
  const char *key;
  int64_t rows, columns;
  int32_t dtype;
  int32_t reserved;
} stem_table_info;

/* The arena of an entry takes
   fixed_bytes + tokens * bytes_per_token + outputs * bytes_per_output
   + threads * bytes_per_thread. */
typedef struct stem_entry {
  const char *name;
  stem_entry_function function;
  const stem_argument *arguments;
  int64_t argument_count;
  const char *texts;  /* names and keys of the arguments, each ended by a 0 */
  int64_t token_tile; /* the token count is a multiple of this */
  int64_t fixed_bytes;
  int64_t bytes_per_token;
  int64_t bytes_per_output;
  int64_t bytes_per_thread;
  const stem_table_info *tables; /* of the store, if it is an argument */
  int64_t table_count;
} stem_entry;

/* What every entry does first: fails, naming the argument and what it should
   be, unless the arguments are those of `entry`, every id is in range, and the
   arena is aligned to 64 bytes and holds a step of this size. A handle must
   point to an object of its kind: that much is not checked. Gives the bytes of
   the arena that lie before the scratch of the threads. */
STEM_EXPORT stem_status stem_check_entry(stem_context *context,
                                         const stem_entry *entry,
                                         const stem_tensor *arguments,
                                         int64_t count, const void *arena,
                                         int64_t arena_bytes,
                                         int64_t *out_frame_bytes);

typedef struct stem_module {
  uint64_t struct_size;
  int32_t abi_version;
  int32_t isa; /* stem_isa that the code needs */
  const stem_entry *entries;
  int64_t entry_count;
  const stem_table_info *tables;
  int64_t table_count;
} stem_module;

/* The one exported symbol of a module: its description, or NULL when the
   caller's ABI version is another one. */
#define STEM_MODULE_QUERY "stem_module_query"
typedef const stem_module *(*stem_module_query_function)(int32_t abi_version);

#ifdef __cplusplus
} // extern "C"
#endif

#endif /* STEM_C_RUNTIME_H */
