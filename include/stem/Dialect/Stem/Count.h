//===- Count.h - Counts that do not wrap ------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DIALECT_STEM_COUNT_H
#define STEM_DIALECT_STEM_COUNT_H

#include "llvm/Support/MathExtras.h"

#include <cstdint>
#include <limits>

namespace stem {

/// A number of elements, bytes or operations. A sum or product that is too
/// large for 64 bits is `kTooMany`, and so is all that is counted with it.
class Count {
public:
  static constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max();

  Count(int64_t value = 0) : value(value) {}

  int64_t get() const { return value; }
  bool isExact() const { return value != kTooMany; }

  friend Count operator+(Count a, Count b) {
    int64_t sum;
    return llvm::AddOverflow(a.value, b.value, sum) ? kTooMany : sum;
  }
  friend Count operator*(Count a, Count b) {
    if (a.value == 0 || b.value == 0)
      return 0;
    int64_t product;
    return !a.isExact() || !b.isExact() ||
                   llvm::MulOverflow(a.value, b.value, product)
               ? kTooMany
               : product;
  }
  Count &operator+=(Count other) { return *this = *this + other; }
  Count &operator*=(Count other) { return *this = *this * other; }

private:
  int64_t value;
};

} // namespace stem

#endif // STEM_DIALECT_STEM_COUNT_H
