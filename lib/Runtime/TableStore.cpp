//===- TableStore.cpp - Tables in memory and in files ---------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A lookup gives rows and an index into them. Of a resident table these are the
// whole table and the planned ids; of a table in a file, the unique rows of the
// plan, which prefetch starts to read, and the inverse map. Rows of 8 bits are
// decoded there, wherever the table lies. Whoever looks up sees the same
// values. A store serves one step at a time.
//
//===----------------------------------------------------------------------===//

#include "ContextImpl.h"
#include "HandleShapes.h"
#include "HotCache.h"
#include "RowCodec.h"
#include "RowFile.h"
#include "RowReader.h"
#include "StagingPool.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

using namespace stem;

struct stem_table_plan {
  std::vector<int32_t> ids;     /* as planned */
  std::vector<int32_t> unique;  /* in order of first use */
  std::vector<int32_t> inverse; /* ids[t] == unique[inverse[t]] */
  std::vector<int32_t> slots;   /* of the unique ids in the hot cache, or -1 */
  int64_t largestAt = 0;        /* position of the largest id */
};

namespace {

constexpr int kMostReaders = 256;

struct Table {
  int64_t rows, columns;
  int32_t dtype;
  bool writable;
  char *data; /* null: in `file` */
  std::string name;
  RowFile file = {};
  int64_t offset = 0;            /* of the first row in `file` */
  Arena kept = {};               /* the rows of the cache's slots */
  std::vector<bool> isKept = {}; /* of slots: the row of the owner is there */
  std::unique_ptr<RowCodec> codec = {}; /* null: rows are stored as used */

  int64_t rowBytes() const { return columns * elementBytes(dtype); }
  int64_t storedBytes() const {
    return codec ? codec->bytes() : rows * rowBytes();
  }
  int64_t keptBytes() const {
    return codec ? codec->mostRowBytes() : rowBytes();
  }
  const std::string &fileOf(int32_t id) const {
    return codec ? codec->fileOf(id).name() : file.name();
  }
  int64_t offsetOf(int32_t id) const {
    return codec ? codec->offsetOf(id) : offset + id * rowBytes();
  }
  /* The row on its way to its place in staging. */
  RowRead read(int32_t id, char *place) const {
    if (codec)
      return codec->read(id, place + rowBytes() - codec->rowBytes(id));
    return {file.handle(), offsetOf(id), rowBytes(), place};
  }
};

struct Ticket {
  int64_t table;
  stem_table_plan *plan;
  char *staging = nullptr; /* of a table in a file: its rows in the plan */
  std::shared_ptr<RowReader::Batch> reads = nullptr;
  std::vector<int32_t> missing = {}; /* places of the rows that are read */
  bool isReady = false;              /* what was read is there, and decoded */
};

} // namespace

struct stem_table_store {
  explicit stem_table_store(const stem_table_store_options &options)
      : staging(options.staging_bytes), cacheIds(options.cache_ids),
        reader(options.reader_threads) {}

  /// Nothing reads into staging that another ticket may get.
  void end(const Ticket &ticket) {
    if (ticket.reads)
      RowReader::wait(*ticket.reads);
    if (ticket.staging)
      staging.giveBack(ticket.staging);
  }

  void forgetCache() {
    cache = HotCache();
    for (Table &table : tables)
      std::fill(table.isKept.begin(), table.isKept.end(), false);
  }

  StagingPool staging;
  int64_t cacheIds;
  HotCache cache; ///< of ids; made with the first plan
  RowReader reader;
  std::vector<Table> tables;
  /// The table with the most rows bounds the ids of a plan.
  int64_t largest = 0;
  /// Where an id stands in the present plan: valid when its epoch is the
  /// present one, so that a plan costs nothing for the ids it does not use.
  std::vector<uint32_t> epochs;
  std::vector<int32_t> places;
  uint32_t epoch = 0;
  std::unordered_map<stem_table_plan *, std::unique_ptr<stem_table_plan>> plans;
  std::unordered_map<stem_ticket, Ticket> tickets;
  stem_ticket nextTicket = 1;
  stem_table_statistics statistics = {};
};

namespace {

stem_status checkStore(stem_context *context, const stem_table_store *store,
                       const char *function) {
  if (store)
    return STEM_OK;
  return report(context, STEM_INVALID_ARGUMENT, "{}: the store is null",
                function);
}

stem_status checkTable(stem_context *context, const stem_table_store *store,
                       const char *function, int64_t table) {
  if (stem_status status = checkStore(context, store, function))
    return status;
  if (table >= 0 && table < int64_t(store->tables.size()))
    return STEM_OK;
  return report(context, STEM_OUT_OF_RANGE,
                "{}: table {} is out of range: {} tables are open", function,
                table, store->tables.size());
}

stem_status idOutOfRange(stem_context *context, const Table &table, int32_t id,
                         int64_t position) {
  return report(context, STEM_OUT_OF_RANGE,
                "id {} at position {} is out of range: table '{}' has {} rows",
                id, position, table.name, table.rows);
}

/// Fails at the first id that the table does not have.
stem_status checkIds(stem_context *context, const Table &table,
                     const int32_t *ids, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < 0 || ids[i] >= table.rows)
      return idOutOfRange(context, table, ids[i], i);
  return STEM_OK;
}

stem_status checkTableOptions(stem_context *context,
                              const stem_table_options &options,
                              const char *name) {
  if (options.rows < 1 || options.rows > INT32_MAX || options.columns < 1)
    return report(context, STEM_INVALID_ARGUMENT,
                  "table '{}' is {} x {}: it needs 1 to {} rows and at least "
                  "one column",
                  name, options.rows, options.columns, INT32_MAX);
  if (options.dtype != STEM_F32 && options.dtype != STEM_BF16 &&
      options.dtype != STEM_F16)
    return report(context, STEM_INVALID_ARGUMENT,
                  "table '{}' has rows of type {}: wanted f32, bf16 or f16",
                  name, options.dtype);
  int64_t bytes;
  if (__builtin_mul_overflow(options.rows, options.columns, &bytes) ||
      __builtin_mul_overflow(bytes, elementBytes(options.dtype), &bytes))
    return report(context, STEM_INVALID_ARGUMENT,
                  "table '{}' of {} x {} elements has no size", name,
                  options.rows, options.columns);
  if (!options.resident && !options.file)
    return report(context, STEM_INVALID_ARGUMENT,
                  "table '{}' has neither resident data nor a file", name);
  if (!options.resident && options.writable)
    return report(context, STEM_INVALID_ARGUMENT,
                  "table '{}' lies in a file: it cannot be opened as writable",
                  name);
  return STEM_OK;
}

stem_status makeCodec(stem_context *context, const stem_table_options &options,
                      Table &table) {
  try {
    table.codec = std::make_unique<RowCodec>(options);
  } catch (const Error &error) {
    return report(context, STEM_INVALID_ARGUMENT, "table '{}': {}", table.name,
                  error.what());
  }
  return STEM_OK;
}

/// Opens the file and checks that it holds all rows.
stem_status openFile(stem_context *context, const stem_table_options &options,
                     Table &table) {
  if (table.codec) {
    const std::string problem = table.codec->open();
    return problem.empty() ? STEM_OK
                           : report(context, STEM_IO_ERROR, "table '{}' {}",
                                    table.name, problem);
  }
  const std::string problem = table.file.open(options.file);
  if (!problem.empty())
    return report(context, STEM_IO_ERROR, "table '{}': {} cannot be read: {}",
                  table.name, options.file, problem);
  const int64_t bytes = table.rows * table.rowBytes();
  if (options.offset < 0 || options.offset > table.file.size() ||
      bytes > table.file.size() - options.offset)
    return report(context, STEM_INVALID_ARGUMENT,
                  "table '{}' takes {} bytes from byte {} on, but {} has {} "
                  "bytes",
                  table.name, bytes, options.offset, options.file,
                  table.file.size());
  table.offset = options.offset;
  return STEM_OK;
}

char *keptRow(const Table &table, int32_t slot) {
  return static_cast<char *>(table.kept.data()) + slot * table.keptBytes();
}

/// The slot for the row of unique id number `place`; -1 where there is none, or
/// no more: a later id may have taken it.
int32_t slotOf(const stem_table_store &store, const Table &table,
               const stem_table_plan &plan, size_t place) {
  if (plan.slots.empty())
    return -1;
  const int32_t slot = plan.slots[place];
  const bool isThere = slot < int64_t(table.isKept.size()) &&
                       slot < store.cache.capacity() &&
                       store.cache.owner(slot) == plan.unique[place];
  return isThere ? slot : -1;
}

/// Gives each unique id of the plan its slot. An id that takes another's slot
/// finds no rows there.
void useCache(stem_table_store &store, stem_table_plan &plan) {
  if (store.cacheIds == 0)
    return;
  if (store.cache.capacity() == 0) {
    const int64_t ids = store.tables[store.largest].rows;
    store.cache = HotCache(std::min(store.cacheIds, ids), ids);
  }
  for (int32_t id : plan.unique) {
    const HotCache::Place place = store.cache.use(id);
    plan.slots.push_back(place.slot);
    for (Table &table : store.tables)
      if (place.isNew && place.slot < int64_t(table.isKept.size()))
        table.isKept[place.slot] = false;
  }
  store.statistics.evictions = store.cache.evictions();
}

/// Takes the plan's rows from the cache, and lists those to be read.
std::vector<RowRead> fillFromCache(stem_table_store &store, Ticket &ticket) {
  const Table &table = store.tables[ticket.table];
  const stem_table_plan &plan = *ticket.plan;
  const int64_t bytes = table.rowBytes();
  std::vector<RowRead> reads;
  for (size_t i = 0; i < plan.unique.size(); ++i) {
    const RowRead read =
        table.read(plan.unique[i], ticket.staging + int64_t(i) * bytes);
    const int32_t slot = slotOf(store, table, plan, i);
    if (slot >= 0 && table.isKept[slot]) {
      std::memcpy(read.to, keptRow(table, slot), read.bytes);
      continue;
    }
    ticket.missing.push_back(int32_t(i));
    reads.push_back(read);
    store.statistics.bytes_moved += read.bytes;
  }
  store.statistics.rows_read += reads.size();
  store.statistics.rows_cached += plan.unique.size() - reads.size();
  return reads;
}

/// Keeps what was read for ids that have a slot.
void keepRows(stem_table_store &store, const Ticket &ticket) {
  Table &table = store.tables[ticket.table];
  const int64_t bytes = table.rowBytes();
  for (int32_t place : ticket.missing) {
    const int32_t slot = slotOf(store, table, *ticket.plan, place);
    if (slot < 0 || table.isKept[slot])
      continue;
    const RowRead read =
        table.read(ticket.plan->unique[place], ticket.staging + place * bytes);
    std::memcpy(keptRow(table, slot), read.to, read.bytes);
    table.isKept[slot] = true;
  }
}

/// Decodes the plan's rows: a table's in memory, or what was read.
void decodeRows(stem_context *context, const stem_table_store &store,
                const Ticket &ticket) {
  constexpr int64_t kRowsPerTask = 16;
  const Table &table = store.tables[ticket.table];
  const std::vector<int32_t> &ids = ticket.plan->unique;
  const int64_t count = int64_t(ids.size()), bytes = table.rowBytes();
  const int64_t tasks = (count + kRowsPerTask - 1) / kRowsPerTask;
  parallelFor(context, tasks, [&](int64_t task) {
    const int64_t end = std::min(count, (task + 1) * kRowsPerTask);
    for (int64_t i = task * kRowsPerTask; i < end; ++i) {
      char *place = ticket.staging + i * bytes;
      const char *stored =
          table.data ? table.codec->row(ids[i])
                     : static_cast<const char *>(table.read(ids[i], place).to);
      table.codec->decode(ids[i], stored, reinterpret_cast<float *>(place));
    }
  });
}

stem_status takeStaging(stem_context *context, stem_table_store &store,
                        Ticket &ticket) {
  const Table &table = store.tables[ticket.table];
  const int64_t rows = int64_t(ticket.plan->unique.size());
  const int64_t bytes =
      stem_table_staging_bytes(rows, table.columns, table.dtype);
  ticket.staging = store.staging.take(bytes);
  if (!ticket.staging)
    return report(context, STEM_OUT_OF_MEMORY,
                  "table '{}' needs {} bytes of staging for {} rows of this "
                  "step: {} of {} bytes are taken by other tables",
                  table.name, bytes, rows, store.staging.taken(),
                  store.staging.size());
  return STEM_OK;
}

stem_status startReads(stem_context *context, stem_table_store &store,
                       Ticket &ticket) {
  const Table &table = store.tables[ticket.table];
  const std::string change =
      table.codec ? table.codec->change() : table.file.change();
  if (!change.empty())
    return report(context, STEM_IO_ERROR, "table '{}': {}", table.name, change);
  if (stem_status status = takeStaging(context, store, ticket))
    return status;
  ticket.reads = store.reader.start(fillFromCache(store, ticket));
  return STEM_OK;
}

/// What prefetch does for the rows of a ticket.
stem_status startRows(stem_context *context, stem_table_store &store,
                      Ticket &ticket) {
  const Table &table = store.tables[ticket.table];
  if (!table.data)
    return startReads(context, store, ticket);
  if (!table.codec)
    return STEM_OK;
  if (stem_status status = takeStaging(context, store, ticket))
    return status;
  decodeRows(context, store, ticket);
  return STEM_OK;
}

/// Waits for the rows of a ticket.
stem_status finishReads(stem_context *context, stem_table_store &store,
                        Ticket &ticket) {
  if (ticket.isReady)
    return STEM_OK;
  const auto begin = std::chrono::steady_clock::now();
  const RowReader::Outcome outcome = RowReader::wait(*ticket.reads);
  if (outcome.stalled) {
    ++store.statistics.stalls;
    store.statistics.stall_nanoseconds +=
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin)
            .count();
  }
  if (!outcome.failure) {
    keepRows(store, ticket);
    if (store.tables[ticket.table].codec)
      decodeRows(context, store, ticket);
    ticket.isReady = true;
    return STEM_OK;
  }
  const Table &table = store.tables[ticket.table];
  const int32_t id = ticket.plan->unique[ticket.missing[outcome.failure->read]];
  return report(context, STEM_IO_ERROR,
                "table '{}': row {} at byte {} of {} cannot be read: {}",
                table.name, id, table.offsetOf(id), table.fileOf(id),
                outcome.failure->error ? std::strerror(outcome.failure->error)
                                       : "the file ends there");
}

/// Gives every id its place among the unique ids, in one pass.
void deduplicate(stem_table_store &store, stem_table_plan &plan) {
  if (++store.epoch == 0) {
    std::fill(store.epochs.begin(), store.epochs.end(), 0);
    store.epoch = 1;
  }
  for (int32_t id : plan.ids) {
    if (store.epochs[id] != store.epoch) {
      store.epochs[id] = store.epoch;
      store.places[id] = int32_t(plan.unique.size());
      plan.unique.push_back(id);
    }
    plan.inverse.push_back(store.places[id]);
  }
}

} // namespace

int64_t stem::tableCount(const stem_table_store &store) {
  return int64_t(store.tables.size());
}

stem_table_info stem::tableInfo(const stem_table_store &store, int64_t table) {
  const Table &opened = store.tables[table];
  return {opened.name.c_str(), "",           opened.rows,
          opened.columns,      opened.dtype, 0};
}

int64_t stem_table_staging_bytes(int64_t rows, int64_t columns, int32_t dtype) {
  int64_t bytes;
  if (rows < 0 || columns < 1 ||
      __builtin_mul_overflow(rows, columns, &bytes) ||
      __builtin_mul_overflow(bytes, elementBytes(dtype), &bytes))
    return -1;
  return StagingPool::bytesOf(bytes);
}

int64_t stem_table_count_bytes(int64_t rows, int64_t cache_ids) {
  if (rows < 0 || rows > INT32_MAX || cache_ids < 0)
    return -1;
  return HotCache::bytes(std::min(cache_ids, rows), rows);
}

stem_status stem_table_store_create(stem_context *context,
                                    const stem_table_store_options *options,
                                    stem_table_store **out_store) {
  return guarded(context, "stem_table_store_create", [&]() -> stem_status {
    if (!out_store)
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_store_create: out_store is null");
    *out_store = nullptr;
    stem_table_store_options used = {};
    used.struct_size = sizeof(used);
    if (options) {
      if (stem_status status =
              checkStructSize(context, "stem_table_store_options",
                              options->struct_size, sizeof(used)))
        return status;
      used = *options;
    }
    if (used.staging_bytes < 0 || used.cache_ids < 0 ||
        used.reader_threads < 0 || used.reader_threads > kMostReaders)
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_store_create: {} bytes of staging, {} ids in "
                    "the cache and {} threads that read: wanted 0 or more, and "
                    "0 to {} threads",
                    used.staging_bytes, used.cache_ids, used.reader_threads,
                    kMostReaders);
    *out_store = new stem_table_store(used);
    return STEM_OK;
  });
}

void stem_table_store_destroy(stem_table_store *store) {
  if (!store)
    return;
  for (const auto &entry : store->tickets)
    store->end(entry.second);
  delete store;
}

stem_status stem_table_open(stem_context *context, stem_table_store *store,
                            const stem_table_options *options) {
  return guarded(context, "stem_table_open", [&]() -> stem_status {
    if (stem_status status = checkStore(context, store, "stem_table_open"))
      return status;
    if (!options)
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_open: options is null");
    if (stem_status status =
            checkStructSize(context, "stem_table_options", options->struct_size,
                            sizeof(stem_table_options)))
      return status;
    std::string name = options->name ? options->name
                                     : fmt::format("#{}", store->tables.size());
    if (stem_status status = checkTableOptions(context, *options, name.c_str()))
      return status;
    // Written only when the caller says that the memory is writable.
    char *data = static_cast<char *>(const_cast<void *>(options->resident));
    Table table = {options->rows,  options->columns,
                   options->dtype, options->writable != 0,
                   data,           std::move(name)};
    if (options->byte_rows)
      if (stem_status status = makeCodec(context, *options, table))
        return status;
    if (!data) {
      if (stem_status status = openFile(context, *options, table))
        return status;
      const int64_t slots = std::min(store->cacheIds, table.rows);
      table.kept = Arena(slots * table.keptBytes(), "rows that are kept");
      table.isKept.resize(slots);
    }
    if (options->rows > int64_t(store->epochs.size())) {
      store->places.resize(options->rows);
      store->epochs.resize(options->rows);
    }
    (data ? store->statistics.bytes_resident
          : store->statistics.bytes_in_files) += table.storedBytes();
    if (table.codec)
      store->statistics.bytes_resident += table.codec->scaleBytes();
    store->tables.push_back(std::move(table));
    if (options->rows > store->tables[store->largest].rows) {
      store->largest = int64_t(store->tables.size()) - 1;
      store->forgetCache(); // it knows the ids of the tables before
    }
    return STEM_OK;
  });
}

stem_status stem_table_make_plan(stem_context *context, stem_table_store *store,
                                 const int32_t *ids, int64_t count,
                                 stem_table_plan **out_plan) {
  return guarded(context, "stem_table_make_plan", [&]() -> stem_status {
    if (stem_status status = checkStore(context, store, "stem_table_make_plan"))
      return status;
    if (!out_plan || count < 0 || count > INT32_MAX || (count > 0 && !ids))
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_make_plan: {} ids at address {}, plan to be "
                    "left at address {}",
                    count, static_cast<const void *>(ids),
                    static_cast<void *>(out_plan));
    *out_plan = nullptr;
    if (store->tables.empty())
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_make_plan: no table is open");
    if (stem_status status =
            checkIds(context, store->tables[store->largest], ids, count))
      return status;
    auto plan = std::make_unique<stem_table_plan>();
    if (count > 0) {
      plan->ids.assign(ids, ids + count);
      plan->largestAt = std::max_element(ids, ids + count) - ids;
    }
    plan->inverse.reserve(count);
    deduplicate(*store, *plan);
    useCache(*store, *plan);
    stem_table_plan *key = plan.get();
    store->statistics.lookups += count;
    store->statistics.unique_rows += plan->unique.size();
    store->plans.emplace(key, std::move(plan));
    *out_plan = key;
    return STEM_OK;
  });
}

void stem_table_release_plan(stem_table_store *store, stem_table_plan *plan) {
  if (!store || !store->plans.count(plan))
    return;
  std::erase_if(store->tickets, [&](const auto &entry) {
    const bool isOfPlan = entry.second.plan == plan;
    if (isOfPlan)
      store->end(entry.second);
    return isOfPlan;
  });
  store->plans.erase(plan);
}

int64_t stem_table_plan_unique(const stem_table_plan *plan,
                               const int32_t **out_ids,
                               const int32_t **out_inverse) {
  if (out_ids)
    *out_ids = plan ? plan->unique.data() : nullptr;
  if (out_inverse)
    *out_inverse = plan ? plan->inverse.data() : nullptr;
  return plan ? int64_t(plan->unique.size()) : 0;
}

stem_status stem_table_prefetch(stem_context *context, stem_table_store *store,
                                int64_t table, stem_table_plan *plan,
                                stem_ticket *out_ticket) {
  return guarded(context, "stem_table_prefetch", [&]() -> stem_status {
    if (out_ticket)
      *out_ticket = 0;
    if (stem_status status =
            checkTable(context, store, "stem_table_prefetch", table))
      return status;
    if (!out_ticket)
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_prefetch: out_ticket is null");
    if (!store->plans.count(plan))
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_prefetch: the plan is not one of this store's, "
                    "or was released");
    const Table &wanted = store->tables[table];
    if (!plan->ids.empty() && plan->ids[plan->largestAt] >= wanted.rows)
      return idOutOfRange(context, wanted, plan->ids[plan->largestAt],
                          plan->largestAt);
    // Outstanding before it takes staging: whatever fails, its plan ends it.
    const stem_ticket given = store->nextTicket++;
    Ticket &ticket =
        store->tickets.emplace(given, Ticket{table, plan}).first->second;
    if (stem_status status = startRows(context, *store, ticket)) {
      stem_table_release(store, given);
      return status;
    }
    *out_ticket = given;
    return STEM_OK;
  });
}

stem_status stem_table_await(stem_context *context, stem_table_store *store,
                             stem_ticket ticket, stem_tensor *out_rows,
                             stem_tensor *out_index) {
  return guarded(context, "stem_table_await", [&]() -> stem_status {
    if (stem_status status = checkStore(context, store, "stem_table_await"))
      return status;
    if (!out_rows || !out_index)
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_await: {} is null",
                    out_rows ? "out_index" : "out_rows");
    auto found = store->tickets.find(ticket);
    if (found == store->tickets.end())
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_await: ticket {} is not outstanding: it was "
                    "never given, or it or its plan was released",
                    ticket);
    Ticket &awaited = found->second;
    if (awaited.reads)
      if (stem_status status = finishReads(context, *store, awaited))
        return status;
    const Table &table = store->tables[awaited.table];
    stem_table_plan &plan = *awaited.plan;
    const int64_t rows =
        awaited.staging ? int64_t(plan.unique.size()) : table.rows;
    *out_rows = {awaited.staging ? awaited.staging : table.data,
                 table.dtype,
                 2,
                 {rows, table.columns},
                 {table.columns, 1}};
    *out_index = {awaited.staging ? plan.inverse.data() : plan.ids.data(),
                  STEM_I32,
                  1,
                  {int64_t(plan.ids.size())},
                  {1}};
    return STEM_OK;
  });
}

void stem_table_release(stem_table_store *store, stem_ticket ticket) {
  if (!store)
    return;
  const auto found = store->tickets.find(ticket);
  if (found == store->tickets.end())
    return;
  store->end(found->second);
  store->tickets.erase(found);
}

stem_status stem_table_write(stem_context *context, stem_table_store *store,
                             int64_t table, const int32_t *ids, int64_t count,
                             const void *rows) {
  return guarded(context, "stem_table_write", [&]() -> stem_status {
    if (stem_status status =
            checkTable(context, store, "stem_table_write", table))
      return status;
    const Table &written = store->tables[table];
    if (!written.writable)
      return report(context, STEM_INVALID_ARGUMENT,
                    "table '{}' cannot be written: it was opened without "
                    "`writable`",
                    written.name);
    if (count < 0 || (count > 0 && (!ids || !rows)))
      return report(context, STEM_INVALID_ARGUMENT,
                    "stem_table_write: {} rows at address {}, ids at address "
                    "{}",
                    count, rows, static_cast<const void *>(ids));
    if (stem_status status = checkIds(context, written, ids, count))
      return status;
    auto source = static_cast<const char *>(rows);
    int64_t bytes = written.rowBytes();
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(written.data + ids[i] * bytes, source + i * bytes, bytes);
    return STEM_OK;
  });
}

stem_status stem_table_flush(stem_context *context, stem_table_store *store) {
  // Rows are written where they lie: nothing waits.
  return checkStore(context, store, "stem_table_flush");
}

stem_status stem_table_get_statistics(const stem_table_store *store,
                                      stem_table_statistics *out) {
  if (!store || !out)
    return STEM_INVALID_ARGUMENT;
  if (out->struct_size != sizeof(stem_table_statistics))
    return STEM_INCOMPATIBLE;
  *out = store->statistics;
  out->struct_size = sizeof(stem_table_statistics);
  return STEM_OK;
}
