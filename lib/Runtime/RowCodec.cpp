//===- RowCodec.cpp - Rows that are stored in 8 bits ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowCodec.h"

#include "stem/Runtime/Tensor.h"
#include "stem/Support/BF16.h"
#include "stem/Support/ByteRows.h"
#include "stem/Support/Error.h"
#include "stem/Support/F16.h"

#include <algorithm>
#include <cstring>

using namespace stem;

namespace {

/// Values of a row that are decoded at a time, by way of a copy of what is
/// stored: the values of a piece never reach what is stored of a later one.
constexpr int64_t kPiece = 512;

const char *textOf(const char *text) { return text ? text : ""; }

/// Checks what a codec is made from, before anything is read from it.
const stem_byte_rows &checked(const stem_table_options &options) {
  const stem_byte_rows &rows = *options.byte_rows;
  if (rows.struct_size != sizeof(rows))
    fail("stem_byte_rows has struct_size {} but this runtime knows {} bytes",
         rows.struct_size, sizeof(rows));
  if (options.dtype != STEM_F32)
    fail("rows of 8 bits are used as f32, not as type {}", options.dtype);
  if (options.writable)
    fail("rows of 8 bits cannot be written");
  if (!rows.scale || !rows.minimum)
    fail("rows of 8 bits have no {}", rows.scale ? "minimum" : "scale");
  if (rows.hot_count < 0 || rows.hot_count > options.rows ||
      (rows.hot_count > 0 && !rows.hot_ids))
    fail("{} rows of {} are kept, ids at address {}", rows.hot_count,
         options.rows, static_cast<const void *>(rows.hot_ids));
  if (rows.hot_count == 0)
    return rows;
  if (rows.hot_dtype != STEM_F32 && rows.hot_dtype != STEM_BF16 &&
      rows.hot_dtype != STEM_F16)
    fail("rows that are kept have type {}: wanted f32, bf16 or f16",
         rows.hot_dtype);
  if (options.resident ? !rows.hot_rows : !rows.hot_file)
    fail("rows that are kept have no {}", options.resident ? "data" : "file");
  for (int64_t i = 0; i < rows.hot_count; ++i)
    if (rows.hot_ids[i] >= options.rows ||
        rows.hot_ids[i] < (i > 0 ? rows.hot_ids[i - 1] + 1 : 0))
      fail("id {} at {} of the rows that are kept: ids rise, each is there "
           "once, and are below {}",
           rows.hot_ids[i], i, options.rows);
  return rows;
}

/// Empty, or why `bytes` from `offset` on cannot be read from it.
std::string openFile(RowFile &file, const std::string &name, int64_t offset,
                     int64_t bytes) {
  const std::string problem = file.open(name.c_str());
  if (!problem.empty())
    return fmt::format("{} cannot be read: {}", name, problem);
  if (offset < 0 || offset > file.size() || bytes > file.size() - offset)
    return fmt::format("takes {} bytes from byte {} on, but {} has {} bytes",
                       bytes, offset, name, file.size());
  return "";
}

} // namespace

RowCodec::RowCodec(const stem_table_options &options)
    : count(options.rows), columns(options.columns),
      rows(static_cast<const char *>(options.resident)),
      stored(checked(options)), fileName(textOf(options.file)),
      hotFileName(textOf(stored.hot_file)), offset(options.offset) {}

std::string RowCodec::open() {
  std::string problem = openFile(file, fileName, offset, count * columns);
  if (problem.empty() && stored.hot_count > 0)
    problem = openFile(hotFile, hotFileName, stored.hot_offset,
                       stored.hot_count * hotRowBytes());
  return problem;
}

std::string RowCodec::change() const {
  const std::string found = file.change();
  return found.empty() && hotFile.isOpen() ? hotFile.change() : found;
}

int64_t RowCodec::hotRowBytes() const {
  return columns * elementBytes(stored.hot_dtype);
}

int64_t RowCodec::scaleBytes() const {
  return count * 2 * int64_t(sizeof(float)) +
         stored.hot_count * int64_t(sizeof(int32_t));
}

int64_t RowCodec::bytes() const {
  return count * columns +
         (stored.hot_count > 0 ? stored.hot_count * hotRowBytes() : 0);
}

int64_t RowCodec::hotPlace(int32_t id) const {
  const int32_t *end = stored.hot_ids + stored.hot_count;
  const int32_t *found = std::lower_bound(stored.hot_ids, end, id);
  return found != end && *found == id ? found - stored.hot_ids : -1;
}

int64_t RowCodec::rowBytes(int32_t id) const {
  return hotPlace(id) < 0 ? columns : hotRowBytes();
}

int64_t RowCodec::mostRowBytes() const {
  return stored.hot_count > 0 ? hotRowBytes() : columns;
}

const char *RowCodec::row(int32_t id) const {
  const int64_t place = hotPlace(id);
  return place < 0 ? rows + id * columns
                   : static_cast<const char *>(stored.hot_rows) +
                         place * hotRowBytes();
}

const RowFile &RowCodec::fileOf(int32_t id) const {
  return hotPlace(id) < 0 ? file : hotFile;
}

int64_t RowCodec::offsetOf(int32_t id) const {
  const int64_t place = hotPlace(id);
  return place < 0 ? offset + id * columns
                   : stored.hot_offset + place * hotRowBytes();
}

RowRead RowCodec::read(int32_t id, char *to) const {
  return {fileOf(id).handle(), offsetOf(id), rowBytes(id), to};
}

void RowCodec::decode(int32_t id, const char *from, float *out) const {
  const bool isHot = hotPlace(id) >= 0;
  const int64_t element = isHot ? elementBytes(stored.hot_dtype) : 1;
  if (isHot && stored.hot_dtype == STEM_F32) {
    std::memmove(out, from, columns * element);
    return;
  }
  const ByteScale scale = {stored.scale[id], stored.minimum[id]};
  uint8_t bytes[kPiece];
  uint16_t halves[kPiece];
  for (int64_t first = 0; first < columns; first += kPiece) {
    const int64_t values = std::min(kPiece, columns - first);
    const char *piece = from + first * element;
    if (!isHot) {
      std::memcpy(bytes, piece, values);
      decodeByteRow({bytes, size_t(values)}, scale, out + first);
      continue;
    }
    std::memcpy(halves, piece, values * element);
    std::transform(halves, halves + values, out + first,
                   stored.hot_dtype == STEM_BF16 ? widenBF16 : widenF16);
  }
}
