//===- DTypeTest.cpp - Element types and their conversions ----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/DType.h"

#include "TestFiles.h"

#include <bit>
#include <cmath>
#include <limits>

using namespace stem;
using namespace stem::test;

namespace {

float decodeOne(DType dtype, const std::string &bytes) {
  float value = -1;
  decodeToF32(dtype, bytesOf(bytes).data(), 1, &value);
  return value;
}

TEST(DType, namesGoBothWays) {
  for (const char *name :
       {"BOOL",    "F4",      "F6_E2M3", "F6_E3M2",     "U8",          "I8",
        "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
        "U16",     "F16",     "BF16",    "I32",         "U32",         "F32",
        "C64",     "F64",     "I64",     "U64"}) {
    const auto dtype = dtypeFromName(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(dtypeName(*dtype), name);
  }
  EXPECT_FALSE(dtypeFromName("Q4_0"));
  EXPECT_FALSE(dtypeFromName("f32"));
  EXPECT_EQ(dtypeFromConfigName("torch.bfloat16"), DType::BF16);
  EXPECT_EQ(dtypeFromConfigName("float32"), DType::F32);
  EXPECT_FALSE(dtypeFromConfigName("auto"));
}

TEST(DType, sizesCountBlocksAndOverflow) {
  EXPECT_EQ(dtypeBytes(DType::F4, 2), 1u);
  EXPECT_FALSE(dtypeBytes(DType::F4, 3));
  EXPECT_EQ(dtypeBytes(DType::F6E2M3, 4), 3u);
  EXPECT_EQ(dtypeBytes(DType::C64, 3), 24u);
  EXPECT_EQ(dtypeBytes(DType::Q4_1, 64), 40u);
  EXPECT_FALSE(dtypeBytes(DType::Q4_K, 32));
  EXPECT_FALSE(dtypeBytes(DType::F64, uint64_t{1} << 61));
  const uint64_t large[] = {uint64_t{1} << 33, uint64_t{1} << 33};
  EXPECT_FALSE(elementCount(large));
  EXPECT_EQ(elementCount({}), 1u);
}

// Every bf16 value survives the way through f32.
TEST(DType, bf16RoundTripsAllValues) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = bf16ToF32(static_cast<uint16_t>(bits));
    const uint16_t back = f32ToBF16(value);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(bf16ToF32(back)));
    else
      ASSERT_EQ(back, bits);
  }
}

TEST(DType, bf16RoundsToNearestEven) {
  EXPECT_EQ(f32ToBF16(std::bit_cast<float>(0x3f808000u)), 0x3f80); // tie, down
  EXPECT_EQ(f32ToBF16(std::bit_cast<float>(0x3f818000u)), 0x3f82); // tie, up
  EXPECT_EQ(f32ToBF16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32ToBF16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(
      std::isnan(bf16ToF32(f32ToBF16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DType, f16RoundTripsAllValuesAndMatchesTheCompiler) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = f16ToF32(static_cast<uint16_t>(bits));
    const auto reference = static_cast<float>(
        std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    if (std::isnan(reference)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(f16ToF32(f32ToF16(value))));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(value),
              std::bit_cast<uint32_t>(reference));
    ASSERT_EQ(f32ToF16(value), bits);
  }
}

TEST(DType, f16RoundsLikeTheCompiler) {
  for (uint64_t step = 0; step < (uint64_t{1} << 32); step += 65521) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(step));
    if (std::isnan(value))
      continue;
    ASSERT_EQ(f32ToF16(value),
              std::bit_cast<uint16_t>(static_cast<_Float16>(value)))
        << value;
  }
}

// Case A16.
TEST(DType, f8TablesHaveTheirEdges) {
  EXPECT_EQ(decodeOne(DType::F8E4M3, "\x7e"), 448.0f);
  EXPECT_TRUE(std::isnan(decodeOne(DType::F8E4M3, "\x7f")));
  EXPECT_TRUE(std::isnan(decodeOne(DType::F8E4M3, "\xff")));
  EXPECT_EQ(decodeOne(DType::F8E4M3, "\x01"), 0x1p-9f);
  EXPECT_EQ(decodeOne(DType::F8E4M3, "\x38"), 1.0f);
  EXPECT_EQ(decodeOne(DType::F8E5M2, "\x7b"), 57344.0f);
  EXPECT_EQ(decodeOne(DType::F8E5M2, "\x7c"), INFINITY);
  EXPECT_EQ(decodeOne(DType::F8E5M2, "\xfc"), -INFINITY);
  EXPECT_TRUE(std::isnan(decodeOne(DType::F8E5M2, "\x7d")));
  EXPECT_EQ(decodeOne(DType::F8E5M2, "\xbc"), -1.0f);
  EXPECT_TRUE(std::isnan(decodeOne(DType::F8E4M3FNUZ, "\x80")));
  EXPECT_EQ(decodeOne(DType::F8E4M3FNUZ, "\x7f"), 240.0f);
  EXPECT_EQ(decodeOne(DType::F8E4M3FNUZ, "\x40"), 1.0f);
  EXPECT_TRUE(std::isnan(decodeOne(DType::F8E5M2FNUZ, "\x80")));
  EXPECT_EQ(decodeOne(DType::F8E5M2FNUZ, "\x7f"), 57344.0f);
}

// Case A15: bytes are little-endian whatever their alignment.
TEST(DType, decodesUnalignedLittleEndianBytes) {
  EXPECT_EQ(decodeOne(DType::BF16, std::string("\x80\x3f", 2)), 1.0f);
  const std::string shifted = "x" + raw(1.5f) + raw(-2.5f);
  float values[2];
  decodeToF32(DType::F32, bytesOf(shifted).data() + 1, 2, values);
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2.5f);
  EXPECT_EQ(decodeOne(DType::F64, raw(0.25)), 0.25f);
}

TEST(DType, decodesIntegers) {
  EXPECT_EQ(decodeOne(DType::Bool, "\x01"), 1.0f);
  EXPECT_EQ(decodeOne(DType::U8, "\xff"), 255.0f);
  EXPECT_EQ(decodeOne(DType::I8, "\xff"), -1.0f);
  EXPECT_EQ(decodeOne(DType::I16, raw<int16_t>(-300)), -300.0f);
  EXPECT_EQ(decodeOne(DType::U16, raw<uint16_t>(65535)), 65535.0f);
  EXPECT_EQ(decodeOne(DType::I32, raw<int32_t>(-70000)), -70000.0f);
  EXPECT_EQ(decodeOne(DType::U32, raw<uint32_t>(70000)), 70000.0f);
  EXPECT_EQ(decodeOne(DType::I64, raw<int64_t>(-5)), -5.0f);
  EXPECT_EQ(decodeOne(DType::U64, raw<uint64_t>(5)), 5.0f);
}

TEST(DType, refusesByName) {
  for (const DType dtype :
       {DType::F4, DType::F6E2M3, DType::F6E3M2, DType::F8E8M0, DType::C64})
    EXPECT_ERROR(decodeOne(dtype, std::string(8, '\0')),
                 std::string(dtypeName(dtype)), "store the tensor as F32");
  const float value = 1;
  std::byte out[8];
  EXPECT_ERROR(encodeFromF32(DType::I8, &value, 1, out), "I8", "F16 or BF16");
}

TEST(DType, encodes) {
  const float values[] = {1.0f, -0.5f};
  std::byte out[4];
  encodeFromF32(DType::BF16, values, 2, out);
  EXPECT_EQ(std::memcmp(out, "\x80\x3f\x00\xbf", 4), 0);
  encodeFromF32(DType::F16, values, 2, out);
  EXPECT_EQ(std::memcmp(out, "\x00\x3c\x00\xb8", 4), 0);
}

TEST(DType, encodesManyAsOne) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0xffff0000; bits += 0x3ffd)
    values.push_back(std::bit_cast<float>(bits));
  std::vector<uint16_t> out(values.size());
  const auto bytes = reinterpret_cast<std::byte *>(out.data());
  encodeFromF32(DType::BF16, values.data(), values.size(), bytes);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(out[i], f32ToBF16(values[i])) << i;
  encodeFromF32(DType::F16, values.data(), values.size(), bytes);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(out[i], f32ToF16(values[i])) << i;
}

} // namespace
