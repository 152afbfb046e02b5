//===- GgufBlocks.h - Decoding GGUF's block types ---------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_GGUFBLOCKS_H
#define STEM_LIB_MODEL_GGUFBLOCKS_H

#include "stem/Model/DType.h"

namespace stem {

/// Decodes `count` elements, whole blocks of a quantised type.
void decodeBlocks(DType dtype, const std::byte *source, uint64_t count,
                  float *out);

} // namespace stem

#endif // STEM_LIB_MODEL_GGUFBLOCKS_H
