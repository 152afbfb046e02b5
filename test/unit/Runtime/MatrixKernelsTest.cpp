//===- MatrixKernelsTest.cpp - Products against a plain reference
//----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Runtime/Pack.h"

#include <cmath>
#include <cstring>
#include <memory>

using namespace stem;
using namespace stem::test;

namespace {

struct FreeDeleter {
  void operator()(void *pointer) const { std::free(pointer); }
};

/// A matrix of small random values in f32 or bf16, with its values in double.
struct Matrix {
  Matrix(stem_dtype dtype, int64_t rows, int64_t columns, unsigned seed)
      : dtype(dtype), rows(rows), columns(columns) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-1, 1);
    for (int64_t i = 0; i < rows * columns; ++i) {
      f32.push_back(values(random));
      bf16.push_back(bf16Bits(f32.back()));
      if (dtype == STEM_BF16)
        f32.back() = bf16Value(bf16.back());
    }
  }
  const void *data() const {
    return dtype == STEM_F32 ? static_cast<const void *>(f32.data())
                             : bf16.data();
  }
  double at(int64_t row, int64_t column) const {
    return f32[row * columns + column];
  }

  stem_dtype dtype;
  int64_t rows, columns;
  std::vector<float> f32;
  std::vector<uint16_t> bf16;
};

using Packed = std::unique_ptr<void, FreeDeleter>;

Packed pack(const Matrix &matrix) {
  int64_t bytes = packedBytes(matrix.dtype, matrix.rows, matrix.columns);
  Packed packed(std::aligned_alloc(64, std::max<int64_t>(bytes, 64)));
  std::memset(packed.get(), 0xff, std::max<int64_t>(bytes, 64));
  packMatrix({packed.get(), matrix.dtype, matrix.rows, matrix.columns}, 0,
             matrix.rows, {matrix.data(), matrix.dtype, matrix.columns});
  return packed;
}

/// sum over k of A[row, k] B[k0 + k, n0 + column], and of its magnitudes.
std::pair<double, double> dot(const Matrix &a, const Matrix &b, int64_t row,
                              int64_t k0, int64_t k, int64_t column) {
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < k; ++i) {
    double product = a.at(row, i) * b.at(k0 + i, column);
    sum += product;
    magnitude += std::abs(product);
  }
  return {sum, magnitude};
}

class MatrixKernels
    : public testing::TestWithParam<std::pair<stem_isa, stem_dtype>> {
protected:
  void SetUp() override {
    if (GetParam().first > detectIsa())
      GTEST_SKIP() << "this CPU lacks " << isaName(GetParam().first);
    context = createContext(1, GetParam().first);
    dtype = GetParam().second;
  }

  /// Computes into a C with guards around every row and compares.
  void check(int64_t m, int64_t k, int64_t n, int64_t k0 = 0, int64_t n0 = 0,
             bool accumulate = false, int64_t rowsAfter = 0) {
    Matrix a(dtype, m, k, 1);
    Matrix b(dtype, k0 + k + rowsAfter, n0 + n, 2);
    Packed packed = pack(b);
    int64_t ldc = n + 3;
    std::vector<float> c(m * ldc + 1, 7.0f);
    stem_packed_matmul(context.get(), a.data(), k, packed.get(), dtype, b.rows,
                       b.columns, k0, n0, c.data(), ldc, m, k, n, accumulate);
    for (int64_t row = 0; row < m; ++row)
      for (int64_t column = 0; column < ldc; ++column) {
        float seen = c[row * ldc + column];
        if (column >= n) {
          ASSERT_EQ(seen, 7.0f) << "written beyond n at row " << row;
          continue;
        }
        auto [sum, magnitude] = dot(a, b, row, k0, k, n0 + column);
        if (accumulate)
          sum += 7;
        ASSERT_NEAR(seen, sum, (magnitude + 7) * (k + 1) * 0x1p-24)
            << m << " x " << k << " x " << n << " at " << row << ", " << column;
      }
    ASSERT_EQ(c.back(), 7.0f);
  }

  ContextPtr context;
  stem_dtype dtype;
};

TEST_P(MatrixKernels, EveryTailOfRows) {
  for (int64_t m = 0; m <= 35; ++m)
    check(m, 70, 65);
}

TEST_P(MatrixKernels, EveryTailOfColumns) {
  for (int64_t m : {1, 2, 6, 20})
    for (int64_t n = 0; n <= 130; ++n)
      check(m, 9, n, 0, 0, n % 2);
}

TEST_P(MatrixKernels, EveryTailOfK) {
  for (int64_t k = 0; k <= 20; ++k) {
    check(7, k, 66);
    check(7, k, 66, 0, 0, /*accumulate=*/true);
  }
  for (int64_t k : {31, 32, 33, 63, 95, 97})
    check(19, k, 66);
  // Beyond every block of k.
  check(7, 1201, 5);
  check(1, 1201, 70, 0, 0, /*accumulate=*/true);
}

TEST_P(MatrixKernels, PartsOfAMatrix) {
  for (int64_t k : {63, 64, 65})
    for (int64_t n : {1, 64, 100})
      check(9, k, n, 128, 64, /*accumulate=*/true, /*rowsAfter=*/5);
}

// Rows after an odd part of k hold infinities: none may come in.
TEST_P(MatrixKernels, AnOddPartOfKSeesNoRowBeyondIt) {
  Matrix a(dtype, 1, 3, 1);
  Matrix b(dtype, 4, 64, 2);
  for (int64_t n = 0; n < 64; ++n) {
    b.f32[3 * 64 + n] = INFINITY;
    b.bf16[3 * 64 + n] = 0x7f80;
  }
  Packed packed = pack(b);
  float c[64];
  stem_packed_matmul(context.get(), a.data(), 3, packed.get(), dtype, 4, 64, 0,
                     0, c, 64, 1, 3, 64, 0);
  for (float value : c)
    EXPECT_TRUE(std::isfinite(value));
}

TEST_P(MatrixKernels, ARowsBitsDependOnItAlone) {
  constexpr int64_t m = 41, k = 1111, n = 200;
  Matrix a(dtype, m, k, 3);
  Matrix b(dtype, k, n, 4);
  Packed packed = pack(b);
  size_t element = dtype == STEM_F32 ? 4 : 2;
  auto compute = [&](int64_t first, int64_t rows) {
    std::vector<float> c(rows * n);
    stem_packed_matmul(
        context.get(),
        static_cast<const char *>(a.data()) + first * k * element, k,
        packed.get(), dtype, k, n, 0, 0, c.data(), n, rows, k, n, 0);
    return c;
  };
  std::vector<float> whole = compute(0, m);
  for (int64_t rows = 1; rows < m; ++rows)
    for (int64_t first = 0; first + rows <= m; first += 7) {
      std::vector<float> part = compute(first, rows);
      ASSERT_EQ(std::memcmp(part.data(), whole.data() + first * n,
                            part.size() * sizeof(float)),
                0)
          << rows << " rows from " << first;
    }
}

TEST_P(MatrixKernels, APartOfKAtATimeGivesTheSameBits) {
  constexpr int64_t m = 8, k = 640, n = 70;
  Matrix a(dtype, m, k, 5);
  Matrix b(dtype, k, n, 6);
  Packed packed = pack(b);
  size_t element = dtype == STEM_F32 ? 4 : 2;
  std::vector<float> whole(m * n), parts(m * n);
  stem_packed_matmul(context.get(), a.data(), k, packed.get(), dtype, k, n, 0,
                     0, whole.data(), n, m, k, n, 0);
  for (int64_t k0 = 0; k0 < k; k0 += 128)
    stem_packed_matmul(
        context.get(), static_cast<const char *>(a.data()) + k0 * element, k,
        packed.get(), dtype, k, n, k0, 0, parts.data(), n, m, 128, n, k0 > 0);
  EXPECT_EQ(whole, parts);
}

// So many rows and k that a product is cut into parts of k.
TEST_P(MatrixKernels, ADeepProductHasTheBitsOfItsRows) {
  constexpr int64_t m = 66, k = 6150, n = 70;
  Matrix a(dtype, m, k, 7);
  Matrix b(dtype, k, n, 8);
  Packed packed = pack(b);
  size_t element = dtype == STEM_F32 ? 4 : 2;
  std::vector<float> whole(m * n, 7), rows(m * n, 7);
  for (int32_t accumulate : {0, 1}) {
    stem_packed_matmul(context.get(), a.data(), k, packed.get(), dtype, k, n, 0,
                       0, whole.data(), n, m, k, n, accumulate);
    for (int64_t row = 0; row < m; ++row)
      stem_packed_matmul(context.get(),
                         static_cast<const char *>(a.data()) +
                             row * k * element,
                         k, packed.get(), dtype, k, n, 0, 0,
                         rows.data() + row * n, n, 1, k, n, accumulate);
    EXPECT_EQ(whole, rows);
  }
}

TEST_P(MatrixKernels, AnEmptyKWritesZerosOrKeepsC) {
  float c[2] = {3, 4};
  float a = 0, b[64] = {};
  stem_packed_matmul(context.get(), &a, 0, b, dtype, 0, 2, 0, 0, c, 2, 1, 0, 2,
                     1);
  EXPECT_EQ(c[0], 3);
  stem_packed_matmul(context.get(), &a, 0, b, dtype, 0, 2, 0, 0, c, 2, 1, 0, 2,
                     0);
  EXPECT_EQ(c[0], 0);
  EXPECT_EQ(c[1], 0);
}

INSTANTIATE_TEST_SUITE_P(
    Isas, MatrixKernels,
    testing::Values(std::pair(STEM_ISA_AVX2, STEM_F32),
                    std::pair(STEM_ISA_AVX2, STEM_BF16),
                    std::pair(STEM_ISA_AVX512, STEM_F32),
                    std::pair(STEM_ISA_AVX512, STEM_BF16),
                    std::pair(STEM_ISA_AVX512_BF16, STEM_F32),
                    std::pair(STEM_ISA_AVX512_BF16, STEM_BF16),
                    std::pair(STEM_ISA_AMX, STEM_F32),
                    std::pair(STEM_ISA_AMX, STEM_BF16)),
    [](const auto &info) {
      std::string name(isaName(info.param.first));
      std::erase(name, '-');
      return name + (info.param.second == STEM_F32 ? "_f32" : "_bf16");
    });

TEST(PackedBytes, CountsPanelsAndPairs) {
  EXPECT_EQ(stem_packed_bytes(STEM_F32, 3, 65), 3 * 128 * 4);
  EXPECT_EQ(stem_packed_bytes(STEM_BF16, 3, 64), 4 * 64 * 2);
  EXPECT_EQ(stem_packed_bytes(STEM_F32, 0, 5), 0);
  EXPECT_EQ(stem_packed_bytes(STEM_I8, 3, 64), -1);
  EXPECT_EQ(stem_packed_bytes(STEM_F32, -1, 64), -1);
  EXPECT_EQ(stem_packed_bytes(STEM_F32, INT64_MAX / 2, INT64_MAX / 2), -1);
  EXPECT_EQ(stem_packed_bytes(STEM_F32, 1, INT64_MAX), -1);
}

} // namespace
