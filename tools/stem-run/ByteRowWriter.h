//===- ByteRowWriter.h - Tables written in 8 bits -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_BYTEROWWRITER_H
#define STEM_TOOLS_STEM_RUN_BYTEROWWRITER_H

#include "HotIds.h"
#include "TensorCopy.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stem {

/// The tensors of a table [V, F] of 8-bit rows, in the order in which they are
/// written: the bytes first, what is beside them as the writer gives it. Rows
/// of hot ids are there twice: as bytes, so that rows are found by id, and in
/// `hotType`.
struct ByteTableTensors {
  ByteTableTensors(const std::string &key, uint64_t rows, uint64_t columns,
                   uint64_t hotCount, DType hotType);

  const TensorInfo &bytes() const { return tensors.front(); }
  uint64_t totalBytes() const;
  /// Names the tensors in the layer's roles.
  void name(LayerWeights &layer) const;

  std::vector<TensorInfo> tensors; ///< hot ids and rows: where there are any
};

/// Turns the rows of one table to bytes, in their order, and keeps what is
/// written behind them.
class ByteRowWriter {
public:
  /// `hotIds` rise. Both outlive the object.
  ByteRowWriter(const ByteTableTensors &table, std::span<const int32_t> hotIds);

  /// Bytes that it holds.
  static int64_t bytes(uint64_t rows, uint64_t columns, uint64_t hotCount,
                       DType hotType);

  /// The next rows, whole. Throws an Error that names table and id for a value
  /// that is NaN or infinite; `advice` is for one that is too large for the
  /// type of the hot rows.
  void encode(std::span<const float> rows, std::span<std::byte> out,
              RoundingError &rounding, std::string_view advice);

  /// After the last row.
  void writeRest(ModelFolderWriter &writer) const;

private:
  [[noreturn]] void refuse(std::span<const float> row) const;

  const ByteTableTensors &table;
  std::span<const int32_t> hotIds;
  std::vector<float> scale, minimum;
  std::vector<std::byte> hotRows;
  size_t hotCount = 0; ///< so far
};

/// Bytes of the tables, as they are and with rows of one type, and of the
/// model.
struct ByteRowSizes {
  uint64_t tables = 0, fullTables = 0, model = 0;
};

/// What a folder and --json say of its 8-bit rows, and what is printed.
Json byteRowFigures(const ColdRowOptions &asked, const HotIds &hot,
                    DType hotType, const ByteRowSizes &sizes);
void printByteRows(const Json &figures, const HotIds &hot, uint64_t vocabulary);

/// What a row becomes on its way through 8 bits.
void throughBytes(std::span<float> row);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_BYTEROWWRITER_H
