//===- Sizes.h - Products of sizes, checked ---------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_CALIBRATION_SIZES_H
#define STEM_LIB_CALIBRATION_SIZES_H

#include "stem/Support/Error.h"

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace stem {

/// The product of sizes that are at least 1; an Error that names `what` when
/// one is not or when the product does not fit 62 bits, so that a few of them
/// can be added.
inline int64_t checkedSize(std::string_view what,
                           std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (size < 1)
      fail("{}: a size is {}, wanted at least 1", what, size);
    if (__builtin_mul_overflow(product, size, &product) ||
        product > INT64_MAX / 2)
      fail("{}: the product of its sizes does not fit 62 bits", what);
  }
  return product;
}

} // namespace stem

#endif // STEM_LIB_CALIBRATION_SIZES_H
