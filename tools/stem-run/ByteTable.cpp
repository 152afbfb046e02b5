//===- ByteTable.cpp - A table of 8-bit rows as the store takes it --------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ByteTable.h"

#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

namespace {

constexpr std::string_view kWeight = "weight";

/// Of a tensor that goes with the bytes.
std::string besides(const std::string &key, std::string_view part) {
  return key.substr(0, key.size() - kWeight.size()) + std::string(part);
}

int64_t rowBytesOf(const TensorInfo &tensor) {
  return static_cast<int64_t>(tensor.rowElements() *
                              dtypeBlockBytes(tensor.dtype));
}

int64_t bytesOf(const TensorInfo &tensor) {
  return static_cast<int64_t>(tensor.bytes);
}

std::vector<float> readVector(const TensorSource &source,
                              const std::string &key) {
  std::vector<float> values(source.get(key).elements());
  source.readF32(key, 0, 1, values.data());
  source.release(key);
  return values;
}

template <typename T>
std::vector<int32_t> readIdsAs(const TensorSource &source,
                               const TensorInfo &ids) {
  std::vector<T> values(ids.elements());
  source.readRaw(ids.name, 0, 1, reinterpret_cast<std::byte *>(values.data()));
  return {values.begin(), values.end()};
}

std::vector<int32_t> readIds(const TensorSource &source,
                             const std::string &key) {
  const TensorInfo &ids = source.get(key);
  return ids.dtype == DType::I64 ? readIdsAs<int64_t>(source, ids)
                                 : readIdsAs<int32_t>(source, ids);
}

int32_t runtimeType(DType type) {
  return type == DType::F32    ? STEM_F32
         : type == DType::BF16 ? STEM_BF16
                               : STEM_F16;
}

} // namespace

void stem::requireFullRows(const Checkpoint &checkpoint,
                           std::string_view what) {
  const auto &stem = checkpoint.config().stem;
  if (stem && stem->rowDType == dtypeConfigName(DType::U8))
    fail("{}: its rows are of 8 bits (stem.row_dtype is \"uint8\"), and {}; "
         "give the model that they were made from",
         checkpoint.path().string(), what);
}

bool ByteTable::isOne(const TensorSource &source, const std::string &key) {
  return source.get(key).dtype == DType::U8;
}

ByteTable::ByteTable(const TensorSource &source, const std::string &key)
    : scaleKey(besides(key, "scale")), minimumKey(besides(key, "minimum")),
      hotIdsKey(besides(key, "hot_ids")) {
  bytes.tensor = source.get(key);
  if (const TensorInfo *rows = source.find(besides(key, "hot_rows")))
    if (rows->rows() > 0)
      hot.emplace().tensor = *rows;
}

int64_t ByteTable::scaleBytes() const {
  const auto rows = static_cast<int64_t>(bytes.tensor.rows());
  const int64_t ids = hot ? static_cast<int64_t>(hot->tensor.rows()) : 0;
  return rows * 2 * int64_t(sizeof(float)) + ids * int64_t(sizeof(int32_t));
}

int64_t ByteTable::rowBytes() const {
  return bytesOf(bytes.tensor) + (hot ? bytesOf(hot->tensor) : 0);
}

int64_t ByteTable::mostRowBytes() const {
  return rowBytesOf(hot ? hot->tensor : bytes.tensor);
}

void ByteTable::Rows::load(const TensorSource &source, bool staysInFile,
                           stem_context *context) {
  if (staysInFile) {
    const std::optional<uint64_t> found = source.offsetInFile(tensor.name);
    if (!found)
      fail("{}: rows of tensor \"{}\" are not stored one after the other: they "
           "cannot stay in the file; choose --tables=resident, or "
           "--table-place for this layer",
           tensor.file.string(), tensor.name);
    file = tensor.file.string();
    offset = static_cast<int64_t>(*found);
    return;
  }
  memory = Arena(bytesOf(tensor), "rows of a table");
  const auto rows = static_cast<int64_t>(tensor.rows());
  const int64_t step = std::max<int64_t>(
      64, (1 << 20) / std::max<int64_t>(rowBytesOf(tensor), 1));
  parallelFor(context, (rows + step - 1) / step, [&](int64_t task) {
    const auto first = static_cast<uint64_t>(task * step);
    const auto count =
        static_cast<uint64_t>(std::min(step, rows - task * step));
    source.readRaw(tensor.name, first, count,
                   static_cast<std::byte *>(memory.data()) +
                       task * step * rowBytesOf(tensor));
    source.release(tensor.name, first, count);
  });
  source.release(tensor.name);
}

void ByteTable::load(const TensorSource &source, bool staysInFile,
                     stem_context *context) {
  bytes.load(source, staysInFile, context);
  scale = readVector(source, scaleKey);
  minimum = readVector(source, minimumKey);
  described = {};
  described.struct_size = sizeof(described);
  described.scale = scale.data();
  described.minimum = minimum.data();
  if (!hot)
    return;
  hot->load(source, staysInFile, context);
  hotIds = readIds(source, hotIdsKey);
  described.hot_ids = hotIds.data();
  described.hot_count = static_cast<int64_t>(hotIds.size());
  described.hot_dtype = runtimeType(hot->tensor.dtype);
  described.hot_rows = hot->memory.data();
  described.hot_file = staysInFile ? hot->file.c_str() : nullptr;
  described.hot_offset = hot->offset;
}

stem_table_options ByteTable::options(const stem_table_info &table) const {
  stem_table_options options = {};
  options.struct_size = sizeof(options);
  options.rows = table.rows;
  options.columns = table.columns;
  options.dtype = table.dtype;
  options.resident = bytes.memory.data();
  options.name = table.key;
  options.file = bytes.file.empty() ? nullptr : bytes.file.c_str();
  options.offset = bytes.offset;
  options.byte_rows = &described;
  return options;
}
