//===- KeptProducts.cpp - What enters W_down, kept ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptProducts.h"

#include "stem/Runtime/Parallel.h"
#include "stem/Support/BF16.h"

#include <algorithm>

using namespace stem;

KeptProducts::KeptProducts(stem_context *context, int64_t places, int64_t width,
                           stem_dtype type)
    : context(context), width(width), type(type),
      values(bytes(places, width, type), "the products of a layer") {}

int64_t KeptProducts::bytes(int64_t places, int64_t width, stem_dtype type) {
  return places * width *
         int64_t(type == STEM_BF16 ? sizeof(uint16_t) : sizeof(float));
}

void KeptProducts::keep(const TokenStream::Step &step, const float *z) {
  parallelFor(context, step.count, [&](int64_t row) {
    const float *from = z + row * width;
    const int64_t at = (step.begin + row) * width;
    if (type == STEM_BF16)
      std::transform(from, from + width,
                     static_cast<uint16_t *>(values.data()) + at, roundToBF16);
    else
      std::copy_n(from, width, static_cast<float *>(values.data()) + at);
  });
}

void KeptProducts::read(const TokenStream::Step &step, float *z) const {
  parallelFor(context, step.count, [&](int64_t row) {
    float *to = z + row * width;
    const int64_t at = (step.begin + row) * width;
    if (type == STEM_BF16)
      std::transform(static_cast<const uint16_t *>(values.data()) + at,
                     static_cast<const uint16_t *>(values.data()) + at + width,
                     to, widenBF16);
    else
      std::copy_n(static_cast<const float *>(values.data()) + at, width, to);
  });
}
