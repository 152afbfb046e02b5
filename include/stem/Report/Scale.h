//===- Scale.h - Values along an axis ---------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_REPORT_SCALE_H
#define STEM_REPORT_SCALE_H

#include <cstdint>
#include <string>
#include <vector>

namespace stem {

/// Where an axis has a line and a number: mantissa * 10^exponent.
struct Tick {
  int64_t mantissa = 0;
  int exponent = 0;

  /// Wider than double: the step of a range of denormal numbers, and the end
  /// beyond the greatest double, are finite.
  long double value() const;
  std::string text() const;
};

/// Maps values to 0 (the axis's low end) to 1 (its high end). The ends are
/// round numbers around the range that was asked for: 1, 2 or 5 times a power
/// of ten apart, or such numbers themselves on a logarithmic axis.
class Scale {
public:
  /// Finite ends, low <= high.
  static Scale linear(double low, double high);

  /// Finite ends, 0 < low <= high.
  static Scale logarithmic(double low, double high);

  double position(long double value) const;
  const std::vector<Tick> &ticks() const { return marks; }

private:
  Scale(const Tick &low, const Tick &high, bool isLogarithmic,
        std::vector<Tick> ticks);

  long double start, end; ///< logarithms on a logarithmic axis
  bool isLogarithmic;
  std::vector<Tick> marks;
};

} // namespace stem

#endif // STEM_REPORT_SCALE_H
