//===- RowOverlay.h - Rows in the place of a model's ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// rows.safetensors: rows of some ids in some STEM layers, and what they were
// made for. docs/rows.md has the format.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_ROWOVERLAY_H
#define STEM_MODEL_ROWOVERLAY_H

#include "stem/Model/DType.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace stem {

class Checkpoint;

/// What an overlay was made for, as SHA-256 in hex. `dense`: name, type and
/// shape of every tensor that the model uses but tables, and of each a sample
/// of its bytes. `rows`: all bytes of the rows that the overlay replaces.
struct RowBase {
  std::string dense, rows;
};

struct RowOverlay {
  /// Rows of one table, in the order of the ids and in the table's type.
  struct Table {
    uint64_t layer;
    DType dtype;
    uint64_t columns;
    std::vector<std::byte> rows;
  };

  std::string name;          ///< the file, for messages
  std::vector<int32_t> ids;  ///< rising, the same in every table
  std::vector<Table> tables; ///< by rising layer
  RowBase base;              ///< empty for one that is made in memory
  std::string provenance;    ///< a JSON object as text, or empty

  /// Throws for what is no overlay, has another version, or is malformed.
  /// Nothing is allocated that the file does not hold.
  static RowOverlay read(const std::filesystem::path &path);
  /// Of bytes that `name` stands for in messages.
  static RowOverlay parse(std::span<const std::byte> bytes, std::string name);

  /// Throws unless the layers, ids, widths and types are those of tables of
  /// this model.
  void requireTables(const Checkpoint &model) const;
  /// The same, and unless it is the model that the overlay was made for, which
  /// no overlay is attached to.
  void requireBase(const Checkpoint &model) const;

  std::vector<uint64_t> layers() const;
  uint64_t bytes() const; ///< of the rows

  /// Replaces the file in one step, whatever was there.
  void write(const std::filesystem::path &path) const;
  uint64_t fileBytes() const;
};

/// The base of an overlay with these ids in these layers. The model has no
/// overlay yet.
RowBase rowBaseOf(const Checkpoint &model, std::span<const int32_t> ids,
                  std::span<const uint64_t> layers);

/// The layers that have a table.
std::vector<uint64_t> tableLayers(const Checkpoint &model);

} // namespace stem

#endif // STEM_MODEL_ROWOVERLAY_H
