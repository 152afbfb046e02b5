//===- EngineWeights.cpp - Weights in the form that compiled code reads ---===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EngineWeights.h"

#include "EngineMemory.h"

#include "stem/Runtime/Context.h"
#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Runtime/Tensor.h"
#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

namespace {

constexpr int64_t kAlignment = 64;
/// Of tables in a file of their own: rows of whole pages lie in as many.
constexpr int64_t kFileAlignment = 4096;

/// The type in a checkpoint; other types of the runtime are no weight's.
DType weightType(int32_t dtype) {
  switch (dtype) {
  case STEM_F32:
    return DType::F32;
  case STEM_BF16:
    return DType::BF16;
  case STEM_F16:
    return DType::F16;
  case STEM_I32:
    return DType::I32;
  default:
    fail("a module asks for a weight of type {}, which is no weight's", dtype);
  }
}

/// The numbers of a module come from a file, and memory is laid out by them.
[[noreturn]] void refuseSize(const char *key, const char *why) {
  fail("the compiled module is damaged: tensor '{}' {}; compile it again "
       "(--no-compile-cache)",
       key, why);
}

int64_t plainBytes(const char *key, int32_t dtype,
                   std::span<const int64_t> sizes) {
  int64_t bytes = static_cast<int64_t>(dtypeBlockBytes(weightType(dtype)));
  for (int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      refuseSize(key, "has no size in bytes");
  return bytes;
}

/// What is read goes where the module's numbers say.
void checkElements(const TensorInfo &info, std::span<const int64_t> sizes) {
  uint64_t wanted = 1;
  for (int64_t size : sizes)
    wanted *= static_cast<uint64_t>(size);
  if (info.elements() != wanted)
    fail("tensor \"{}\" {} has {} elements, but the compiled module takes {}; "
         "compile it again (--no-compile-cache)",
         info.name, formatShape(info.shape), info.elements(), wanted);
}

/// Rows of one task: about a megabyte, and an even number for packMatrix.
int64_t rowsPerTask(int64_t rowElements) {
  return std::max<int64_t>(64, (1 << 18) / std::max<int64_t>(rowElements, 2) /
                                   2 * 2);
}

/// A packed matrix and which way a checkpoint's rows lie in it.
struct PackedForm {
  PackTarget target;
  bool asStored; ///< rows are rows; else columns

  int64_t rows() const { return asStored ? target.k : target.n; }
  int64_t rowElements() const { return asStored ? target.n : target.k; }
  void pack(int64_t first, int64_t count, const void *data) const {
    const PackSource source = {data, target.dtype, rowElements()};
    packFrom(first, count, source);
  }
  void packFrom(int64_t first, int64_t count, const PackSource &source) const {
    (asStored ? packMatrix : packWeight)(target, first, count, source);
  }
};

PackedForm packedForm(const stem_argument &argument, void *data) {
  return {{data, static_cast<stem_dtype>(argument.dtype), argument.sizes[0],
           argument.sizes[1]},
          argument.packed == STEM_PACKED_AS_STORED};
}

/// Packs `[N, K]` rows as they are read.
void loadPacked(const TensorSource &source, const TensorInfo &info,
                const PackedForm &form, stem_context *context) {
  const PackTarget &target = form.target;
  if (info.rowElements() != static_cast<uint64_t>(form.rowElements()))
    fail("tensor \"{}\" {} does not have the rows of {} elements of the packed "
         "{} x {} matrix that the compiled module takes; compile it again "
         "(--no-compile-cache)",
         info.name, formatShape(info.shape), form.rowElements(), target.k,
         target.n);
  int64_t step = rowsPerTask(form.rowElements());
  int64_t tasks = (form.rows() + step - 1) / step;
  bool isF32 = target.dtype == STEM_F32;
  parallelFor(context, tasks, [&](int64_t task) {
    int64_t first = task * step;
    int64_t count = std::min(step, form.rows() - first);
    std::vector<float> wide(isF32 ? count * form.rowElements() : 0);
    std::vector<uint16_t> narrow(isF32 ? 0 : count * form.rowElements());
    if (isF32)
      source.readF32(info.name, first, count, wide.data());
    else
      source.readBF16(info.name, first, count, narrow.data());
    const void *data = isF32 ? static_cast<const void *>(wide.data())
                             : static_cast<const void *>(narrow.data());
    form.pack(first, count, data);
    source.release(info.name, first, count);
  });
  source.release(info.name);
}

/// Reads ids, which the checkpoint has compared with its vocabulary.
void loadIds(const TensorSource &source, const TensorInfo &info,
             std::byte *target) {
  std::vector<int64_t> ids(info.elements());
  source.readRaw(info.name, 0, info.rows(),
                 reinterpret_cast<std::byte *>(ids.data()));
  std::copy(ids.begin(), ids.end(), reinterpret_cast<int32_t *>(target));
}

/// Reads rows as they are laid out, converted to `dtype`: from any type to f32
/// and bf16, from i64 to i32, to others from themselves.
void loadPlain(const TensorSource &source, const TensorInfo &info,
               int32_t dtype, std::byte *target, stem_context *context) {
  const DType wanted = weightType(dtype);
  if (wanted == DType::I32 && info.dtype == DType::I64)
    return loadIds(source, info, target);
  if (wanted != DType::F32 && wanted != DType::BF16 && wanted != info.dtype)
    fail("tensor \"{}\" has elements of type {}, but the compiled module takes "
         "{}; compile it again (--no-compile-cache)",
         info.name, dtypeName(info.dtype), dtypeName(wanted));
  int64_t rows = info.rows(), rowElements = info.rowElements();
  int64_t step = rowsPerTask(rowElements);
  int64_t rowBytes = rowElements * elementBytes(dtype);
  parallelFor(context, (rows + step - 1) / step, [&](int64_t task) {
    int64_t first = task * step;
    int64_t count = std::min(step, rows - first);
    std::byte *out = target + first * rowBytes;
    if (dtype == STEM_F32)
      source.readF32(info.name, first, count, reinterpret_cast<float *>(out));
    else if (dtype == STEM_BF16)
      source.readBF16(info.name, first, count,
                      reinterpret_cast<uint16_t *>(out));
    else
      source.readRaw(info.name, first, count, out);
    source.release(info.name, first, count);
  });
  source.release(info.name);
}

void setPacked(const PackedForm &form, std::span<const float> values,
               stem_context *context) {
  const int64_t step = rowsPerTask(form.rowElements());
  parallelFor(context, (form.rows() + step - 1) / step, [&](int64_t task) {
    const int64_t first = task * step;
    const PackSource rows = {values.data() + first * form.rowElements(),
                             STEM_F32, form.rowElements()};
    form.packFrom(first, std::min(step, form.rows() - first), rows);
  });
}

/// Vectors and plain matrices: of the types that are trained.
void setPlain(int32_t dtype, std::span<const float> values, std::byte *target) {
  if (dtype == STEM_F32)
    std::copy(values.begin(), values.end(), reinterpret_cast<float *>(target));
  else if (dtype == STEM_BF16)
    std::transform(values.begin(), values.end(),
                   reinterpret_cast<uint16_t *>(target), f32ToBF16);
  else
    fail("a weight of the runtime's type {} cannot be set: only f32 and bf16 "
         "are trained",
         dtype);
}

} // namespace

int64_t stem::parameterBytes(const char *key, const stem_argument &argument) {
  if (argument.rank < 0 || argument.rank > STEM_MAX_RANK ||
      (argument.packed && argument.rank != 2))
    refuseSize(key, "has a rank that none has");
  std::span sizes(argument.sizes, static_cast<size_t>(argument.rank));
  int64_t plain = plainBytes(key, argument.dtype, sizes);
  return argument.packed ? packedBytes(static_cast<stem_dtype>(argument.dtype),
                                       sizes[0], sizes[1])
                         : plain;
}

void stem::loadParameter(const TensorSource &source, const std::string &key,
                         const stem_argument &argument, std::byte *target,
                         stem_context *context) {
  const TensorInfo &info = source.get(key);
  checkElements(info, {argument.sizes, static_cast<size_t>(argument.rank)});
  if (argument.packed)
    loadPacked(source, info, packedForm(argument, target), context);
  else
    loadPlain(source, info, argument.dtype, target, context);
}

static int64_t tableBytesOf(const stem_table_info &table) {
  const int64_t sizes[] = {table.rows, table.columns};
  return plainBytes(table.key, table.dtype, sizes);
}

int64_t stem::readingBytes(const ModelConfig &config, int threads) {
  const int64_t widest = static_cast<int64_t>(
      std::max(config.hiddenSize, config.intermediateSize));
  const int64_t rows = rowsPerTask(widest) * widest * int64_t(sizeof(float));
  // What a source gives back with a range, see MappedFile.
  constexpr int64_t window = 2 << 20;
  return threads * (2 * rows + 2 * window);
}

EngineWeights::EngineWeights(std::span<const stem_entry *const> entries,
                             std::span<const stem_table_info> tableInfos,
                             const TablePlaces &places,
                             std::filesystem::path folder,
                             const TensorSource *source)
    : tables(tableInfos.begin(), tableInfos.end()),
      isOwnFile(places.all == TablePlacement::OwnFile),
      folder(std::move(folder)) {
  int64_t offset = 0;
  int64_t alignment = kAlignment;
  auto advance = [&](const char *key, int64_t bytes) {
    if (__builtin_add_overflow(offset, bytes, &offset) ||
        __builtin_add_overflow(offset, -offset & (alignment - 1), &offset))
      refuseSize(key, "does not fit behind the others");
  };
  for (const stem_entry *entry : entries) {
    for (int64_t i = 0; i < entry->argument_count; ++i) {
      const stem_argument &argument = entry->arguments[i];
      if (argument.kind != STEM_ARG_PARAM)
        continue;
      const Key key = keyOf(*entry, argument);
      if (slots.contains(key))
        continue;
      slots[key] = {argument, offset, {}};
      advance(key.first.c_str(),
              stem::parameterBytes(key.first.c_str(), argument));
    }
  }
  bytesOfParameters = offset;
  if (isOwnFile) {
    offset = 0;
    alignment = kFileAlignment;
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    const std::string key = tables[i].key;
    tableOffsets.push_back(offset);
    tableFiles.emplace_back();
    placeOf.push_back(places.of(key));
    if (source && ByteTable::isOne(*source, key))
      byteTables.try_emplace(i, *source, key);
    else if (!isInFile(i))
      advance(tables[i].key, tableBytesOf(tables[i]));
  }
  if (!isOwnFile)
    bytesOfTables = offset - bytesOfParameters;
}

int64_t EngineWeights::tableBytes() const {
  int64_t sum = sumOfBytes({bytesOfTables, scaleBytes()});
  for (const auto &[number, table] : byteTables)
    sum = sumOfBytes({sum, isInFile(number) ? 0 : table.rowBytes()});
  return sum;
}

int64_t EngineWeights::scaleBytes() const {
  int64_t sum = 0;
  for (const auto &[number, table] : byteTables)
    sum = sumOfBytes({sum, table.scaleBytes()});
  return sum;
}

int64_t EngineWeights::tableBytesInFiles() const {
  if (isOwnFile)
    return tables.empty() ? 0
                          : tableOffsets.back() + tableBytesOf(tables.back());
  int64_t sum = 0;
  for (size_t i = 0; i < tables.size(); ++i)
    if (isInFile(i))
      sum = sumOfBytes({sum, rowBytes(i)});
  return sum;
}

int64_t EngineWeights::rowBytes(size_t table) const {
  const auto found = byteTables.find(table);
  return found == byteTables.end() ? tableBytesOf(tables[table])
                                   : found->second.rowBytes();
}

std::vector<PlacedTable>
EngineWeights::placedTables(const ModelWeights &weights) const {
  std::vector<PlacedTable> placed;
  for (size_t layer = 0; layer < weights.layers.size(); ++layer)
    for (size_t i = 0; i < tables.size(); ++i)
      if (weights.layers[layer].upTable == tables[i].key)
        placed.push_back({layer, isInFile(i), rowBytes(i)});
  return placed;
}

std::vector<FileRows> EngineWeights::rowsInFile() const {
  std::vector<FileRows> parts;
  if (isOwnFile)
    for (size_t i = 0; i < tables.size(); ++i)
      parts.push_back({tables[i].key, tableRows(i), tables[i].rows,
                       tableBytesOf(tables[i]) / tables[i].rows,
                       ownFile.file()});
  return parts;
}

bool EngineWeights::isStaged(size_t table) const {
  return isInFile(table) || byteTables.contains(table);
}

int64_t EngineWeights::stagedTables() const {
  int64_t count = 0;
  for (size_t i = 0; i < tables.size(); ++i)
    count += isStaged(i);
  return count;
}

int64_t EngineWeights::stagingBytes(int64_t tokens,
                                    int64_t tablesAtOnce) const {
  int64_t all = 0, largest = 0, bytes = 0;
  // What tables of one width give back fits the next. Others may leave gaps
  // between their parts: they have room side by side.
  bool areAlike = true;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (!isStaged(i))
      continue;
    const int64_t own = stem_table_staging_bytes(
        std::min(tokens, tables[i].rows), tables[i].columns, tables[i].dtype);
    areAlike = areAlike && (all == 0 || own == largest);
    largest = std::max(largest, own);
    all = sumOfBytes({all, own});
  }
  if (!areAlike || tablesAtOnce >= stagedTables() ||
      __builtin_mul_overflow(largest, tablesAtOnce, &bytes))
    return all;
  return bytes;
}

int64_t EngineWeights::keptBytes(int64_t ids) const {
  int64_t sum = 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (!isInFile(i))
      continue;
    const auto found = byteTables.find(i);
    const int64_t row = found == byteTables.end()
                            ? tableBytesOf(tables[i]) / tables[i].rows
                            : found->second.mostRowBytes();
    sum = sumOfBytes({sum, row * std::min(ids, tables[i].rows)});
  }
  return sum;
}

/// Reads table `index` into memory, or finds its place in the files.
void EngineWeights::loadTable(size_t index, const TensorSource &source,
                              stem_context *context) {
  const stem_table_info &table = tables[index];
  const TensorInfo &info = source.get(table.key);
  const int64_t sizes[] = {table.rows, table.columns};
  checkElements(info, sizes);
  if (const auto found = byteTables.find(index); found != byteTables.end())
    return found->second.load(source, isInFile(index), context);
  if (info.dtype == DType::U8)
    fail("{}: tensor \"{}\" has rows of 8 bits, which cannot be used here",
         info.file.string(), info.name);
  if (!isInFile(index))
    return loadPlain(source, info, table.dtype, tableRows(index), context);
  if (info.dtype != weightType(table.dtype))
    fail(
        "{}: tensor \"{}\" holds {}, its rows are used as {}: they cannot stay "
        "in the file; choose --tables=resident, or --table-place for this "
        "layer",
        info.file.string(), info.name, dtypeName(info.dtype),
        dtypeName(weightType(table.dtype)));
  const std::optional<uint64_t> offset = source.offsetInFile(table.key);
  if (!offset)
    fail("{}: rows of tensor \"{}\" come from a row overlay (--rows, "
         "--swap-rows) or are not stored one after the other: they cannot stay "
         "in the file; choose --tables=resident, or --table-place for this "
         "layer",
         info.file.string(), info.name);
  tableFiles[index] = info.file.string();
  tableOffsets[index] = static_cast<int64_t>(*offset);
}

void EngineWeights::loadSlot(Slot &slot, const TensorSource &source,
                             const std::string &name, stem_context *context) {
  const stem_argument &argument = slot.argument;
  std::byte *target = static_cast<std::byte *>(memory.data()) + slot.offset;
  loadParameter(source, name, argument, target, context);
  slot.packed = {target, argument.dtype, 0, argument.sizes[0],
                 argument.sizes[1]};
}

void EngineWeights::load(const TensorSource &source, stem_context *context,
                         const std::set<std::string> &without) {
  memory = Arena(bytesOfParameters + bytesOfTables, "the weights");
  if (isOwnFile)
    ownFile = Arena::inFile(folder, tableBytesInFiles(), "the rows of tables",
                            "give --tables=resident");
  for (auto &[key, slot] : slots)
    if (!without.contains(key.first))
      loadSlot(slot, source, key.first, context);
  for (size_t i = 0; i < tables.size(); ++i)
    loadTable(i, source, context);
}

void EngineWeights::loadAs(const std::string &key, const TensorSource &source,
                           const std::string &name, stem_context *context) {
  for (auto slot = slots.lower_bound({key, 0});
       slot != slots.end() && slot->first.first == key; ++slot)
    loadSlot(slot->second, source, name, context);
}

void EngineWeights::set(const std::string &key, std::span<const float> values,
                        stem_context *context) {
  for (auto slot = slots.lower_bound({key, 0});
       slot != slots.end() && slot->first.first == key; ++slot) {
    const stem_argument &argument = slot->second.argument;
    std::byte *target =
        static_cast<std::byte *>(memory.data()) + slot->second.offset;
    if (argument.packed)
      setPacked(packedForm(argument, target), values, context);
    else
      setPlain(argument.dtype, values, target);
    slot->second.packed = {target, argument.dtype, 0, argument.sizes[0],
                           argument.sizes[1]};
  }
}

stem_tensor EngineWeights::tensor(const stem_entry &entry,
                                  const stem_argument &argument) const {
  const Slot &slot = slots.at(keyOf(entry, argument));
  if (argument.packed)
    return handleTensor(const_cast<stem_packed *>(&slot.packed));
  return denseTensor(static_cast<std::byte *>(memory.data()) + slot.offset,
                     argument.dtype, argument.sizes, argument.rank);
}

stem_table_options EngineWeights::plainOptions(size_t index) const {
  stem_table_options options = {};
  options.struct_size = sizeof(options);
  options.rows = tables[index].rows;
  options.columns = tables[index].columns;
  options.dtype = tables[index].dtype;
  if (isInFile(index))
    options.file = tableFiles[index].c_str();
  else
    options.resident = tableRows(index);
  options.offset = isInFile(index) ? tableOffsets[index] : 0;
  options.name = tables[index].key;
  return options;
}

void EngineWeights::openTables(stem_context *context,
                               stem_table_store *store) const {
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto found = byteTables.find(i);
    const stem_table_options options = found == byteTables.end()
                                           ? plainOptions(i)
                                           : found->second.options(tables[i]);
    throwIfFailed(context, stem_table_open(context, store, &options));
  }
}
