//===- EntryCheck.cpp - What a compiled entry accepts ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ContextImpl.h"
#include "HandleShapes.h"

#include "stem/Runtime/Module.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

using namespace stem;

namespace {

const char *typeName(int32_t dtype) {
  switch (dtype) {
  case STEM_F32:
    return "f32";
  case STEM_BF16:
    return "bf16";
  case STEM_F16:
    return "f16";
  case STEM_I32:
    return "i32";
  case STEM_I8:
    return "i8";
  case STEM_HANDLE:
    return "handle";
  case -1:
    return "any type";
  default:
    return "unknown type";
  }
}

std::string sizeText(int64_t size) {
  return size < 0 ? "?" : std::to_string(size);
}

/// "f32 [?, 64]"
std::string describe(int32_t dtype, int32_t rank, const int64_t *sizes) {
  std::string text = typeName(dtype);
  text += " [";
  for (int32_t dim = 0; dim < std::min(rank, STEM_MAX_RANK); ++dim) {
    text += dim ? ", " : "";
    text += sizeText(sizes[dim]);
  }
  return text + "]";
}

std::string describeCache(int64_t layers, int64_t row, int64_t headDim,
                          int32_t dtype) {
  return fmt::format("{} layers of {} with rows of {} in heads of {}", layers,
                     typeName(dtype), sizeText(row), sizeText(headDim));
}

std::string describe(const stem_table_info &table) {
  return fmt::format("{} [{}, {}]", typeName(table.dtype), table.rows,
                     table.columns);
}

class EntryCheck {
public:
  EntryCheck(stem_context *context, const stem_entry &entry,
             const stem_tensor *arguments)
      : context(context), entry(entry), arguments(arguments) {}

  stem_status run(int64_t *outFrameBytes, const void *arena,
                  int64_t arenaBytes);

private:
  const char *nameOf(const stem_argument &argument) const {
    return entry.texts + argument.name;
  }
  template <typename... Args>
  stem_status refuse(const stem_argument &argument,
                     fmt::format_string<Args...> format, Args &&...args) {
    return report(context, STEM_INVALID_ARGUMENT, "{}: argument '{}' {}",
                  entry.name, nameOf(argument),
                  fmt::format(format, std::forward<Args>(args)...));
  }
  stem_status checkPacked(const stem_argument &wanted,
                          const stem_packed &packed);
  stem_status checkCache(const stem_argument &wanted,
                         const stem_kv_cache &cache);
  stem_status checkStore(const stem_argument &wanted,
                         const stem_table_store &store);
  stem_status checkHandle(const stem_argument &wanted, const stem_tensor &seen);
  stem_status checkShape(const stem_argument &wanted, const stem_tensor &seen);
  stem_status checkStrides(const stem_argument &wanted,
                           const stem_tensor &seen);
  stem_status checkRows(const stem_argument &wanted, const stem_tensor &seen);
  stem_status checkIds(const stem_argument &wanted, const stem_tensor &seen);
  stem_status checkArgument(const stem_argument &wanted,
                            const stem_tensor &seen);
  stem_status checkArena(const void *arena, int64_t arenaBytes, int64_t needed);

  stem_context *context;
  const stem_entry &entry;
  const stem_tensor *arguments;
  /// By stem_argument_rows; -1: no argument so far.
  int64_t rows[3] = {-1, -1, -1};
};

stem_status EntryCheck::checkPacked(const stem_argument &wanted,
                                    const stem_packed &packed) {
  if (packed.dtype == wanted.dtype && packed.rows == wanted.sizes[0] &&
      packed.columns == wanted.sizes[1] && packed.data)
    return STEM_OK;
  return refuse(wanted,
                "is a packed {} matrix of {} x {} at address {}, expected {} "
                "of {} x {}",
                typeName(packed.dtype), packed.rows, packed.columns,
                packed.data, typeName(wanted.dtype), wanted.sizes[0],
                wanted.sizes[1]);
}

stem_status EntryCheck::checkCache(const stem_argument &wanted,
                                   const stem_kv_cache &cache) {
  const CacheShape seen = cacheShape(cache);
  int64_t layers = wanted.sizes[0], row = wanted.sizes[1],
          headDim = wanted.sizes[2], seenRow = seen.heads * seen.headDim;
  auto fits = [](int64_t have, int64_t want) {
    return want < 0 || have == want;
  };
  if (seen.layers >= layers && fits(seenRow, row) &&
      fits(seen.headDim, headDim) && fits(seen.dtype, wanted.element))
    return STEM_OK;
  return refuse(wanted, "is a cache of {}, expected at least {}",
                describeCache(seen.layers, seenRow, seen.headDim, seen.dtype),
                describeCache(layers, row, headDim, wanted.element));
}

stem_status EntryCheck::checkStore(const stem_argument &wanted,
                                   const stem_table_store &store) {
  if (tableCount(store) != entry.table_count)
    return refuse(wanted, "is a store of {} tables, expected {}",
                  tableCount(store), entry.table_count);
  for (int64_t i = 0; i < entry.table_count; ++i) {
    const stem_table_info seen = tableInfo(store, i), &table = entry.tables[i];
    if (seen.rows != table.rows || seen.columns != table.columns ||
        seen.dtype != table.dtype)
      return refuse(wanted, "has as table {} '{}', {}, expected '{}', {}", i,
                    seen.name, describe(seen), table.name, describe(table));
  }
  return STEM_OK;
}

stem_status EntryCheck::checkHandle(const stem_argument &wanted,
                                    const stem_tensor &seen) {
  if (seen.dtype != STEM_HANDLE || !seen.data)
    return refuse(wanted, "is {} at address {}, expected a handle",
                  typeName(seen.dtype), seen.data);
  if (wanted.packed)
    return checkPacked(wanted, *static_cast<const stem_packed *>(seen.data));
  if (wanted.kind == STEM_ARG_CACHE)
    return checkCache(wanted, *static_cast<const stem_kv_cache *>(seen.data));
  if (wanted.kind == STEM_ARG_STORE)
    return checkStore(wanted,
                      *static_cast<const stem_table_store *>(seen.data));
  return STEM_OK;
}

stem_status EntryCheck::checkShape(const stem_argument &wanted,
                                   const stem_tensor &seen) {
  bool fits = seen.dtype == wanted.dtype && seen.rank == wanted.rank;
  bool isEmpty = false;
  for (int32_t dim = 0; fits && dim < wanted.rank; ++dim) {
    fits = wanted.sizes[dim] < 0 ? seen.sizes[dim] >= 0
                                 : seen.sizes[dim] == wanted.sizes[dim];
    isEmpty |= seen.sizes[dim] == 0;
  }
  if (!fits)
    return refuse(wanted, "is {}, expected {}",
                  describe(seen.dtype, seen.rank, seen.sizes),
                  describe(wanted.dtype, wanted.rank, wanted.sizes));
  if (!seen.data && !isEmpty)
    return refuse(wanted, "has no data");
  return STEM_OK;
}

stem_status EntryCheck::checkStrides(const stem_argument &wanted,
                                     const stem_tensor &seen) {
  int64_t dense = 1;
  for (int32_t dim = wanted.rank - 1; dim >= 0; --dim) {
    int64_t stride = wanted.strides[dim] == 0 ? dense : wanted.strides[dim];
    if (stride > 0 && seen.strides[dim] != stride)
      return refuse(wanted, "has stride {} in dimension {}, expected {}",
                    seen.strides[dim], dim, stride);
    if (__builtin_mul_overflow(dense, seen.sizes[dim], &dense))
      return refuse(wanted, "is too large: {}",
                    describe(seen.dtype, seen.rank, seen.sizes));
  }
  return STEM_OK;
}

stem_status EntryCheck::checkRows(const stem_argument &wanted,
                                  const stem_tensor &seen) {
  if (wanted.rows == STEM_ROWS_OTHER)
    return STEM_OK;
  int64_t count = seen.sizes[0];
  int64_t &known = rows[wanted.rows];
  if (known >= 0 && count != known)
    return refuse(wanted, "has {} rows, but other arguments have {}", count,
                  known);
  known = count;
  if (count > std::numeric_limits<int32_t>::max())
    return refuse(wanted, "has {} rows; the most is 2147483647", count);
  if (wanted.rows == STEM_ROWS_TOKENS &&
      (count == 0 || count % entry.token_tile != 0))
    return refuse(wanted, "has {} rows, expected a positive multiple of {}",
                  count, entry.token_tile);
  return STEM_OK;
}

stem_status EntryCheck::checkIds(const stem_argument &wanted,
                                 const stem_tensor &seen) {
  if (wanted.ids == STEM_IDS_ANY)
    return STEM_OK;
  const auto *ids = static_cast<const int32_t *>(seen.data);
  bool areLabels = wanted.ids == STEM_IDS_LABELS;
  int64_t bound = wanted.ids == STEM_IDS_TOKENS    ? rows[STEM_ROWS_TOKENS]
                  : wanted.ids == STEM_IDS_OUTPUTS ? rows[STEM_ROWS_OUTPUTS]
                                                   : wanted.id_bound;
  for (int64_t i = 0; i < seen.sizes[0]; ++i) {
    int64_t id = ids[i * seen.strides[0]];
    if ((id < 0 || id >= bound) && !(areLabels && id == STEM_NO_LABEL))
      return report(context, STEM_OUT_OF_RANGE,
                    "{}: '{}' has {} at position {}, which is out of range: "
                    "expected 0 to {}{}",
                    entry.name, nameOf(wanted), id, i, bound - 1,
                    areLabels ? fmt::format(" or {}", STEM_NO_LABEL) : "");
  }
  return STEM_OK;
}

stem_status EntryCheck::checkArgument(const stem_argument &wanted,
                                      const stem_tensor &seen) {
  if (wanted.packed || wanted.dtype == STEM_HANDLE)
    return checkHandle(wanted, seen);
  for (auto check : {&EntryCheck::checkShape, &EntryCheck::checkStrides,
                     &EntryCheck::checkRows})
    if (stem_status status = (this->*check)(wanted, seen))
      return status;
  return STEM_OK;
}

stem_status EntryCheck::checkArena(const void *arena, int64_t arenaBytes,
                                   int64_t needed) {
  if (arenaBytes < needed)
    return report(context, STEM_OUT_OF_MEMORY,
                  "{}: the arena has {} bytes, but this step takes {}",
                  entry.name, arenaBytes, needed);
  if (reinterpret_cast<uintptr_t>(arena) % 64 != 0)
    return report(context, STEM_INVALID_ARGUMENT,
                  "{}: the arena at {} is not aligned to 64 bytes", entry.name,
                  arena);
  return STEM_OK;
}

stem_status EntryCheck::run(int64_t *outFrameBytes, const void *arena,
                            int64_t arenaBytes) {
  for (int64_t i = 0; i < entry.argument_count; ++i)
    if (stem_status status = checkArgument(entry.arguments[i], arguments[i]))
      return status;
  // Now that the number of tokens is known.
  for (int64_t i = 0; i < entry.argument_count; ++i)
    if (stem_status status = checkIds(entry.arguments[i], arguments[i]))
      return status;
  int64_t threads = stem_context_threads(context);
  int64_t needed =
      stem::arenaBytes(entry, std::max<int64_t>(rows[STEM_ROWS_TOKENS], 0),
                       std::max<int64_t>(rows[STEM_ROWS_OUTPUTS], 0), threads);
  *outFrameBytes = needed - threads * entry.bytes_per_thread;
  return checkArena(arena, arenaBytes, needed);
}

} // namespace

stem_status stem_check_entry(stem_context *context, const stem_entry *entry,
                             const stem_tensor *arguments, int64_t count,
                             const void *arena, int64_t arena_bytes,
                             int64_t *out_frame_bytes) {
  return guarded(context, "stem_check_entry", [&]() -> stem_status {
    if (!context)
      return STEM_INVALID_ARGUMENT;
    if (count != entry->argument_count || (count > 0 && !arguments))
      return report(context, STEM_INVALID_ARGUMENT,
                    "{} got {} arguments at address {}, expected {}",
                    entry->name, count, static_cast<const void *>(arguments),
                    entry->argument_count);
    return EntryCheck(context, *entry, arguments)
        .run(out_frame_bytes, arena, arena_bytes);
  });
}
