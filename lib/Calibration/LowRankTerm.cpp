//===- LowRankTerm.cpp - A low-rank map of the hidden state ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/LowRankTerm.h"

#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

/// Rows of one task.
static constexpr int64_t kTile = 64;

static Arena pack(std::span<const float> weight, int64_t k, int64_t n) {
  if (static_cast<int64_t>(weight.size()) != k * n)
    fail("a factor of a low-rank term has {} elements, not {} x {}",
         weight.size(), n, k);
  Arena memory(packedBytes(STEM_F32, k, n), "a low-rank term");
  packWeight({memory.data(), STEM_F32, k, n}, 0, n,
             {weight.data(), STEM_F32, k});
  return memory;
}

LowRankTerm::LowRankTerm(stem_context *context, int64_t ffn, int64_t hidden,
                         int64_t rank, std::vector<float> a,
                         std::vector<float> b)
    : context(context), ffn(ffn), hidden(hidden), rank(rank),
      aValues(std::move(a)), bValues(std::move(b)),
      packedA(pack(aValues, rank, ffn)), packedB(pack(bValues, hidden, rank)) {}

int64_t LowRankTerm::bytes(int64_t ffn, int64_t hidden, int64_t rank) {
  return rank * (ffn + hidden) * int64_t(sizeof(float)) +
         packedBytes(STEM_F32, rank, ffn) + packedBytes(STEM_F32, hidden, rank);
}

void LowRankTerm::apply(const float *h, int64_t count, float *out) const {
  parallelFor(context, (count + kTile - 1) / kTile, [&](int64_t task) {
    int64_t first = task * kTile, m = std::min(kTile, count - first);
    std::vector<float> inner(static_cast<size_t>(m * rank));
    stem_packed_matmul(context, h + first * hidden, hidden, packedB.data(),
                       STEM_F32, hidden, rank, 0, 0, inner.data(), rank, m,
                       hidden, rank, /*accumulate=*/0);
    stem_packed_matmul(context, inner.data(), rank, packedA.data(), STEM_F32,
                       rank, ffn, 0, 0, out + first * ffn, ffn, m, rank, ffn,
                       /*accumulate=*/0);
  });
}
