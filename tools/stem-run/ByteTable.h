//===- ByteTable.h - A table of 8-bit rows as the store takes it ----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_BYTETABLE_H
#define STEM_TOOLS_STEM_RUN_BYTETABLE_H

#include "stem-c/Runtime.h"
#include "stem/Model/Checkpoint.h"
#include "stem/Runtime/Arena.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// The bytes of a table, their scales, and the rows that are kept as they were.
/// Bytes and such rows lie in memory or stay in the model's files; scales and
/// ids, which each lookup needs, are in memory.
class ByteTable {
public:
  /// `key`: of the bytes. Reads nothing yet.
  ByteTable(const TensorSource &source, const std::string &key);

  static bool isOne(const TensorSource &source, const std::string &key);

  int64_t scaleBytes() const;
  int64_t rowBytes() const;     ///< of all rows
  int64_t mostRowBytes() const; ///< of one row

  /// Reads all of it; with `staysInFile` what each lookup needs.
  void load(const TensorSource &source, bool staysInFile,
            stem_context *context);

  /// How the store opens it, after load. Holds while the object lives.
  stem_table_options options(const stem_table_info &table) const;

private:
  /// A tensor of rows, in memory or in its file. Copies: the source may go.
  struct Rows {
    TensorInfo tensor;
    Arena memory;
    std::string file;
    int64_t offset = 0;
    void load(const TensorSource &source, bool staysInFile,
              stem_context *context);
  };

  std::string scaleKey, minimumKey, hotIdsKey;
  Rows bytes;
  std::optional<Rows> hot;
  std::vector<float> scale, minimum;
  std::vector<int32_t> hotIds;
  stem_byte_rows described = {};
};

/// Throws where the model's rows are of 8 bits. `what` says who cannot have
/// them: "training does not change them".
void requireFullRows(const Checkpoint &checkpoint, std::string_view what);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_BYTETABLE_H
