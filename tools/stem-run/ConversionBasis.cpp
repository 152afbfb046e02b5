//===- ConversionBasis.cpp - What conversions have in common --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConversionBasis.h"

#include "ByteTable.h"
#include "CommandLine.h"

#include <algorithm>

using namespace stem;

static Checkpoint openSource(const std::filesystem::path &path) {
  Checkpoint checkpoint = openModel(path);
  requireFullRows(checkpoint, "no further layers are converted beside them");
  return checkpoint;
}

ConversionBasis::ConversionBasis(
    const ConvertArguments &arguments, const std::filesystem::path &spillFolder,
    const std::function<void(uint64_t)> &requireSpace)
    : arguments(arguments), checkpoint(openSource(arguments.source)),
      types(checkpoint, std::nullopt),
      calibration(makeCalibration(spillFolder, requireSpace)),
      layers(chooseDenseLayers()), graph(makeGraph()),
      rowType(chooseRowType(layers.front())), listedHot(chooseListedHot()),
      leftOut(tensorsLeftOut(checkpoint)) {}

/// Before minutes of calibration: the layers, and whether their tables alone
/// would fill the disk.
std::unique_ptr<Calibration> ConversionBasis::makeCalibration(
    const std::filesystem::path &spillFolder,
    const std::function<void(uint64_t)> &requireSpace) const {
  if (config().stem)
    chooseRowType(0); // refuses what cannot be beside its tables
  if (arguments.init.kind != "calibrated")
    return nullptr;
  const auto cheapest = parseAutoLayers(layerChoice(), config());
  const uint64_t count =
      cheapest ? *cheapest
               : chooseLayers(layerChoice(), config(), "auto:N, ").size();
  if (cheapest) {
    const TensorInfo table{
        "", DType::F32, {config().vocabSize, config().intermediateSize}, 0, {}};
    const auto bytes = dtypeBytes(hasByteRows() ? DType::U8 : chooseRowType(0),
                                  table.elements());
    const uint64_t tables = count * arguments.calibration.ranks.size();
    if (bytes && *bytes <= UINT64_MAX / tables)
      requireSpace(*bytes * tables);
  }
  CalibrationArguments own = arguments.calibration;
  own.spillFolder = spillFolder;
  auto result = std::make_unique<Calibration>(checkpoint, own);
  result->printEstimate(count, cheapest.has_value());
  return result;
}

/// A third of the dense layers, the cheapest ones, unless asked.
std::string ConversionBasis::layerChoice() const {
  if (!arguments.layers.empty())
    return arguments.layers;
  return fmt::format("auto:{}",
                     std::max<uint64_t>(1, denseLayerCount(config()) / 3));
}

std::vector<uint64_t> ConversionBasis::chooseDenseLayers() const {
  const std::string choice = layerChoice();
  const auto count = parseAutoLayers(choice, config());
  return count ? calibration->cheapestLayers(*count)
               : chooseLayers(choice, config());
}

std::vector<LayerChoice> ConversionBasis::chooseRanks(int64_t rank) const {
  if (isCalibrated())
    return calibration->chooseRanks(layers, rank);
  std::vector<LayerChoice> choices;
  for (const uint64_t layer : layers)
    choices.push_back({layer, 0});
  return choices;
}

std::span<const int32_t> ConversionBasis::selectedIds() const {
  return isCalibrated() ? calibration->selectedIds()
                        : std::span<const int32_t>();
}

/// Without a text nothing is counted.
HotIds ConversionBasis::chooseListedHot() const {
  if (isCalibrated())
    return {};
  const ColdRowOptions &options = arguments.calibration.coldRows;
  return chooseHotIds(std::vector<int64_t>(config().vocabSize), options,
                      readHotIds(checkpoint, options));
}

const HotIds &ConversionBasis::hotIds() const {
  return isCalibrated() ? calibration->hotIds() : listedHot;
}

/// All STEM layers of a model have a list of such ids, or none has. In one that
/// has them already the list of a new layer may be empty.
bool ConversionBasis::keepsMatrices() const {
  const auto &stem = config().stem;
  return !selectedIds().empty() || (stem && stem->select);
}

/// Ids that keep the matrix keep it in the model.
GraphConversion ConversionBasis::makeGraph() const {
  GraphConversion result = convertGraph(checkpoint, layers, arguments.init.kind,
                                        arguments.dumpDirectory);
  if (keepsMatrices())
    result.dropped.clear();
  return result;
}

/// The model's own type unless asked; one type for all tables of a model.
DType ConversionBasis::chooseRowType(uint64_t layer) const {
  std::optional<DType> wanted;
  if (arguments.rowDType != "keep")
    wanted = dtypeFromName(arguments.rowDType == "f32"    ? "F32"
                           : arguments.rowDType == "bf16" ? "BF16"
                                                          : "F16");
  if (const auto &stem = config().stem) {
    if (hasByteRows())
      fail("--cold-rows=int8: the tables that {} has already have rows of type "
           "{}, and a model has one type of rows; convert without it, then "
           "stem-run apply OUT --cold-rows=int8",
           arguments.source.string(), stem->rowDType);
    const auto present = dtypeFromConfigName(stem->rowDType);
    if (!present || !(*present == DType::F32 || *present == DType::BF16 ||
                      *present == DType::F16))
      fail("{}: its tables have rows of type {}; further layers can be "
           "converted only beside float32, float16 or bfloat16 rows",
           arguments.source.string(), stem->rowDType);
    if (wanted && *wanted != *present)
      fail("--row-dtype={}: the model's tables have rows of type {}, and a "
           "model has one type of rows",
           arguments.rowDType, stem->rowDType);
    return *present;
  }
  if (wanted)
    return *wanted;
  const TensorInfo &upProj =
      checkpoint.tensors().get(checkpoint.weights().layers[layer].upProj);
  const DType own = types.typeOf(upProj);
  return own == DType::F16 || own == DType::BF16 ? own : DType::F32;
}
