//===- RowOverlay.cpp - Rows in the place of a model's --------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/RowOverlay.h"

#include "stem/Model/Checkpoint.h"
#include "stem/Model/Safetensors.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Support/Hash.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

using namespace stem;

namespace {

constexpr std::string_view kFormat = "stem-rows", kVersion = "1";
constexpr std::string_view kIds = "ids";
constexpr std::string_view kRows = "mlp.up_table.rows";
constexpr uint64_t kMostLayers = 1u << 20;

/// An entry of the metadata, or nothing.
const std::string *findEntry(const SafetensorsFile &file, const char *key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? nullptr : &found->second;
}

std::string readHash(const SafetensorsFile &file, const char *key) {
  const std::string *text = findEntry(file, key);
  const bool isHash =
      text && text->size() == 64 &&
      text->find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!isHash)
    fail("{}: \"{}\" in the metadata is {}, a SHA-256 in hex was expected",
         file.fileName(), key,
         text ? "\"" + printable(*text) + "\"" : std::string("missing"));
  return *text;
}

void checkFormat(const SafetensorsFile &file) {
  const std::string *format = findEntry(file, "format");
  if (!format || *format != kFormat)
    fail("{}: is no row overlay: its metadata has no \"format\": \"{}\"; "
         "stem-run train --train=rows:FILE writes one",
         file.fileName(), kFormat);
  const std::string *version = findEntry(file, "version");
  if (!version || *version != kVersion)
    fail("{}: has version {} of the format of row overlays, which is unknown "
         "to this program; it reads version {}",
         file.fileName(),
         version ? "\"" + printable(*version) + "\"" : std::string("none"),
         kVersion);
}

template <typename T>
std::vector<int32_t> decodeIds(const SafetensorsFile &file,
                               const TensorView &tensor) {
  std::vector<int32_t> ids;
  ids.reserve(tensor.data.size() / sizeof(T));
  for (size_t at = 0; at + sizeof(T) <= tensor.data.size(); at += sizeof(T)) {
    T id;
    std::memcpy(&id, tensor.data.data() + at, sizeof(T));
    if (id < 0 || id > std::numeric_limits<int32_t>::max())
      fail("{}: tensor \"{}\" has {} at position {}, which is no token id",
           file.fileName(), kIds, id, ids.size());
    if (!ids.empty() && id <= ids.back())
      fail("{}: tensor \"{}\" has {} at position {} after {}; ids rise, each "
           "is there once",
           file.fileName(), kIds, id, ids.size(), ids.back());
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<int32_t> readIds(const SafetensorsFile &file) {
  const TensorView &tensor = file.get(kIds);
  const bool isWide = tensor.dtype == DType::I64;
  if (!isWide && tensor.dtype != DType::I32)
    fail("{}: tensor \"{}\" has type {}; ids are I32 or I64", file.fileName(),
         kIds, dtypeName(tensor.dtype));
  if (tensor.shape.size() != 1 || tensor.shape[0] == 0)
    fail("{}: tensor \"{}\" has shape {}; a list of one id or more was "
         "expected",
         file.fileName(), kIds, formatShape(tensor.shape));
  return isWide ? decodeIds<int64_t>(file, tensor)
                : decodeIds<int32_t>(file, tensor);
}

/// The layer that a tensor's name speaks of: as the writer spells it.
std::optional<uint64_t> layerOf(const std::string &name) {
  constexpr std::string_view prefix = "model.layers.";
  uint64_t layer = 0;
  if (!name.starts_with(prefix) ||
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(),
                      layer)
              .ec != std::errc() ||
      layer >= kMostLayers || name != layerTensorName(layer, kRows))
    return std::nullopt;
  return layer;
}

RowOverlay::Table readTable(const SafetensorsFile &file,
                            const TensorView &tensor, size_t idCount) {
  const auto layer = layerOf(tensor.name);
  if (!layer)
    fail("{}: tensor \"{}\" is none of a row overlay, which has \"{}\" and "
         "\"{}\" of layers N",
         file.fileName(), printable(tensor.name), kIds,
         "model.layers.N.mlp.up_table.rows");
  if (tensor.shape.size() != 2 || tensor.shape[0] != idCount ||
      tensor.shape[1] == 0)
    fail("{}: tensor \"{}\" has shape {}; a row for each of the {} ids was "
         "expected",
         file.fileName(), tensor.name, formatShape(tensor.shape), idCount);
  if (!isWeightType(tensor.dtype) || isQuantized(tensor.dtype))
    fail("{}: tensor \"{}\" has type {}, which is none of rows",
         file.fileName(), tensor.name, dtypeName(tensor.dtype));
  return {*layer,
          tensor.dtype,
          tensor.shape[1],
          {tensor.data.begin(), tensor.data.end()}};
}

RowOverlay readOverlay(const SafetensorsFile &file) {
  checkFormat(file);
  RowOverlay overlay;
  overlay.name = file.fileName();
  overlay.base = {readHash(file, "dense_sha256"),
                  readHash(file, "rows_sha256")};
  if (const std::string *provenance = findEntry(file, "provenance"))
    overlay.provenance = *provenance;
  overlay.ids = readIds(file);
  for (const TensorView &tensor : file.tensors())
    if (tensor.name != kIds)
      overlay.tables.push_back(readTable(file, tensor, overlay.ids.size()));
  if (overlay.tables.empty())
    fail("{}: has ids, but rows of no layer", file.fileName());
  std::ranges::sort(overlay.tables, {}, &RowOverlay::Table::layer);
  return overlay;
}

std::vector<TensorDeclaration> declarations(const RowOverlay &overlay) {
  std::vector<TensorDeclaration> result = {
      {std::string(kIds), DType::I32, {overlay.ids.size()}}};
  for (const RowOverlay::Table &table : overlay.tables)
    result.push_back({layerTensorName(table.layer, kRows),
                      table.dtype,
                      {overlay.ids.size(), table.columns}});
  return result;
}

std::map<std::string, std::string> metadata(const RowOverlay &overlay) {
  std::map<std::string, std::string> result = {
      {"format", std::string(kFormat)},
      {"version", std::string(kVersion)},
      {"dense_sha256", overlay.base.dense},
      {"rows_sha256", overlay.base.rows}};
  if (!overlay.provenance.empty())
    result["provenance"] = overlay.provenance;
  return result;
}

/// Pieces that lie evenly from the first byte to the last: training moves every
/// weight of a tensor, and the files need not be read for it.
void addSample(Sha256 &hash, std::span<const std::byte> data) {
  constexpr uint64_t pieces = 16, pieceBytes = 256;
  if (data.size() <= pieces * pieceBytes)
    return hash.update(data);
  for (uint64_t i = 0; i < pieces; ++i)
    hash.update(data.subspan((data.size() - pieceBytes) / (pieces - 1) * i,
                             pieceBytes));
}

bool isOfTable(const LayerWeights &layer, const std::string &name) {
  const std::vector<std::string> beside = ModelWeights::byteRowNames(layer);
  return name == layer.upTable || std::ranges::count(beside, name) > 0;
}

std::string denseHash(const Checkpoint &model) {
  const ModelWeights &weights = model.weights();
  Sha256 hash;
  for (const std::string &name : weights.names()) {
    if (std::ranges::any_of(weights.layers, [&](const LayerWeights &layer) {
          return isOfTable(layer, name);
        }))
      continue;
    const TensorInfo &tensor = model.tensors().get(name);
    hash.update(fmt::format("{} {} {}\n", name, dtypeName(tensor.dtype),
                            formatShape(tensor.shape)));
    addSample(hash, model.tensors().bytes(name));
  }
  return hash.finish();
}

std::string rowsHash(const Checkpoint &model, std::span<const int32_t> ids,
                     std::span<const uint64_t> layers) {
  Sha256 hash;
  std::vector<std::byte> row;
  for (const uint64_t layer : layers) {
    const TensorInfo &table =
        model.tensors().get(model.weights().layers[layer].upTable);
    hash.update(fmt::format("{} {} {}\n", table.name, dtypeName(table.dtype),
                            formatShape(table.shape)));
    row.resize(table.bytes / table.rows());
    for (const int32_t id : ids) {
      model.tensors().readRaw(table.name, static_cast<uint64_t>(id), 1,
                              row.data());
      hash.update(row);
    }
  }
  return hash.finish();
}

} // namespace

RowOverlay RowOverlay::read(const std::filesystem::path &path) {
  return readOverlay(SafetensorsFile::open(path));
}

RowOverlay RowOverlay::parse(std::span<const std::byte> bytes,
                             std::string name) {
  return readOverlay(SafetensorsFile::parse(bytes, std::move(name)));
}

void RowOverlay::requireTables(const Checkpoint &model) const {
  const std::string where = model.path().string();
  const std::vector<uint64_t> known = tableLayers(model);
  if (known.empty())
    fail("{}: {} has no table whose rows could be replaced: no layer of it is "
         "a STEM layer; stem-run convert makes such a model",
         name, where);
  const uint64_t vocabulary = model.config().vocabSize;
  if (static_cast<uint64_t>(ids.back()) >= vocabulary)
    fail("{}: id {} is outside the vocabulary of {}, which has ids 0 to {}",
         name, ids.back(), where, vocabulary - 1);
  for (const Table &own : tables) {
    if (!std::ranges::binary_search(known, own.layer))
      fail("{}: has rows of layer {}, which is no STEM layer of {}", name,
           own.layer, where);
    const TensorInfo &table =
        model.tensors().get(model.weights().layers[own.layer].upTable);
    if (table.dtype == DType::U8)
      fail("{}: tensor \"{}\" of {} has rows of 8 bits, which overlays do not "
           "replace; give the model that they were made from",
           name, table.name, where);
    if (own.columns != table.rowElements())
      fail("{}: rows of layer {} have {} columns, tensor \"{}\" of {} has {}",
           name, own.layer, own.columns, table.name, where,
           table.rowElements());
    if (own.dtype != table.dtype)
      fail("{}: rows of layer {} have type {}, tensor \"{}\" of {} has {}; "
           "rows are in the type of the table",
           name, own.layer, dtypeName(own.dtype), table.name, where,
           dtypeName(table.dtype));
  }
}

void RowOverlay::requireBase(const Checkpoint &model) const {
  requireTables(model);
  const std::string where = model.path().string();
  const RowBase found = rowBaseOf(model, ids, layers());
  if (found.dense != base.dense)
    fail("{}: was made for another model: weights of {} beside the tables are "
         "not those that the rows were trained with (dense_sha256 {}, is {}); "
         "give the model that it was made for",
         name, where, base.dense, found.dense);
  if (found.rows != base.rows)
    fail("{}: was made for another model: the rows of {} that it replaces are "
         "not those that it began with, as after training or after stem-run "
         "apply (rows_sha256 {}, is {}); give the model that it was made for",
         name, where, base.rows, found.rows);
}

std::vector<uint64_t> RowOverlay::layers() const {
  std::vector<uint64_t> result;
  for (const Table &table : tables)
    result.push_back(table.layer);
  return result;
}

uint64_t RowOverlay::bytes() const {
  uint64_t sum = 0;
  for (const Table &table : tables)
    sum += table.rows.size();
  return sum;
}

void RowOverlay::write(const std::filesystem::path &path) const {
  SafetensorsWriter writer(path, declarations(*this), metadata(*this));
  writer.write(std::as_bytes(std::span(ids)));
  for (const Table &table : tables)
    writer.write(table.rows);
  writer.finish();
}

uint64_t RowOverlay::fileBytes() const {
  return SafetensorsWriter::plannedBytes(declarations(*this), metadata(*this));
}

RowBase stem::rowBaseOf(const Checkpoint &model, std::span<const int32_t> ids,
                        std::span<const uint64_t> layers) {
  if (model.tensors().hasOverlays())
    fail("{}: an overlay is attached, so that its own rows cannot be compared",
         model.path().string());
  return {denseHash(model), rowsHash(model, ids, layers)};
}

std::vector<uint64_t> stem::tableLayers(const Checkpoint &model) {
  std::vector<uint64_t> result;
  const std::vector<LayerWeights> &layers = model.weights().layers;
  for (uint64_t layer = 0; layer < layers.size(); ++layer)
    if (!layers[layer].upTable.empty())
      result.push_back(layer);
  return result;
}
