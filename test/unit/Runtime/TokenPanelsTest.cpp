//===- TokenPanelsTest.cpp - Operands of products over tokens -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "stem/Runtime/Pack.h"

#include <cmath>
#include <cstring>

using namespace stem;
using namespace stem::test;

namespace {

/// Exact in bf16.
float value(int64_t row, int64_t column) {
  return static_cast<float>((row * 29 + column * 13) % 253 - 126);
}

/// `rows x columns` of value(), with a longer row stride, in f32 or bf16.
template <typename T> struct Rows {
  Rows(int64_t rows, int64_t columns, int64_t ld)
      : ld(ld), data(static_cast<size_t>(rows * ld + 1), guard()) {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t n = 0; n < columns; ++n)
        data[t * ld + n] = make(value(t, n));
  }

  static T make(float value) {
    if constexpr (std::is_same_v<T, float>)
      return value;
    else
      return bf16Bits(value);
  }
  static float read(T element) {
    if constexpr (std::is_same_v<T, float>)
      return element;
    else
      return bf16Value(element);
  }
  /// A NaN: what is read where nothing should be shows in every sum.
  static T guard() {
    if constexpr (std::is_same_v<T, float>)
      return NAN;
    else
      return 0x7fc1;
  }
  static constexpr stem_dtype dtype =
      std::is_same_v<T, float> ? STEM_F32 : STEM_BF16;

  int64_t ld;
  std::vector<T> data;
};

template <typename T> class TokenPanels : public testing::Test {};
using Types = testing::Types<float, uint16_t>;
TYPED_TEST_SUITE(TokenPanels, Types);

TYPED_TEST(TokenPanels, ColumnsBecomeRows) {
  using Matrix = Rows<TypeParam>;
  for (int64_t rows : {1, 2, 15, 16, 17, 64, 129})
    for (int64_t columns : {1, 3, 16, 33, 64}) {
      const Matrix x(rows, columns, columns + 5);
      const int64_t ldo = rows + 3;
      std::vector<TypeParam> out(static_cast<size_t>(columns * ldo),
                                 Matrix::make(7));
      stem_transpose_tokens(x.data.data(), x.ld, Matrix::dtype, rows, columns,
                            out.data(), ldo);
      for (int64_t n = 0; n < columns; ++n)
        for (int64_t t = 0; t < ldo; ++t)
          ASSERT_EQ(Matrix::read(out[n * ldo + t]), t < rows ? value(t, n) : 7)
              << rows << " x " << columns << " at " << n << ", " << t;
    }
}

/// The layout of packMatrix for a matrix of so many rows and at most a panel of
/// columns; nothing behind it is written.
TYPED_TEST(TokenPanels, APanelIsThatOfAPackedMatrix) {
  using Matrix = Rows<TypeParam>;
  for (int64_t rows : {1, 2, 7, 64, 129})
    for (int64_t columns : {1, 31, 63, 64}) {
      const Matrix x(rows, columns, columns + 2);
      const auto bytes =
          static_cast<size_t>(packedBytes(Matrix::dtype, rows, columns));
      std::vector<std::byte> wanted(bytes), panel(bytes + 64, std::byte{0xee});
      packMatrix({wanted.data(), Matrix::dtype, rows, columns}, 0, rows,
                 {x.data.data(), Matrix::dtype, x.ld});
      stem_pack_tokens(x.data.data(), x.ld, Matrix::dtype, rows, columns,
                       panel.data());
      ASSERT_EQ(std::memcmp(panel.data(), wanted.data(), bytes), 0)
          << rows << " x " << columns;
      for (size_t i = bytes; i < panel.size(); ++i)
        ASSERT_EQ(panel[i], std::byte{0xee}) << rows << " x " << columns;
    }
}

/// x^T y as compiled code has it: x in panels of `depth` rows, of which the
/// tokens fill the first, and y transposed.
template <typename T>
void checkProduct(stem_context *context, int64_t tokens, int64_t depth,
                  int64_t inputs, int64_t outputs, bool accumulate) {
  using Matrix = Rows<T>;
  const Matrix x(tokens, inputs, inputs), y(tokens, outputs, outputs);
  const int64_t panels = (inputs + STEM_PANEL - 1) / STEM_PANEL;
  const int64_t panelSize = depth * STEM_PANEL;
  std::vector<T> packed(static_cast<size_t>(panels * panelSize),
                        Matrix::guard());
  for (int64_t panel = 0; panel < panels; ++panel)
    stem_pack_tokens(x.data.data() + panel * STEM_PANEL, x.ld, Matrix::dtype,
                     tokens,
                     std::min<int64_t>(STEM_PANEL, inputs - panel * STEM_PANEL),
                     packed.data() + panel * panelSize);
  std::vector<T> turned(static_cast<size_t>(outputs * depth), Matrix::guard());
  stem_transpose_tokens(y.data.data(), y.ld, Matrix::dtype, tokens, outputs,
                        turned.data(), depth);
  std::vector<float> sums(static_cast<size_t>(outputs * inputs), 5.0f);
  stem_packed_matmul(context, turned.data(), depth, packed.data(),
                     Matrix::dtype, depth, panels * STEM_PANEL, 0, 0,
                     sums.data(), inputs, outputs, tokens, inputs, accumulate);
  for (int64_t n = 0; n < outputs; ++n)
    for (int64_t k = 0; k < inputs; ++k) {
      double wanted = accumulate ? 5 : 0, size = 5;
      for (int64_t t = 0; t < tokens; ++t) {
        wanted += double(value(t, n)) * value(t, k);
        size += std::abs(double(value(t, n)) * value(t, k));
      }
      ASSERT_NEAR(sums[n * inputs + k], wanted, size * tokens * 0x1p-24)
          << tokens << " tokens of " << depth << ", " << outputs << " x "
          << inputs << " at " << n << ", " << k;
    }
}

TYPED_TEST(TokenPanels, ProductsOverTokens) {
  for (stem_isa isa : runnableIsas()) {
    SCOPED_TRACE(isaName(isa));
    const ContextPtr context = createContext(1, isa);
    for (bool accumulate : {false, true}) {
      checkProduct<TypeParam>(context.get(), 64, 64, 64, 64, accumulate);
      checkProduct<TypeParam>(context.get(), 64, 2048, 80, 40, accumulate);
      checkProduct<TypeParam>(context.get(), 192, 256, 130, 7, accumulate);
      checkProduct<TypeParam>(context.get(), 2, 4, 1, 1, accumulate);
    }
  }
}

} // namespace
