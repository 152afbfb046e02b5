//===- Scale.cpp - Values along an axis -----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Report/Scale.h"

#include <algorithm>
#include <array>
#include <cmath>

using namespace stem;

namespace {

/// What a value may lie beyond a round number by rounding alone.
constexpr long double slack = 1e-9L;

/// The round numbers 1, 2, 5, 10, 20, 50, ... in order; 0 is 1.
Tick roundNumber(int index) {
  constexpr std::array<int64_t, 3> mantissas = {1, 2, 5};
  const int remainder = (index % 3 + 3) % 3;
  return {mantissas[static_cast<size_t>(remainder)], (index - remainder) / 3};
}

int floorLog10(long double value) {
  return static_cast<int>(std::floor(std::log10(value)));
}

/// Index of the least round number that is not below `value` > 0.
int roundUp(long double value) {
  int index = 3 * floorLog10(value) - 1;
  while (roundNumber(index).value() < value * (1 - slack))
    ++index;
  return index;
}

int roundDown(long double value) {
  int index = roundUp(value);
  while (roundNumber(index).value() > value * (1 + slack))
    --index;
  return index;
}

} // namespace

long double Tick::value() const {
  return static_cast<long double>(mantissa) *
         std::pow(10.0L, static_cast<long double>(exponent));
}

std::string Tick::text() const {
  if (mantissa == 0)
    return "0";
  std::string digits = std::to_string(std::abs(mantissa));
  int zeros = exponent; // to write after the digits
  for (; digits.back() == '0'; ++zeros)
    digits.pop_back();
  const int point = static_cast<int>(digits.size()) + zeros;
  const std::string sign = mantissa < 0 ? "-" : "";
  if (zeros >= 0 && point <= 6)
    return sign + digits + std::string(static_cast<size_t>(zeros), '0');
  if (zeros < 0 && point > 0)
    return sign + digits.insert(static_cast<size_t>(point), ".");
  if (zeros < 0 && point > -4)
    return sign + "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  if (digits.size() > 1)
    digits.insert(1, ".");
  return sign + digits + "e" + std::to_string(point - 1);
}

Scale::Scale(const Tick &low, const Tick &high, bool isLogarithmic,
             std::vector<Tick> ticks)
    : start(low.value()), end(high.value()), isLogarithmic(isLogarithmic),
      marks(std::move(ticks)) {
  if (isLogarithmic) {
    start = std::log10(start);
    end = std::log10(end);
  }
}

Scale Scale::linear(double low, double high) {
  long double from = low, to = high;
  if (from == to) {
    const long double margin = from == 0 ? 1 : std::abs(from) / 10;
    to += margin;
    if (from != 0)
      from -= margin;
  }
  // At most five steps, and one more at each end that is not round.
  const Tick step = roundNumber(roundUp((to - from) / 5));
  const auto first =
      static_cast<int64_t>(std::floor(from / step.value() + slack));
  const auto last = static_cast<int64_t>(std::ceil(to / step.value() - slack));
  std::vector<Tick> ticks;
  for (int64_t i = first; i <= last; ++i)
    ticks.push_back({i * step.mantissa, step.exponent});
  return {ticks.front(), ticks.back(), false, ticks};
}

Scale Scale::logarithmic(double low, double high) {
  const int first = roundDown(low);
  const int last = std::max(roundUp(high), first + 1);
  constexpr int most = 7;
  std::vector<Tick> ticks;
  if (last - first <= most) {
    for (int i = first; i <= last; ++i)
      ticks.push_back(roundNumber(i));
  } else {
    const int decades = (last - first) / 3;
    const int stride = 3 * ((decades + most - 1) / most);
    for (int i = first; i <= last; ++i)
      if (i % stride == 0)
        ticks.push_back(roundNumber(i));
  }
  return {roundNumber(first), roundNumber(last), true, ticks};
}

double Scale::position(long double value) const {
  if (isLogarithmic)
    value = std::log10(value);
  return static_cast<double>((value - start) / (end - start));
}
