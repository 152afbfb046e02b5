//===- PackTest.cpp - Packing weights -------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Pack.h"
#include "TestSupport.h"

#include <cmath>

using namespace stem;
using namespace stem::test;

namespace {

/// Element (k, n) by the words of the header, in f32.
float packedAt(const PackTarget &target, int64_t k, int64_t n) {
  int64_t panel = n / STEM_PANEL, column = n % STEM_PANEL;
  if (target.dtype == STEM_F32)
    return static_cast<float *>(
        target.data)[(panel * target.k + k) * STEM_PANEL + column];
  int64_t pairs = (target.k + 1) / 2;
  return bf16Value(static_cast<uint16_t *>(
      target
          .data)[((panel * pairs + k / 2) * STEM_PANEL + column) * 2 + k % 2]);
}

/// Every element in place, and zeros in the padding.
void expectPacked(const PackTarget &target,
                  float (*value)(int64_t k, int64_t n)) {
  int64_t rows = target.dtype == STEM_BF16 ? (target.k + 1) / 2 * 2 : target.k;
  int64_t columns = (target.n + STEM_PANEL - 1) / STEM_PANEL * STEM_PANEL;
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t n = 0; n < columns; ++n) {
      bool padding = k >= target.k || n >= target.n;
      ASSERT_EQ(packedAt(target, k, n), padding ? 0 : value(k, n))
          << k << ", " << n;
    }
}

/// Exact in bf16.
float value(int64_t k, int64_t n) {
  return static_cast<float>((k * 31 + n * 7) % 251 - 125);
}

std::vector<uint16_t> garbage(const PackTarget &target) {
  return std::vector<uint16_t>(
      packedBytes(target.dtype, target.k, target.n) / 2, 0x7fc1);
}

TEST(Pack, WeightsByRangesInAnyOrder) {
  for (stem_dtype to : {STEM_F32, STEM_BF16})
    for (stem_dtype from : {STEM_F32, STEM_BF16})
      for (int64_t k : {1, 2, 37, 64})
        for (int64_t n : {1, 64, 65, 150}) {
          int64_t stride = k + 3;
          std::vector<float> f32(n * stride, NAN);
          std::vector<uint16_t> bf16(n * stride, 0x7fc0);
          for (int64_t row = 0; row < n; ++row)
            for (int64_t i = 0; i < k; ++i) {
              f32[row * stride + i] = value(i, row);
              bf16[row * stride + i] = bf16Bits(value(i, row));
            }
          PackTarget target = {nullptr, to, k, n};
          std::vector<uint16_t> buffer = garbage(target);
          target.data = buffer.data();
          auto put = [&](int64_t first, int64_t count) {
            const void *rows =
                from == STEM_F32
                    ? static_cast<const void *>(&f32[first * stride])
                    : &bf16[first * stride];
            packWeight(target, first, count, {rows, from, stride});
          };
          int64_t half = n / 3;
          put(half, n - half);
          if (half)
            put(0, half);
          expectPacked(target, value);
        }
}

TEST(Pack, MatricesByRanges) {
  for (stem_dtype to : {STEM_F32, STEM_BF16})
    for (int64_t k : {1, 7, 64})
      for (int64_t n : {1, 64, 130}) {
        std::vector<float> source(k * n);
        for (int64_t i = 0; i < k; ++i)
          for (int64_t j = 0; j < n; ++j)
            source[i * n + j] = value(i, j);
        PackTarget target = {nullptr, to, k, n};
        std::vector<uint16_t> buffer = garbage(target);
        target.data = buffer.data();
        int64_t half = k / 4 * 2;
        packMatrix(target, half, k - half, {&source[half * n], STEM_F32, n});
        packMatrix(target, 0, half, {source.data(), STEM_F32, n});
        expectPacked(target, value);
      }
}

uint16_t asBF16(float source) {
  alignas(64) uint16_t packed[128];
  packMatrix({packed, STEM_BF16, 1, 1}, 0, 1, {&source, STEM_F32, 1});
  return packed[0];
}

TEST(Pack, RoundsToNearestEven) {
  EXPECT_EQ(asBF16(1.0f), 0x3f80);
  EXPECT_EQ(asBF16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(asBF16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(asBF16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(asBF16(-INFINITY), 0xff80);
  EXPECT_EQ(asBF16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
}

/// Blocks are rounded as single elements are.
TEST(Pack, RoundsBlocksAlike) {
  for (uint32_t bits : {0x3f808000u, 0x3f808001u, 0x3f818000u, 0xff800000u,
                        0x7f800001u, 0xffc12345u, 0x00000001u, 0x7f7fffffu}) {
    const float value = std::bit_cast<float>(bits);
    const std::vector<float> source(8 * 8, value);
    alignas(64) uint16_t weight[8 * STEM_PANEL], matrix[8 * STEM_PANEL];
    packWeight({weight, STEM_BF16, 8, 8}, 0, 8, {source.data(), STEM_F32, 8});
    packMatrix({matrix, STEM_BF16, 8, 8}, 0, 8, {source.data(), STEM_F32, 8});
    for (int64_t pair = 0; pair < 4; ++pair)
      for (int64_t i = 0; i < 16; ++i) {
        EXPECT_EQ(weight[pair * 2 * STEM_PANEL + i], asBF16(value)) << bits;
        EXPECT_EQ(matrix[pair * 2 * STEM_PANEL + i], asBF16(value)) << bits;
      }
  }
}

float fromF16(uint16_t source) {
  alignas(64) float packed[64];
  packMatrix({packed, STEM_F32, 1, 1}, 0, 1, {&source, STEM_F16, 1});
  return packed[0];
}

TEST(Pack, WidensF16) {
  EXPECT_EQ(fromF16(0x3c00), 1.0f);
  EXPECT_EQ(fromF16(0xc500), -5.0f);
  EXPECT_EQ(fromF16(0x0001), 0x1p-24f);
  EXPECT_EQ(fromF16(0x83ff), -0x3ffp-24f);
  EXPECT_EQ(fromF16(0x7bff), 65504.0f);
  EXPECT_EQ(fromF16(0x7c00), INFINITY);
  EXPECT_EQ(std::signbit(fromF16(0x8000)), true);
  EXPECT_TRUE(std::isnan(fromF16(0x7e00)));
}

TEST(Pack, RefusesWhatDoesNotFit) {
  alignas(64) float packed[256];
  float source[16] = {};
  PackTarget target = {packed, STEM_F32, 4, 3};
  PackSource rows = {source, STEM_F32, 4};
  expectContains(errorOf([&] { packWeight(target, 2, 2, rows); }),
                 "packWeight: rows [2, 2 + 2) do not lie within the 3 rows");
  expectContains(errorOf([&] { packWeight(target, -1, 1, rows); }),
                 "rows [-1, -1 + 1)");
  expectContains(
      errorOf([&] { packWeight(target, 0, 2, {source, STEM_F32, 3}); }),
      "row stride 3 is less than its 4 columns");
  expectContains(
      errorOf([&] { packWeight(target, 0, 1, {nullptr, STEM_F32, 4}); }),
      "no source to pack");
  expectContains(
      errorOf([&] { packWeight({nullptr, STEM_F32, 4, 3}, 0, 1, rows); }),
      "no target to pack");
  expectContains(
      errorOf([&] { packWeight(target, 0, 1, {source, STEM_I8, 4}); }),
      "cannot pack elements of type 3");
  expectContains(
      errorOf([&] { packMatrix({packed, STEM_BF16, 4, 3}, 1, 1, rows); }),
      "starts at the odd row 1");
  expectContains(errorOf([&] { packedBytes(STEM_I32, 1, 1); }),
                 "holds f32 or bf16, not type 2");
  expectContains(errorOf([&] { packedBytes(STEM_F32, -1, 1); }),
                 "a packed matrix of -1 x 1 elements has no size");
}

TEST(Pack, gatherReadsColumnsOfThePackedMatrix) {
  // K = 5 (odd: the last pair of bf16 rows is padded), N = 70 (two panels).
  constexpr int64_t k = 5, n = 70;
  std::vector<float> source(n * k);
  for (int64_t i = 0; i < n * k; ++i)
    source[i] = static_cast<float>(i % 61) - 30; // exact in bf16
  const int32_t ids[] = {69, 0, 63, 64, 0};
  for (stem_dtype dtype : {STEM_F32, STEM_BF16}) {
    std::vector<float> packed(packedBytes(dtype, k, n) / 4 + 16);
    void *data = packed.data();
    size_t space = packed.size() * 4;
    std::align(64, packedBytes(dtype, k, n), data, space);
    packWeight({data, dtype, k, n}, 0, n, {source.data(), STEM_F32, k});
    std::vector<float> out(5 * 7, -1);
    stem_packed_gather(data, dtype, k, n, ids, 5, out.data(), 7);
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t j = 0; j < 7; ++j)
        EXPECT_EQ(out[t * 7 + j], j < k ? source[ids[t] * k + j] : -1)
            << t << ", " << j;
  }
}

} // namespace
