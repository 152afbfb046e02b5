//===- ByteRowWriter.cpp - Tables written in 8 bits -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ByteRowWriter.h"

#include "stem/Support/ByteRows.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"

#include <algorithm>
#include <cmath>

using namespace stem;

static TensorInfo tensorOf(const std::string &name, DType type,
                           std::vector<uint64_t> shape) {
  TensorInfo tensor{name, type, std::move(shape), 0, {}};
  const auto count = elementCount(tensor.shape);
  const auto bytes = count ? dtypeBytes(type, *count) : std::nullopt;
  if (!bytes)
    fail("{}: a tensor of {} is too large", name, formatShape(tensor.shape));
  tensor.bytes = *bytes;
  return tensor;
}

ByteTableTensors::ByteTableTensors(const std::string &key, uint64_t rows,
                                   uint64_t columns, uint64_t hotCount,
                                   DType hotType) {
  const std::string prefix = key.substr(0, key.rfind('.') + 1);
  tensors.push_back(tensorOf(key, DType::U8, {rows, columns}));
  tensors.push_back(tensorOf(prefix + "scale", DType::F32, {rows}));
  tensors.push_back(tensorOf(prefix + "minimum", DType::F32, {rows}));
  if (hotCount == 0)
    return;
  tensors.push_back(tensorOf(prefix + "hot_ids", DType::I32, {hotCount}));
  tensors.push_back(
      tensorOf(prefix + "hot_rows", hotType, {hotCount, columns}));
}

uint64_t ByteTableTensors::totalBytes() const {
  uint64_t sum = 0;
  for (const TensorInfo &tensor : tensors)
    sum += tensor.bytes;
  return sum;
}

void ByteTableTensors::name(LayerWeights &layer) const {
  std::string *roles[] = {&layer.upTable, &layer.upTableScale,
                          &layer.upTableMinimum, &layer.upTableHotIds,
                          &layer.upTableHotRows};
  for (size_t i = 0; i < tensors.size(); ++i)
    *roles[i] = tensors[i].name;
}

ByteRowWriter::ByteRowWriter(const ByteTableTensors &table,
                             std::span<const int32_t> hotIds)
    : table(table), hotIds(hotIds) {
  scale.reserve(table.bytes().rows());
  minimum.reserve(table.bytes().rows());
  if (!hotIds.empty())
    hotRows.resize(table.tensors.back().bytes);
}

int64_t ByteRowWriter::bytes(uint64_t rows, uint64_t columns, uint64_t hotCount,
                             DType hotType) {
  return static_cast<int64_t>(2 * rows * sizeof(float) +
                              hotCount * columns * dtypeBlockBytes(hotType));
}

void ByteRowWriter::refuse(std::span<const float> row) const {
  const auto place =
      std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
  fail("tensor \"{}\": the row of id {} has {} in column {}; a row of 8 bits "
       "has "
       "finite values alone: mend the table, or leave --cold-rows out",
       table.bytes().name, scale.size(), *place, place - row.begin());
}

void ByteRowWriter::encode(std::span<const float> rows,
                           std::span<std::byte> out, RoundingError &rounding,
                           std::string_view advice) {
  const size_t columns = table.bytes().rowElements();
  for (; !rows.empty();
       rows = rows.subspan(columns), out = out.subspan(columns)) {
    const std::span<const float> row = rows.first(columns);
    const std::optional<ByteScale> encoded =
        encodeByteRow(row, reinterpret_cast<uint8_t *>(out.data()));
    if (!encoded)
      refuse(row);
    if (hotCount < hotIds.size() &&
        static_cast<size_t>(hotIds[hotCount]) == scale.size()) {
      const TensorInfo &hot = table.tensors.back();
      encodeChecked(hot.name, hot.dtype, row,
                    hotRows.data() + hotCount * (hot.bytes / hot.rows()),
                    rounding, advice);
      ++hotCount;
    }
    scale.push_back(encoded->scale);
    minimum.push_back(encoded->minimum);
  }
}

void ByteRowWriter::writeRest(ModelFolderWriter &writer) const {
  writer.write(std::as_bytes(std::span(scale)));
  writer.write(std::as_bytes(std::span(minimum)));
  writer.write(std::as_bytes(hotIds));
  writer.write(hotRows);
}

Json stem::byteRowFigures(const ColdRowOptions &asked, const HotIds &hot,
                          DType hotType, const ByteRowSizes &sizes) {
  const auto saved =
      static_cast<double>(sizes.fullTables) - static_cast<double>(sizes.tables);
  const auto share = [&](uint64_t of) {
    return saved / static_cast<double>(of);
  };
  Json json = {
      {"type", "int8"},
      {"hot_fraction", asked.isAuto ? Json("auto") : Json(asked.hotShare)},
      {"hot_dtype", dtypeConfigName(hotType)}};
  json.update(hot.json());
  if (!asked.list.empty())
    json["list"] = {{"file", std::filesystem::absolute(asked.list).string()},
                    {"sha256", hashFile(asked.list)}};
  json.update(
      {{"table_bytes", sizes.tables},
       {"table_bytes_before", sizes.fullTables},
       {"saved_of_tables", share(sizes.fullTables)},
       {"saved_of_model", saved / (static_cast<double>(sizes.model) + saved)}});
  return json;
}

void stem::printByteRows(const Json &figures, const HotIds &hot,
                         uint64_t vocabulary) {
  const auto ofTables = 100 * figures["saved_of_tables"].get<double>();
  const auto ofModel = 100 * figures["saved_of_model"].get<double>();
  const std::string change =
      ofTables >= 0
          ? fmt::format("{:.1f} % of their bytes and {:.1f} % of the model's "
                        "are saved",
                        ofTables, ofModel)
          : fmt::format("nothing is saved: a hot row is there in 8 bits too, "
                        "which makes the tables {:.1f} % larger and the model "
                        "{:.1f} %; fewer hot ids save bytes",
                        -ofTables, -ofModel);
  fmt::print("rows of 8 bits: tables of {} in place of {} ({}): {}; {}\n",
             formatBytes(figures["table_bytes"].get<double>()),
             formatBytes(figures["table_bytes_before"].get<double>()),
             figures["hot_dtype"].get<std::string>(), change,
             hot.describe(vocabulary));
}

void stem::throughBytes(std::span<float> row) {
  std::vector<uint8_t> bytes(row.size());
  // What is not finite is refused where the row is written.
  if (const auto scale = encodeByteRow(row, bytes.data()))
    decodeByteRow(bytes, *scale, row.data());
}
