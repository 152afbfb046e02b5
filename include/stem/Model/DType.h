//===- DType.h - Element types of stored tensors ----------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_DTYPE_H
#define STEM_MODEL_DTYPE_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stem {

/// Every type of the safetensors format, then the block types of GGUF.
enum class DType : uint8_t {
  Bool,
  F4,
  F6E2M3,
  F6E3M2,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  F8E8M0,
  F8E4M3FNUZ,
  F8E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q4_K,
  Q5_K,
  Q6_K,
};

/// The name in a safetensors header ("BF16"), or the GGUF name ("Q4_K").
std::string_view dtypeName(DType dtype);

/// The name that config.json uses ("bfloat16"); for the block types the same as
/// dtypeName.
std::string_view dtypeConfigName(DType dtype);

/// From a safetensors name; nothing for an unknown one and for block types.
std::optional<DType> dtypeFromName(std::string_view name);

/// From a name of config.json, "torch." before it or not.
std::optional<DType> dtypeFromConfigName(std::string_view name);

/// Elements are stored in blocks: 1 element for most types, 2 for F4 (1 byte),
/// 4 for F6 (3 bytes), 32 or 256 for GGUF's block types.
uint64_t dtypeBlockElements(DType dtype);
uint64_t dtypeBlockBytes(DType dtype);

/// True for GGUF's block types.
bool isQuantized(DType dtype);

/// F64, F32, F16, BF16 and GGUF's block types: what a weight can be.
bool isWeightType(DType dtype);

/// Bytes that `elements` elements take; nothing when they do not fill whole
/// blocks or the product overflows.
std::optional<uint64_t> dtypeBytes(DType dtype, uint64_t elements);

/// The product of a shape; nothing when it overflows.
std::optional<uint64_t> elementCount(std::span<const uint64_t> shape);

/// \name Single values
/// To bf16 and f16: nearest, ties to even; NaN stays a NaN.
/// @{
float bf16ToF32(uint16_t bits);
uint16_t f32ToBF16(float value);
float f16ToF32(uint16_t bits);
uint16_t f32ToF16(float value);
/// @}

/// Decodes `count` elements of `source` to f32. Throws an Error that names the
/// type for F4, F6, F8E8M0 and C64. The file's bytes are little-endian;
/// `source` need not be aligned. `count` must fill whole blocks.
void decodeToF32(DType dtype, const std::byte *source, uint64_t count,
                 float *out);

/// Encodes to F32, F16 or BF16; throws for other types.
void encodeFromF32(DType dtype, const float *source, uint64_t count,
                   std::byte *out);

} // namespace stem

#endif // STEM_MODEL_DTYPE_H
