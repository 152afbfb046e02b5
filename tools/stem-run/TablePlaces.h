//===- TablePlaces.h - Where tables lie while a model runs ------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_TABLEPLACES_H
#define STEM_TOOLS_STEM_RUN_TABLEPLACES_H

#include "stem/Model/Checkpoint.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stem {

enum class TablePlacement {
  Resident, ///< in memory, with the weights, which on a CPU is host memory
  File,    ///< in the model's files; the rows of a step are read when it starts
  OwnFile, ///< in a file that goes with the process: rows can be changed there
};

/// --table-place, of one layer.
struct LayerPlace {
  uint64_t layer;
  TablePlacement place;
  std::string given; ///< the option's text, for messages
};

/// "2,5=file". A UsageError says what is wrong.
std::vector<LayerPlace> parseLayerPlaces(const std::vector<std::string> &texts);

/// One place for all tables, and other ones for some.
struct TablePlaces {
  TablePlaces(TablePlacement all = TablePlacement::Resident) : all(all) {}

  /// Throws where the model has no such layer, or has tables but none there.
  TablePlaces(TablePlacement all, const std::vector<LayerPlace> &layers,
              const Checkpoint &checkpoint);

  TablePlacement of(const std::string &key) const;

  TablePlacement all;
  std::map<std::string, TablePlacement> others; ///< by the table's key
};

/// Where one table lies, and the bytes of its rows there.
struct PlacedTable {
  uint64_t layer;
  bool isInFile;
  int64_t bytes;
};

/// "2, 5-7" of those in files, or in memory.
std::string layersOf(const std::vector<PlacedTable> &tables, bool inFiles);

/// Whether some lie in files and some in memory.
bool arePlacedApart(const std::vector<PlacedTable> &tables);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_TABLEPLACES_H
