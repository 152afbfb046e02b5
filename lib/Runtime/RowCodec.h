//===- RowCodec.h - Rows that are stored in 8 bits --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A table of such rows is used as one of f32. A row on its way lies, as it is
// stored, at the end of the place where its values go, and is decoded there.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_ROWCODEC_H
#define STEM_LIB_RUNTIME_ROWCODEC_H

#include "RowFile.h"
#include "RowReader.h"
#include "stem-c/Runtime.h"

#include <cstdint>
#include <optional>
#include <string>

namespace stem {

class RowCodec {
public:
  /// Throws an Error that says what is wrong with `options.byte_rows`.
  explicit RowCodec(const stem_table_options &options);

  /// Opens the files for tables that are not resident. Empty, or why that
  /// cannot be done.
  std::string open();
  /// Of the files since they were opened, as RowFile says it.
  std::string change() const;

  /// Of what is needed to decode.
  int64_t scaleBytes() const;
  /// As stored: of all rows, of this one, and of the largest.
  int64_t bytes() const;
  int64_t rowBytes(int32_t id) const;
  int64_t mostRowBytes() const;

  /// Where this row of a resident table lies.
  const char *row(int32_t id) const;
  /// Where it lies in its file.
  const RowFile &fileOf(int32_t id) const;
  int64_t offsetOf(int32_t id) const;
  RowRead read(int32_t id, char *to) const;

  /// `stored` may lie at the end of `out`.
  void decode(int32_t id, const char *stored, float *out) const;

private:
  /// Its place among the rows that are kept; -1: it is of 8 bits.
  int64_t hotPlace(int32_t id) const;
  int64_t hotRowBytes() const;

  const int64_t count, columns;
  const char *const rows; ///< null: in `file`
  const stem_byte_rows stored;
  const std::string fileName, hotFileName;
  const int64_t offset;
  RowFile file, hotFile;
};

} // namespace stem

#endif // STEM_LIB_RUNTIME_ROWCODEC_H
