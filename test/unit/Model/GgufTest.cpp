//===- GgufTest.cpp - Reading GGUF files ----------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Gguf.h"

#include "TestFiles.h"

using namespace stem;
using namespace stem::test;

namespace {

GgufFile parse(const std::string &file) {
  return GgufFile::parse(bytesOf(file), "x.gguf");
}

std::vector<float> decode(DType dtype, const std::string &block) {
  EXPECT_EQ(block.size(), dtypeBlockBytes(dtype));
  std::vector<float> values(dtypeBlockElements(dtype));
  decodeToF32(dtype, bytesOf(block).data(), values.size(), values.data());
  return values;
}

const std::string one = raw<uint16_t>(0x3c00);      // f16 1
const std::string two = raw<uint16_t>(0x4000);      // f16 2
const std::string half = raw<uint16_t>(0x3800);     // f16 0.5
const std::string minusOne = raw<uint16_t>(0xbc00); // f16 -1
const std::string quarter = raw<uint16_t>(0x3400);  // f16 0.25

/// Byte j holds j in its lower half and 15 - j in its upper half.
std::string nibbles() {
  std::string result;
  for (int j = 0; j < 16; ++j)
    result += static_cast<char>(j | ((15 - j) << 4));
  return result;
}

TEST(GgufBlocks, decodesQ4) {
  const auto q40 = decode(DType::Q4_0, two + nibbles());
  const auto q41 = decode(DType::Q4_1, half + minusOne + nibbles());
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(q40[j], 2.0f * (j - 8));
    EXPECT_EQ(q40[16 + j], 2.0f * (15 - j - 8));
    EXPECT_EQ(q41[j], 0.5f * j - 1);
    EXPECT_EQ(q41[16 + j], 0.5f * (15 - j) - 1);
  }
}

TEST(GgufBlocks, decodesQ5) {
  const auto q50 =
      decode(DType::Q5_0, one + raw<uint32_t>(0x0000ffff) + nibbles());
  const auto q51 = decode(
      DType::Q5_1, two + minusOne + raw<uint32_t>(0x80010000) + nibbles());
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(q50[j], j);
    EXPECT_EQ(q50[16 + j], 15 - j - 16);
    EXPECT_EQ(q51[j], 2.0f * j - 1);
    const int fifth = j == 0 || j == 15 ? 16 : 0;
    EXPECT_EQ(q51[16 + j], 2.0f * (15 - j + fifth) - 1);
  }
}

TEST(GgufBlocks, decodesQ8) {
  std::string quants;
  for (int j = 0; j < 32; ++j)
    quants += static_cast<char>(j * 8 - 128);
  const auto values = decode(DType::Q8_0, quarter + quants);
  for (int j = 0; j < 32; ++j)
    EXPECT_EQ(values[j], 0.25f * (j * 8 - 128));
}

constexpr int scales[8] = {1, 2, 3, 63, 17, 33, 50, 5};
constexpr int minima[8] = {4, 0, 63, 7, 20, 40, 1, 62};

/// The 12 bytes of eight 6-bit scales and minima.
std::string packScales() {
  std::string packed(12, '\0');
  for (int j = 0; j < 4; ++j) {
    packed[j] = static_cast<char>(scales[j] | (scales[j + 4] >> 4) << 6);
    packed[4 + j] = static_cast<char>(minima[j] | (minima[j + 4] >> 4) << 6);
    packed[8 + j] =
        static_cast<char>((scales[j + 4] & 15) | (minima[j + 4] & 15) << 4);
  }
  return packed;
}

TEST(GgufBlocks, decodesQ4_K) {
  const auto quant = [](int s, int l) { return (l + 3 * s) % 16; };
  std::string lower(128, '\0');
  for (int s = 0; s < 8; ++s)
    for (int l = 0; l < 32; ++l)
      lower[(s / 2) * 32 + l] |=
          static_cast<char>(quant(s, l) << (s % 2 ? 4 : 0));
  const auto values = decode(DType::Q4_K, half + two + packScales() + lower);
  for (int s = 0; s < 8; ++s)
    for (int l = 0; l < 32; ++l)
      ASSERT_EQ(values[s * 32 + l],
                0.5f * scales[s] * quant(s, l) - 2.0f * minima[s]);
}

TEST(GgufBlocks, decodesQ5_K) {
  const auto quant = [](int s, int l) { return (3 * l + 5 * s) % 32; };
  std::string lower(128, '\0'), fifth(32, '\0');
  for (int s = 0; s < 8; ++s)
    for (int l = 0; l < 32; ++l) {
      lower[(s / 2) * 32 + l] |=
          static_cast<char>((quant(s, l) & 15) << (s % 2 ? 4 : 0));
      fifth[l] |= static_cast<char>((quant(s, l) >> 4) << s);
    }
  const auto values =
      decode(DType::Q5_K, half + two + packScales() + fifth + lower);
  for (int s = 0; s < 8; ++s)
    for (int l = 0; l < 32; ++l)
      ASSERT_EQ(values[s * 32 + l],
                0.5f * scales[s] * quant(s, l) - 2.0f * minima[s]);
}

TEST(GgufBlocks, decodesQ6_K) {
  const auto quant = [](int i) { return (i * 7) % 64; };
  const auto scale = [](int sub) { return sub * 17 - 128; };
  std::string lower(128, '\0'), upper(64, '\0'), subScales;
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, group = i % 128 / 32, l = i % 32;
    lower[half * 64 + (group % 2) * 32 + l] |=
        static_cast<char>((quant(i) & 15) << (group / 2 * 4));
    upper[half * 32 + l] |= static_cast<char>((quant(i) >> 4) << (2 * group));
  }
  for (int sub = 0; sub < 16; ++sub)
    subScales += static_cast<char>(scale(sub));
  const auto values = decode(DType::Q6_K, lower + upper + subScales + quarter);
  for (int i = 0; i < 256; ++i)
    ASSERT_EQ(values[i], 0.25f * scale(i / 16) * (quant(i) - 32));
}

TEST(Gguf, readsEveryValueType) {
  GgufBuilder builder;
  builder.value("u8", 0, raw<uint8_t>(200));
  builder.value("i8", 1, raw<int8_t>(-3));
  builder.value("u16", 2, raw<uint16_t>(60000));
  builder.value("i16", 3, raw<int16_t>(-300));
  builder.u32("u32", 4000000000u);
  builder.value("i32", 5, raw<int32_t>(-70000));
  builder.f32("f32", 1.5f);
  builder.value("bool", 7, raw<uint8_t>(1));
  builder.string("string", "héllo");
  builder.strings("strings", {"a", "", "ccc"});
  builder.value("u64", 10, raw<uint64_t>(UINT64_MAX));
  builder.value("i64", 11, raw<int64_t>(INT64_MIN));
  builder.value("f64", 12, raw(2.25));
  builder.value("ints", 9,
                raw<uint32_t>(5) + raw<uint64_t>(2) + raw<int32_t>(-1) +
                    raw<int32_t>(7));
  builder.value("floats", 9, raw<uint32_t>(6) + raw<uint64_t>(1) + raw(0.5f));
  builder.value("nested", 9,
                raw<uint32_t>(9) + raw<uint64_t>(1) + raw<uint32_t>(0) +
                    raw<uint64_t>(2) + "ab");
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes = builder.build(version);
    const GgufFile file = parse(bytes);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.metadata().size(), 16u);
    EXPECT_EQ(file.getUnsigned("u8"), 200u);
    EXPECT_EQ(file.getSigned("i8"), -3);
    EXPECT_EQ(file.getUnsigned("u16"), 60000u);
    EXPECT_EQ(file.getSigned("i16"), -300);
    EXPECT_EQ(file.getUnsigned("u32"), 4000000000u);
    EXPECT_EQ(file.getSigned("i32"), -70000);
    EXPECT_EQ(file.getDouble("f32"), 1.5);
    EXPECT_EQ(file.getDouble("i8"), -3.0);
    EXPECT_EQ(file.getBool("bool"), true);
    EXPECT_EQ(file.getString("string"), "héllo");
    EXPECT_EQ(file.getStrings("strings"),
              (std::vector<std::string>{"a", "", "ccc"}));
    EXPECT_EQ(file.getUnsigned("u64"), UINT64_MAX);
    EXPECT_EQ(file.getSigned("i64"), INT64_MIN);
    EXPECT_EQ(file.getDouble("f64"), 2.25);
    EXPECT_EQ(file.getIntegers("ints"), (std::vector<int64_t>{-1, 7}));
    EXPECT_EQ(file.getDoubles("floats"), (std::vector<double>{0.5}));
    EXPECT_EQ(file.metadata("nested")->elementType, GgufType::Array);
  }
}

TEST(Gguf, typedAccessNamesKeyAndTypes) {
  GgufBuilder builder;
  builder.string("s", "x");
  builder.value("i", 5, raw<int32_t>(-1));
  builder.strings("a", {"x"});
  builder.value("big", 10, raw<uint64_t>(UINT64_MAX));
  const std::string bytes = builder.build();
  const GgufFile file = parse(bytes);
  EXPECT_FALSE(file.getString("none"));
  EXPECT_FALSE(file.getStrings("none"));
  EXPECT_FALSE(file.getUnsigned("none"));
  EXPECT_ERROR(file.getUnsigned("s"), "x.gguf", "\"s\"", "type string",
               "an integer");
  EXPECT_ERROR(file.getUnsigned("i"), "\"i\"", "-1");
  EXPECT_ERROR(file.getSigned("big"), "\"big\"", "u64");
  EXPECT_ERROR(file.getString("i"), "i32", "a string");
  EXPECT_ERROR(file.getBool("i"), "i32", "a bool");
  EXPECT_ERROR(file.getDouble("s"), "a number");
  EXPECT_ERROR(file.getIntegers("a"), "an array of string",
               "an array of integers");
  EXPECT_ERROR(file.getIntegers("i"), "type i32", "an array of integers");
  EXPECT_ERROR(file.getDoubles("a"), "an array of numbers");
  EXPECT_ERROR(file.getStrings("i"), "an array of strings");
}

TEST(Gguf, locatesTensors) {
  GgufBuilder builder;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  builder.tensor("a", {3, 2}, 0, bytesOf(a));
  builder.tensor("b", {32}, 2, bytesOf(two + nibbles()));
  const std::string bytes = builder.build();
  const GgufFile file = parse(bytes);
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor *tensor = file.findTensor("a");
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(tensor->data.data(), a.data(), 24), 0);
  EXPECT_EQ(file.findTensor("b")->dtype, DType::Q4_0);
  EXPECT_EQ(file.findTensor("b")->data.size(), 18u);
}

TEST(Gguf, refusesOtherFilesAndVersions) {
  EXPECT_ERROR(parse(""), "x.gguf", "not a GGUF file");
  EXPECT_ERROR(parse("PK\x03\x04"), "zip archive");
  EXPECT_ERROR(parse("GGUF"), "truncated", "the version");
  EXPECT_ERROR(parse(GgufBuilder().build(1)), "version 1");
  EXPECT_ERROR(parse(GgufBuilder().build(0x03000000)), "big-endian");
}

// Every prefix of a valid file is refused or is itself complete; none is read
// beyond its end (an address-sanitised run would say so).
TEST(Gguf, refusesEveryTruncation) {
  GgufBuilder builder;
  builder.string("general.architecture", "llama");
  builder.strings("tokens", {"a", "b"});
  builder.tensor("a", {2}, 0, bytesOf(std::vector<float>{1, 2}));
  const std::string bytes = builder.build();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<char> prefix(bytes.begin(), bytes.begin() + length);
    EXPECT_NE(errorOf([&] { GgufFile::parse(bytesOf(prefix), "x.gguf"); }),
              "(no error)")
        << length;
  }
}

TEST(Gguf, refusesCountsThatDoNotFit) {
  const std::string start = "GGUF" + raw<uint32_t>(3);
  EXPECT_ERROR(parse(start + raw<uint64_t>(0) + raw(UINT64_MAX)),
               "metadata entries", "do not fit");
  EXPECT_ERROR(parse(start + raw(UINT64_MAX) + raw<uint64_t>(0)), "tensors",
               "do not fit");
  GgufBuilder array;
  array.value("a", 9, raw<uint32_t>(10) + raw(UINT64_MAX));
  EXPECT_ERROR(parse(array.build()), "array elements", "do not fit");
  GgufBuilder text;
  text.value("a", 8, raw(UINT64_MAX));
  EXPECT_ERROR(parse(text.build()), "truncated or malformed");
  GgufBuilder type;
  type.value("k", 13, "");
  EXPECT_ERROR(parse(type.build()), "\"k\"", "unknown value type 13");
  GgufBuilder deep;
  std::string nest;
  for (int i = 0; i < 6; ++i)
    nest += raw<uint32_t>(9) + raw<uint64_t>(1);
  deep.value("d", 9, nest + raw<uint32_t>(0) + raw<uint64_t>(0));
  EXPECT_ERROR(parse(deep.build()), "\"d\"", "too deeply");
}

TEST(Gguf, refusesBadTensors) {
  const auto with = [](const std::vector<uint64_t> &dimensions, uint32_t type,
                       uint64_t offset) {
    GgufBuilder builder;
    builder.tensor("good", {8}, 0, bytesOf(std::vector<float>(8)));
    builder.header("bad", dimensions, type, offset);
    return builder.build();
  };
  EXPECT_ERROR(parse(with({8}, 0, 32)), "\"bad\"", "do not fit");
  EXPECT_ERROR(parse(with({8}, 0, UINT64_MAX - 31)), "\"bad\"", "do not fit");
  EXPECT_ERROR(parse(with({4}, 0, 4)), "\"bad\"", "alignment 32");
  EXPECT_ERROR(parse(with({4}, 0, 0)), "\"good\"", "\"bad\"", "overlap");
  EXPECT_ERROR(parse(with({UINT64_MAX, 4}, 0, 0)), "\"bad\"", "overflows");
  EXPECT_ERROR(parse(with({16, 2}, 2, 0)), "\"bad\"", "blocks of 32", "Q4_0");
  EXPECT_ERROR(parse(with({4}, 10, 0)), "\"bad\"", "Q2_K", "not supported");
  EXPECT_ERROR(parse(with({4}, 20, 0)), "IQ4_NL");
  EXPECT_ERROR(parse(with({4}, 99, 0)), "number 99");
  EXPECT_ERROR(parse(with({1, 1, 1, 1, 1}, 0, 0)), "\"bad\"", "5 dimensions");
}

TEST(Gguf, refusesDuplicatesAndBadAlignment) {
  GgufBuilder keys;
  keys.u32("k", 1);
  keys.u32("k", 1);
  EXPECT_ERROR(parse(keys.build()), "\"k\"", "twice");
  GgufBuilder tensors;
  tensors.tensor("t", {1}, 0, bytesOf(raw(1.0f)));
  tensors.tensor("t", {1}, 0, bytesOf(raw(1.0f)));
  EXPECT_ERROR(parse(tensors.build()), "\"t\"", "twice");
  for (const uint32_t alignment : {0u, 12u, 1u << 30}) {
    GgufBuilder builder;
    builder.u32("general.alignment", alignment);
    EXPECT_ERROR(parse(builder.build()), "general.alignment",
                 std::to_string(alignment));
  }
}

} // namespace
