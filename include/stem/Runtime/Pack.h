//===- Pack.h - Writing packed matrices -------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fills the layout of stem_packed (include/stem-c/Runtime.h) from row-major
// sources, a range of rows at a time and converting as it goes: a loader needs
// no second copy of a matrix. Ranges may come in any order and from several
// threads; the padding is written by whichever call reaches it.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_PACK_H
#define STEM_RUNTIME_PACK_H

#include "stem-c/Runtime.h"

namespace stem {

/// The K x N matrix to fill: stem_packed_bytes bytes, 64-byte aligned.
struct PackTarget {
  void *data;
  stem_dtype dtype; ///< STEM_F32 or STEM_BF16
  int64_t k;
  int64_t n;
};

/// Row-major elements of type STEM_F32, STEM_BF16 or STEM_F16. To bf16 they
/// round to nearest, ties to even; NaN stays a NaN.
struct PackSource {
  const void *data; ///< aligned to its elements
  stem_dtype dtype;
  int64_t stride; ///< elements from one row to the next
};

/// stem_packed_bytes, or an Error when the size does not exist.
STEM_EXPORT int64_t packedBytes(stem_dtype dtype, int64_t k, int64_t n);

/// The weight as a checkpoint stores it, N x K (out x in): its rows
/// [first, first + count), which are columns of the packed matrix. Each call
/// also zeroes the padding of k; the one that brings the last row zeroes the
/// columns after it.
STEM_EXPORT void packWeight(const PackTarget &target, int64_t first,
                            int64_t count, const PackSource &source);

/// A matrix stored K x N: its rows [first, first + count). In bf16 `first` is
/// even, so that no two calls write one pair.
STEM_EXPORT void packMatrix(const PackTarget &target, int64_t first,
                            int64_t count, const PackSource &source);

} // namespace stem

#endif // STEM_RUNTIME_PACK_H
