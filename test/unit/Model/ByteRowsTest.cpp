//===- ByteRowsTest.cpp - Rows of 8 bits ----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/ByteRows.h"

#include "stem/Model/DType.h"
#include "stem/Model/Safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace stem;

namespace {

using Row = std::vector<float>;
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

struct Encoded {
  ByteScale scale;
  std::vector<uint8_t> bytes;
  Row decoded;
};

Encoded encode(const Row &row) {
  Encoded result;
  result.bytes.resize(row.size());
  const auto scale = encodeByteRow(row, result.bytes.data());
  EXPECT_TRUE(scale);
  result.scale = scale.value_or(ByteScale{0, 0});
  result.decoded.resize(row.size());
  decodeByteRow(result.bytes, result.scale, result.decoded.data());
  return result;
}

double ulp(float value) {
  const float magnitude = std::fabs(value);
  return magnitude == kLargest
             ? double(magnitude) - std::nextafter(magnitude, 0.0F)
             : double(std::nextafter(magnitude, INFINITY)) - magnitude;
}

/// How far the worst value is off, as a part of what is allowed.
double worst(const Row &row, const Encoded &encoded) {
  float largest = 0;
  for (const float x : row)
    largest = std::max(largest, std::fabs(x));
  const double allowed = encoded.scale.scale / 2.0 + 2 * ulp(largest);
  double result = 0;
  for (size_t i = 0; i < row.size(); ++i)
    result = std::max(result,
                      std::fabs(double(row[i]) - encoded.decoded[i]) / allowed);
  return result;
}

void expectWithinBound(const Row &row) {
  const Encoded encoded = encode(row);
  EXPECT_LE(worst(row, encoded), 1) << row.front() << " " << row.back();
  for (const float x : encoded.decoded)
    EXPECT_TRUE(std::isfinite(x));
}

/// Case E8.
TEST(ByteRows, haveTheReferenceScales) {
  const auto file = SafetensorsFile::open(
      STEM_TEST_DATA "/golden/int8_rows/golden.safetensors");
  const auto read = [&](const char *name) {
    const TensorView &tensor = file.get(name);
    Row values(tensor.data.size() / sizeof(float));
    decodeToF32(tensor.dtype, tensor.data.data(), values.size(), values.data());
    return values;
  };
  const Row x = read("x"), scale = read("scale"), minimum = read("row_min");
  const size_t columns = x.size() / scale.size();
  for (size_t i = 0; i < scale.size(); ++i) {
    SCOPED_TRACE(i);
    const auto begin = x.begin() + static_cast<ptrdiff_t>(i * columns);
    const Row row(begin, begin + static_cast<ptrdiff_t>(columns));
    const Encoded encoded = encode(row);
    EXPECT_EQ(encoded.scale.scale, scale[i]);
    EXPECT_EQ(encoded.scale.minimum, minimum[i]);
    EXPECT_LE(worst(row, encoded), 1);
  }
}

TEST(ByteRows, ofOneValueAreExact) {
  for (const float x : {0.0F, 1.0F, -3.25F, 0.1F, kDenormal, -kLargest}) {
    const Encoded encoded = encode(Row(7, x));
    EXPECT_EQ(encoded.scale.scale, 0);
    EXPECT_EQ(encoded.decoded, Row(7, x));
  }
  EXPECT_EQ(encode({-2.5F}).decoded, Row{-2.5F});
}

TEST(ByteRows, keepMinimumAndMaximum) {
  const Encoded encoded = encode({-1, 0.3F, 2, 1000});
  EXPECT_EQ(encoded.bytes, (std::vector<uint8_t>{0, 0, 1, 255}));
  EXPECT_EQ(encoded.decoded.front(), -1);
  EXPECT_EQ(encoded.decoded.back(), 1000);
}

TEST(ByteRows, areWithinTheBoundAtTheEnds) {
  expectWithinBound({-kLargest, 0, kLargest});
  expectWithinBound({-kLargest, kLargest / 3});
  expectWithinBound({kLargest, std::nextafter(kLargest, 0.0F)});
  expectWithinBound({0, kLargest});
  // A range of so few units that the nearest scale is nothing, or far too
  // small.
  for (int range = 1; range < 2000; ++range) {
    expectWithinBound({0, float(range / 3) * kDenormal, range * kDenormal});
    expectWithinBound({-range * kDenormal, range * kDenormal});
    expectWithinBound({1, 1 + float(range) * 0x1p-23F});
  }
}

/// Of all magnitudes, wide and narrow, around zero and far from it.
TEST(ByteRows, areWithinTheBound) {
  std::mt19937 random(1);
  const auto exponent = [&](int from, int to) {
    return std::uniform_int_distribution(from, to)(random);
  };
  for (int i = 0; i < 20000; ++i) {
    Row row(static_cast<size_t>(exponent(2, 40)));
    const float width = std::ldexp(1.0F, exponent(-149, 126));
    const float centre =
        std::ldexp(1.0F, exponent(-149, 126)) * float(exponent(-1, 1));
    for (float &x : row)
      x = centre + width * std::normal_distribution<float>()(random);
    if (i % 4 == 0)
      row.front() *= 100; // an outlier
    if (std::ranges::all_of(row, [](float x) { return std::isfinite(x); }))
      expectWithinBound(row);
  }
  for (int i = 0; i < 20000; ++i) {
    Row row(8);
    for (float &x : row)
      while (!std::isfinite(x = std::bit_cast<float>(uint32_t(random()))))
        ;
    expectWithinBound(row);
  }
}

TEST(ByteRows, areFinite) {
  uint8_t bytes[3];
  for (const float x : {INFINITY, -INFINITY, NAN})
    for (size_t place = 0; place < 3; ++place) {
      Row row = {1, 2, 3};
      row[place] = x;
      EXPECT_FALSE(encodeByteRow(row, bytes));
    }
}

} // namespace
