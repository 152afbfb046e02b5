//===- ByteRows.h - Rows of 8 bits ------------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row of f32 as a byte for each value, with the row's minimum and a scale:
// x ~ minimum + scale * byte. Of a finite row no value is further off than half
// the scale and two units in the last place of the row's largest magnitude.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_BYTEROWS_H
#define STEM_SUPPORT_BYTEROWS_H

#include <cstdint>
#include <optional>
#include <span>

namespace stem {

struct ByteScale {
  float scale; ///< (maximum - minimum) / 255; 0: a constant row
  float minimum;
};

/// Bytes of `row`, as many as it has values; nothing where one of them is NaN
/// or infinite.
std::optional<ByteScale> encodeByteRow(std::span<const float> row,
                                       uint8_t *bytes);

/// In double precision, where the product is exact: the bits are the same with
/// and without fused multiply-add, and in any other program that does this.
void decodeByteRow(std::span<const uint8_t> bytes, ByteScale scale, float *out);

} // namespace stem

#endif // STEM_SUPPORT_BYTEROWS_H
