//===- TablePlaces.cpp - Where tables lie while a model runs --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TablePlaces.h"

#include "CommandLine.h"
#include "stem/Model/RowOverlay.h"
#include "stem/Support/Format.h"

#include <algorithm>

using namespace stem;

static std::vector<LayerPlace> parseLayerPlace(const std::string &text) {
  const std::string flag = "--table-place";
  const size_t end = text.rfind('=');
  const std::string place =
      end == std::string::npos ? "" : text.substr(end + 1);
  if (place != "resident" && place != "host" && place != "file")
    throw UsageError(fmt::format(
        "{}={}: give LAYERS=PLACE, like 2,5=file, layers counted from 0; a "
        "place is resident, host or file",
        flag, printable(text)));
  std::vector<LayerPlace> places;
  const std::vector<int64_t> layers = parseIntegers(text.substr(0, end), flag);
  for (const int64_t layer : layers)
    if (layer < 0)
      throw UsageError(fmt::format("{}={}: {} is no layer; layers are counted "
                                   "from 0",
                                   flag, printable(text), layer));
    else
      places.push_back(
          {static_cast<uint64_t>(layer),
           place == "file" ? TablePlacement::File : TablePlacement::Resident,
           fmt::format("{}={}", flag, text)});
  if (layers.empty())
    throw UsageError(fmt::format("{}={}: names no layer; give numbers from 0, "
                                 "like 2,5={}",
                                 flag, text, place));
  return places;
}

std::vector<LayerPlace>
stem::parseLayerPlaces(const std::vector<std::string> &texts) {
  std::vector<LayerPlace> places;
  for (const std::string &text : texts)
    for (const LayerPlace &place : parseLayerPlace(text)) {
      if (std::ranges::count(places, place.layer, &LayerPlace::layer))
        throw UsageError(fmt::format("{}: layer {} is named twice; give each "
                                     "layer one place",
                                     place.given, place.layer));
      places.push_back(place);
    }
  return places;
}

TablePlaces::TablePlaces(TablePlacement all,
                         const std::vector<LayerPlace> &layers,
                         const Checkpoint &checkpoint)
    : all(all) {
  const std::vector<LayerWeights> &weights = checkpoint.weights().layers;
  const std::vector<uint64_t> tables = tableLayers(checkpoint);
  for (const LayerPlace &place : layers) {
    if (place.layer >= weights.size())
      fail("{}: {} has no layer {}; its layers are 0 to {}", place.given,
           checkpoint.path().string(), place.layer, weights.size() - 1);
    const std::string &key = weights[place.layer].upTable;
    if (!key.empty())
      others[key] = place.place;
    else if (!tables.empty())
      fail("{}: layer {} of {} has no table; its STEM layers are {}",
           place.given, place.layer, checkpoint.path().string(),
           formatRanges(tables));
  }
}

TablePlacement TablePlaces::of(const std::string &key) const {
  const auto found = others.find(key);
  return found == others.end() ? all : found->second;
}

std::string stem::layersOf(const std::vector<PlacedTable> &tables,
                           bool inFiles) {
  std::vector<uint64_t> layers;
  for (const PlacedTable &table : tables)
    if (table.isInFile == inFiles)
      layers.push_back(table.layer);
  return formatRanges(layers);
}

bool stem::arePlacedApart(const std::vector<PlacedTable> &tables) {
  return std::ranges::any_of(tables, &PlacedTable::isInFile) &&
         !std::ranges::all_of(tables, &PlacedTable::isInFile);
}
