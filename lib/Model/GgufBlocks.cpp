//===- GgufBlocks.cpp - Decoding GGUF's block types -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks of 32 elements: a scale d (f16), for the _1 types a minimum m (f16),
// for the 5-bit types a word with the fifth bits, then the lower bits: byte j
// holds element j in its lower half and element j + 16 in its upper half.
//
// Blocks of 256 (the _K types): sub-blocks of 32 (Q6_K: 16) with an integer
// scale and minimum each, which d and dmin (f16) of the whole block multiply.
//
//===----------------------------------------------------------------------===//

#include "GgufBlocks.h"

#include <cstring>

using namespace stem;

namespace {

uint8_t byteAt(const std::byte *source, size_t offset) {
  return static_cast<uint8_t>(source[offset]);
}

float halfAt(const std::byte *source, size_t offset) {
  uint16_t bits;
  std::memcpy(&bits, source + offset, sizeof(bits));
  return f16ToF32(bits);
}

/// Q4_0 and Q5_0 store q + 2^(bits - 1); Q4_1 and Q5_1 store q with a minimum.
void decode4or5(const std::byte *block, bool hasMinimum, bool hasFifthBit,
                float *out) {
  const float scale = halfAt(block, 0);
  const float minimum = hasMinimum ? halfAt(block, 2) : 0.0f;
  const std::byte *cursor = block + (hasMinimum ? 4 : 2);
  uint32_t fifthBits = 0;
  if (hasFifthBit) {
    std::memcpy(&fifthBits, cursor, sizeof(fifthBits));
    cursor += sizeof(fifthBits);
  }
  const int offset = hasMinimum ? 0 : hasFifthBit ? 16 : 8;
  for (int j = 0; j < 32; ++j) {
    const uint8_t pair = byteAt(cursor, j % 16);
    int quant = j < 16 ? pair & 15 : pair >> 4;
    quant |= static_cast<int>((fifthBits >> j) & 1) << 4;
    const float value = static_cast<float>(quant - offset) * scale;
    out[j] = hasMinimum ? value + minimum : value;
  }
}

void decodeQ8_0(const std::byte *block, float *out) {
  const float scale = halfAt(block, 0);
  for (int j = 0; j < 32; ++j)
    out[j] =
        static_cast<float>(static_cast<int8_t>(byteAt(block, 2 + j))) * scale;
}

/// Eight 6-bit scales and eight 6-bit minima in 12 bytes: the first four of
/// each in the lower six bits of bytes 0-3 and 4-7; of the last four, the lower
/// four bits in the halves of bytes 8-11 and the upper two on top of bytes 0-7.
void unpackScales(const std::byte *packed, int subBlock, int &scale,
                  int &minimum) {
  const int j = subBlock;
  if (j < 4) {
    scale = byteAt(packed, j) & 63;
    minimum = byteAt(packed, j + 4) & 63;
    return;
  }
  scale = (byteAt(packed, j + 4) & 15) | (byteAt(packed, j - 4) >> 6 << 4);
  minimum = (byteAt(packed, j + 4) >> 4) | (byteAt(packed, j) >> 6 << 4);
}

/// Layout: d, dmin, 12 bytes of scales, for Q5_K 32 bytes of fifth bits (bit s
/// of byte l belongs to element l of sub-block s), 128 bytes of lower bits (two
/// sub-blocks share 32 bytes: lower halves, upper halves).
void decodeQ4or5_K(const std::byte *block, bool hasFifthBit, float *out) {
  const float d = halfAt(block, 0);
  const float dmin = halfAt(block, 2);
  const std::byte *scales = block + 4;
  const std::byte *fifthBits = block + 16;
  const std::byte *lower = block + (hasFifthBit ? 48 : 16);
  for (int s = 0; s < 8; ++s) {
    int scale, minimum;
    unpackScales(scales, s, scale, minimum);
    const float step = d * static_cast<float>(scale);
    const float base = dmin * static_cast<float>(minimum);
    for (int l = 0; l < 32; ++l) {
      const uint8_t pair = byteAt(lower, (s / 2) * 32 + l);
      int quant = s % 2 ? pair >> 4 : pair & 15;
      if (hasFifthBit)
        quant |= ((byteAt(fifthBits, l) >> s) & 1) << 4;
      out[s * 32 + l] = step * static_cast<float>(quant) - base;
    }
  }
}

/// Layout: 128 bytes of lower four bits, 64 bytes of upper two bits, 16 signed
/// scales, d. Each half of 128 elements takes 64 + 32 bytes; in it, group g of
/// 32 elements has its lower bits in bytes (g % 2) × 32 + l, halves by g / 2,
/// and its upper bits at position 2g of byte l.
void decodeQ6_K(const std::byte *block, float *out) {
  const float d = halfAt(block, 208);
  for (int half = 0; half < 2; ++half)
    for (int g = 0; g < 4; ++g)
      for (int l = 0; l < 32; ++l) {
        const uint8_t pair = byteAt(block, half * 64 + (g % 2) * 32 + l);
        const uint8_t upper = byteAt(block, 128 + half * 32 + l);
        const int quant =
            ((g < 2 ? pair & 15 : pair >> 4) | ((upper >> (2 * g)) & 3) << 4) -
            32;
        const int element = half * 128 + g * 32 + l;
        const auto scale =
            static_cast<int8_t>(byteAt(block, 192 + element / 16));
        out[element] =
            d * static_cast<float>(scale) * static_cast<float>(quant);
      }
}

void decodeBlock(DType dtype, const std::byte *block, float *out) {
  switch (dtype) {
  case DType::Q4_0:
    return decode4or5(block, /*hasMinimum=*/false, /*hasFifthBit=*/false, out);
  case DType::Q4_1:
    return decode4or5(block, /*hasMinimum=*/true, /*hasFifthBit=*/false, out);
  case DType::Q5_0:
    return decode4or5(block, /*hasMinimum=*/false, /*hasFifthBit=*/true, out);
  case DType::Q5_1:
    return decode4or5(block, /*hasMinimum=*/true, /*hasFifthBit=*/true, out);
  case DType::Q4_K:
    return decodeQ4or5_K(block, /*hasFifthBit=*/false, out);
  case DType::Q5_K:
    return decodeQ4or5_K(block, /*hasFifthBit=*/true, out);
  case DType::Q6_K:
    return decodeQ6_K(block, out);
  default:
    return decodeQ8_0(block, out);
  }
}

} // namespace

void stem::decodeBlocks(DType dtype, const std::byte *source, uint64_t count,
                        float *out) {
  const uint64_t elements = dtypeBlockElements(dtype);
  for (uint64_t block = 0; block < count / elements; ++block)
    decodeBlock(dtype, source + block * dtypeBlockBytes(dtype),
                out + block * elements);
}
