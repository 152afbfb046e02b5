//===- ScaleTest.cpp - Round numbers along an axis ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Report/Scale.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace stem;

namespace {

std::vector<std::string> texts(const Scale &scale) {
  std::vector<std::string> result;
  for (const Tick &tick : scale.ticks())
    result.push_back(tick.text());
  return result;
}

using Texts = std::vector<std::string>;

TEST(Scale, hasRoundNumbersAroundTheRange) {
  EXPECT_EQ(texts(Scale::linear(0, 1)),
            (Texts{"0", "0.2", "0.4", "0.6", "0.8", "1"}));
  EXPECT_EQ(texts(Scale::linear(0.3, 0.8)),
            (Texts{"0.3", "0.4", "0.5", "0.6", "0.7", "0.8"}));
  EXPECT_EQ(texts(Scale::linear(-3, 22)),
            (Texts{"-5", "0", "5", "10", "15", "20", "25"}));
  EXPECT_EQ(texts(Scale::linear(0, 151000000)),
            (Texts{"0", "5e7", "1e8", "1.5e8", "2e8"}));
  EXPECT_EQ(texts(Scale::linear(0.0001, 0.0004)),
            (Texts{"0.0001", "0.0002", "0.0003", "0.0004"}));
}

TEST(Scale, widensOneValueToARange) {
  EXPECT_EQ(texts(Scale::linear(0, 0)),
            (Texts{"0", "0.2", "0.4", "0.6", "0.8", "1"}));
  const Scale seven = Scale::linear(7, 7);
  EXPECT_GT(seven.position(7), 0.2);
  EXPECT_LT(seven.position(7), 0.8);
  const Scale minus = Scale::linear(-1e300, -1e300);
  EXPECT_GT(minus.position(-1e300), 0.2);
  EXPECT_LT(minus.position(-1e300), 0.8);
}

TEST(Scale, placesValues) {
  const Scale scale = Scale::linear(0, 10);
  EXPECT_DOUBLE_EQ(scale.position(0), 0);
  EXPECT_DOUBLE_EQ(scale.position(2.5), 0.25);
  EXPECT_DOUBLE_EQ(scale.position(10), 1);
  const Scale decades = Scale::logarithmic(1, 10000);
  EXPECT_DOUBLE_EQ(decades.position(1), 0);
  EXPECT_DOUBLE_EQ(decades.position(100), 0.5);
  EXPECT_DOUBLE_EQ(decades.position(10000), 1);
}

TEST(Scale, logarithmicHasRoundNumbers) {
  EXPECT_EQ(texts(Scale::logarithmic(12, 95)),
            (Texts{"10", "20", "50", "100"}));
  EXPECT_EQ(texts(Scale::logarithmic(20, 20)), (Texts{"20", "50"}));
  EXPECT_EQ(texts(Scale::logarithmic(0.003, 40000)),
            (Texts{"0.01", "0.1", "1", "10", "100", "1000", "10000"}));
}

/// Any two doubles: few ticks, in order, and both values on the axis.
TEST(Scale, holdsForHugeAndTinyRanges) {
  constexpr double tiny = std::numeric_limits<double>::denorm_min();
  constexpr double huge = std::numeric_limits<double>::max();
  const double values[] = {
      -huge, -1e15,    -1,  -tiny, 0, tiny, 1e-9, 1, 1.0000000000000002,
      1e15,  1e15 + 1, huge};
  const auto check = [](const Scale &scale, double low, double high) {
    EXPECT_GE(scale.ticks().size(), 2u) << low << " " << high;
    EXPECT_LE(scale.ticks().size(), 9u) << low << " " << high;
    for (const double value : {low, high}) {
      EXPECT_GE(scale.position(value), -1e-3) << low << " " << high;
      EXPECT_LE(scale.position(value), 1 + 1e-3) << low << " " << high;
    }
    double last = -1;
    for (const Tick &tick : scale.ticks()) {
      EXPECT_GT(scale.position(tick.value()), last) << low << " " << high;
      last = scale.position(tick.value());
    }
  };
  for (const double low : values)
    for (const double high : values) {
      if (low > high)
        continue;
      check(Scale::linear(low, high), low, high);
      if (low > 0)
        check(Scale::logarithmic(low, high), low, high);
    }
}

TEST(Tick, writesDecimals) {
  EXPECT_EQ((Tick{0, 5}).text(), "0");
  EXPECT_EQ((Tick{125, -2}).text(), "1.25");
  EXPECT_EQ((Tick{-5, -3}).text(), "-0.005");
  EXPECT_EQ((Tick{5, -5}).text(), "5e-5");
  EXPECT_EQ((Tick{999, 3}).text(), "999000");
  EXPECT_EQ((Tick{-125, 4}).text(), "-1.25e6");
  EXPECT_EQ((Tick{1000000000000001, 0}).text(), "1.000000000000001e15");
}

} // namespace
