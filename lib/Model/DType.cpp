//===- DType.cpp - Element types of stored tensors ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/DType.h"

#include "GgufBlocks.h"
#include "stem/Support/BF16.h"
#include "stem/Support/Error.h"
#include "stem/Support/F16.h"

#include <bit>
#include <cmath>
#include <cstring>

using namespace stem;

static_assert(std::endian::native == std::endian::little,
              "checkpoint files are little-endian and read as they are");

namespace {

struct DTypeTraits {
  std::string_view name;
  std::string_view configName;
  uint16_t blockElements;
  uint16_t blockBytes;
};

/// In the order of DType.
constexpr DTypeTraits allTraits[] = {
    {"BOOL", "bool", 1, 1},
    {"F4", "F4", 2, 1},
    {"F6_E2M3", "F6_E2M3", 4, 3},
    {"F6_E3M2", "F6_E3M2", 4, 3},
    {"U8", "uint8", 1, 1},
    {"I8", "int8", 1, 1},
    {"F8_E5M2", "float8_e5m2", 1, 1},
    {"F8_E4M3", "float8_e4m3fn", 1, 1},
    {"F8_E8M0", "float8_e8m0fnu", 1, 1},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 1, 1},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 1, 1},
    {"I16", "int16", 1, 2},
    {"U16", "uint16", 1, 2},
    {"F16", "float16", 1, 2},
    {"BF16", "bfloat16", 1, 2},
    {"I32", "int32", 1, 4},
    {"U32", "uint32", 1, 4},
    {"F32", "float32", 1, 4},
    {"C64", "complex64", 1, 8},
    {"F64", "float64", 1, 8},
    {"I64", "int64", 1, 8},
    {"U64", "uint64", 1, 8},
    {"Q4_0", "Q4_0", 32, 18},
    {"Q4_1", "Q4_1", 32, 20},
    {"Q5_0", "Q5_0", 32, 22},
    {"Q5_1", "Q5_1", 32, 24},
    {"Q8_0", "Q8_0", 32, 34},
    {"Q4_K", "Q4_K", 256, 144},
    {"Q5_K", "Q5_K", 256, 176},
    {"Q6_K", "Q6_K", 256, 210},
};
constexpr size_t typeCount = std::size(allTraits);
static_assert(typeCount == static_cast<size_t>(DType::Q6_K) + 1);

const DTypeTraits &traits(DType dtype) {
  return allTraits[static_cast<size_t>(dtype)];
}

template <typename T> T load(const std::byte *source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

template <typename T>
void decodeNumbers(const std::byte *source, uint64_t count, float *out) {
  for (uint64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(load<T>(source + i * sizeof(T)));
}

/// What tells the 8-bit floating point types apart.
struct F8Format {
  unsigned mantissaBits;
  int bias;
  bool hasInfinity; ///< else an all-ones exponent holds numbers
  bool isFnuz;      ///< 0x80 is the only NaN and there is no -0
};

float decodeF8(uint8_t bits, const F8Format &format) {
  const unsigned mantissaMask = (1u << format.mantissaBits) - 1;
  const unsigned exponentMask = 0x7f >> format.mantissaBits;
  const unsigned mantissa = bits & mantissaMask;
  const unsigned exponent = (bits & 0x7f) >> format.mantissaBits;
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (format.isFnuz && bits == 0x80)
    return NAN;
  if (format.hasInfinity && exponent == exponentMask)
    return mantissa ? NAN : sign * INFINITY;
  if (!format.isFnuz && !format.hasInfinity && (bits & 0x7f) == 0x7f)
    return NAN;
  const int scale = 1 - format.bias - static_cast<int>(format.mantissaBits);
  if (exponent == 0)
    return sign * std::ldexp(static_cast<float>(mantissa), scale);
  return sign * std::ldexp(static_cast<float>(mantissa | (mantissaMask + 1)),
                           scale + static_cast<int>(exponent) - 1);
}

void decodeF8s(const std::byte *source, uint64_t count, const F8Format &format,
               float *out) {
  for (uint64_t i = 0; i < count; ++i)
    out[i] = decodeF8(static_cast<uint8_t>(source[i]), format);
}

} // namespace

std::string_view stem::dtypeName(DType dtype) { return traits(dtype).name; }

std::string_view stem::dtypeConfigName(DType dtype) {
  return traits(dtype).configName;
}

std::optional<DType> stem::dtypeFromName(std::string_view name) {
  for (size_t i = 0; i < typeCount; ++i)
    if (allTraits[i].name == name && !isQuantized(static_cast<DType>(i)))
      return static_cast<DType>(i);
  return std::nullopt;
}

std::optional<DType> stem::dtypeFromConfigName(std::string_view name) {
  if (name.starts_with("torch."))
    name.remove_prefix(6);
  for (size_t i = 0; i < typeCount; ++i)
    if (allTraits[i].configName == name && !isQuantized(static_cast<DType>(i)))
      return static_cast<DType>(i);
  return std::nullopt;
}

uint64_t stem::dtypeBlockElements(DType dtype) {
  return traits(dtype).blockElements;
}

uint64_t stem::dtypeBlockBytes(DType dtype) { return traits(dtype).blockBytes; }

bool stem::isQuantized(DType dtype) { return dtype >= DType::Q4_0; }

bool stem::isWeightType(DType dtype) {
  return dtype == DType::F64 || dtype == DType::F32 || dtype == DType::F16 ||
         dtype == DType::BF16 || isQuantized(dtype);
}

std::optional<uint64_t> stem::dtypeBytes(DType dtype, uint64_t elements) {
  const DTypeTraits &type = traits(dtype);
  uint64_t bytes;
  if (elements % type.blockElements ||
      __builtin_mul_overflow(elements / type.blockElements,
                             uint64_t{type.blockBytes}, &bytes))
    return std::nullopt;
  return bytes;
}

std::optional<uint64_t> stem::elementCount(std::span<const uint64_t> shape) {
  uint64_t product = 1;
  for (uint64_t size : shape)
    if (__builtin_mul_overflow(product, size, &product))
      return std::nullopt;
  return product;
}

float stem::bf16ToF32(uint16_t bits) { return widenBF16(bits); }

uint16_t stem::f32ToBF16(float value) { return roundToBF16(value); }

float stem::f16ToF32(uint16_t bits) { return widenF16(bits); }

uint16_t stem::f32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000) // 65520 rounds to infinity
    return sign | 0x7c00;
  if (magnitude >= 0x38800000) { // 2^-14, the least normal number
    const uint32_t rebased = magnitude - (112u << 23);
    return static_cast<uint16_t>(
        sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
  }
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
  return static_cast<uint16_t>(sign |
                               static_cast<uint32_t>(std::nearbyint(scaled)));
}

void stem::decodeToF32(DType dtype, const std::byte *source, uint64_t count,
                       float *out) {
  switch (dtype) {
  case DType::F32:
    if (count)
      std::memcpy(out, source, count * sizeof(float));
    return;
  case DType::F64:
    return decodeNumbers<double>(source, count, out);
  case DType::BF16:
    for (uint64_t i = 0; i < count; ++i)
      out[i] = widenBF16(load<uint16_t>(source + 2 * i));
    return;
  case DType::F16:
    for (uint64_t i = 0; i < count; ++i)
      out[i] = f16ToF32(load<uint16_t>(source + 2 * i));
    return;
  case DType::F8E5M2:
    return decodeF8s(source, count, {2, 15, true, false}, out);
  case DType::F8E4M3:
    return decodeF8s(source, count, {3, 7, false, false}, out);
  case DType::F8E4M3FNUZ:
    return decodeF8s(source, count, {3, 8, false, true}, out);
  case DType::F8E5M2FNUZ:
    return decodeF8s(source, count, {2, 16, false, true}, out);
  case DType::Bool:
  case DType::U8:
    return decodeNumbers<uint8_t>(source, count, out);
  case DType::I8:
    return decodeNumbers<int8_t>(source, count, out);
  case DType::I16:
    return decodeNumbers<int16_t>(source, count, out);
  case DType::U16:
    return decodeNumbers<uint16_t>(source, count, out);
  case DType::I32:
    return decodeNumbers<int32_t>(source, count, out);
  case DType::U32:
    return decodeNumbers<uint32_t>(source, count, out);
  case DType::I64:
    return decodeNumbers<int64_t>(source, count, out);
  case DType::U64:
    return decodeNumbers<uint64_t>(source, count, out);
  case DType::F4:
  case DType::F6E2M3:
  case DType::F6E3M2:
  case DType::F8E8M0:
  case DType::C64:
    fail("elements of type {} cannot be read as numbers; store the tensor as "
         "F32, F16 or BF16",
         dtypeName(dtype));
  default:
    return decodeBlocks(dtype, source, count, out);
  }
}

template <typename Round>
static void encodeNumbers(const Round &round, const float *source,
                          uint64_t count, std::byte *out) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint16_t bits = round(source[i]);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

void stem::encodeFromF32(DType dtype, const float *source, uint64_t count,
                         std::byte *out) {
  switch (dtype) {
  case DType::F32:
    if (count)
      std::memcpy(out, source, count * sizeof(float));
    return;
  case DType::F16:
    return encodeNumbers([](float x) { return f32ToF16(x); }, source, count,
                         out);
  case DType::BF16:
    return encodeNumbers([](float x) { return roundToBF16(x); }, source, count,
                         out);
  default:
    fail("weights are written as F32, F16 or BF16, not as {}",
         dtypeName(dtype));
  }
}
