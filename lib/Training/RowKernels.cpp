//===- RowKernels.cpp - One row of a table --------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows are computed in blocks of 64 columns that are widened to f32, changed
// and stored.
//
//===----------------------------------------------------------------------===//

#include "RowKernels.h"
#include "stem/Support/BF16.h"

#include <algorithm>
#include <cstring>

using namespace stem;

namespace {

constexpr int64_t blockColumns = roundingColumns;

using Floats = float __attribute__((vector_size(32)));
using Halves = uint16_t __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(32)));
using WideWords = uint64_t __attribute__((vector_size(32)));

struct Products {
  Words high, low;
};

STEM_INLINE Products multiply(Words words, uint32_t factor) {
  constexpr uint64_t lowHalf = 0xffffffff;
  WideWords even = ((WideWords)words & lowHalf) * uint64_t(factor);
  WideWords odd = ((WideWords)words >> 32) * uint64_t(factor);
  return {(Words)((even >> 32) | (odd & ~lowHalf)),
          (Words)((even & lowHalf) | (odd << 32))};
}

/// philox() of eight counters whose first words follow on one another.
STEM_INLINE void philoxOfEight(const RowRounding &rounding, uint32_t first,
                               Words (&words)[4]) {
  words[0] = Words{0, 1, 2, 3, 4, 5, 6, 7} + first;
  words[1] = Words{} + rounding.row;
  words[2] = Words{} + rounding.step;
  words[3] = Words{} + rounding.stream;
  uint32_t key[] = {uint32_t(rounding.seed), uint32_t(rounding.seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    Products a = multiply(words[0], 0xd2511f53);
    Products b = multiply(words[2], 0xcd9e8d57);
    words[0] = b.high ^ words[1] ^ key[0];
    words[1] = b.low;
    words[2] = a.high ^ words[3] ^ key[1];
    words[3] = a.low;
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
}

STEM_INLINE void load(const float *from, int64_t count, float *to) {
  std::memcpy(to, from, count * sizeof(float));
}

STEM_INLINE void load(const uint16_t *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = widenBF16(from[i]);
}

STEM_INLINE void store(const float *from, int64_t count, float *to,
                       const RowRounding &, int64_t) {
  std::memcpy(to, from, count * sizeof(float));
}

STEM_INLINE void store(const float *from, int64_t count, uint16_t *to,
                       const RowRounding &rounding, int64_t block) {
  uint16_t bits[blockColumns];
  drawRoundingBits(rounding, block, bits);
  for (int64_t i = 0; i < count; ++i)
    to[i] = roundToBF16AtRandom(from[i], bits[i]);
}

/// sum_j a_j / (c_j root + epsilon) for 32 columns, in registers.
STEM_INLINE void skippedMoves(const CatchUp &catchUp, const float *root,
                              float *sum) {
  Floats roots[4], sums[4] = {};
  std::memcpy(roots, root, sizeof(roots));
  for (const CatchUp::Pair &pair : catchUp.pairs)
    for (int i = 0; i < 4; ++i) {
      Floats x = pair.c[0] * roots[i] + catchUp.epsilon;
      Floats y = pair.c[1] * roots[i] + catchUp.epsilon;
      sums[i] += (pair.a[0] * y + pair.a[1] * x) / (x * y);
    }
  std::memcpy(sum, sums, sizeof(sums));
}

/// The part of `weights` that the skipped steps take off.
STEM_INLINE void catchUpBlock(const CatchUp &catchUp, int64_t count,
                              const float *m, const float *v, float *weights) {
  float root[blockColumns] = {}, moves[blockColumns] = {};
  if (m && !catchUp.pairs.empty()) {
    for (int64_t i = 0; i < count; ++i)
      root[i] = std::sqrt(v[i]);
    for (int64_t i = 0; i < count; i += 32)
      skippedMoves(catchUp, root + i, moves + i);
    for (int64_t i = 0; i < count; ++i)
      moves[i] *= m[i];
  }
  for (int64_t i = 0; i < count; ++i)
    weights[i] -= catchUp.loss * weights[i] + moves[i];
}

/// Asks for the block of another row while this one is computed: each row
/// begins new streams, which the hardware finds too late.
template <typename T>
STEM_INLINE void prefetch(const RowView<T> &row, int64_t first) {
  auto ask = [first](const auto *part) {
    if (part)
      for (int64_t i = 0; i < blockColumns; i += 64 / int64_t(sizeof(*part)))
        __builtin_prefetch(part + first + i, 1);
  };
  ask(row.weights);
  ask(row.m);
  ask(row.v);
}

STEM_INLINE void scale(const float *from, float factor, int64_t count,
                       float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = from[i] * factor;
}

/// Eight sums in f64, then one: an order that no vector width changes.
STEM_INLINE float meanSquare(const AdamStep &step, int64_t columns,
                             const float *gradient) {
  constexpr int64_t lanes = 8;
  double sums[lanes] = {};
  int64_t whole = columns / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) {
      double g = gradient[i + lane] * step.gradientScale;
      sums[lane] += g * g;
    }
  for (int64_t i = whole; i < columns; ++i) {
    double g = gradient[i] * step.gradientScale;
    sums[i - whole] += g * g;
  }
  double total = 0;
  for (double sum : sums)
    total += sum;
  return float(total / double(columns));
}

/// Steps `m` and gives it; without one the scaled gradient, which has its part
/// then.
STEM_INLINE const float *firstMoments(const AdamStep &step, int64_t count,
                                      const float *__restrict gradient,
                                      float *__restrict m) {
  if (!m)
    return gradient;
  for (int64_t i = 0; i < count; ++i)
    m[i] = moved(m[i], gradient[i], step.firstRest);
  return m;
}

/// With a second moment for each column.
STEM_INLINE void stepColumns(const AdamStep &step, int64_t count,
                             const float *__restrict gradient,
                             const float *__restrict first, float *__restrict v,
                             float *__restrict weights) {
  for (int64_t i = 0; i < count; ++i) {
    v[i] = moved(v[i], gradient[i] * gradient[i], step.secondRest);
    float move = step.rate * first[i] / denominator(step, v[i]);
    weights[i] = stepped(step, weights[i], move);
  }
}

/// With one second moment: `rate` is lr / (1 - beta1^t) over its denominator.
STEM_INLINE void stepRow(const AdamStep &step, float rate, int64_t count,
                         const float *__restrict first,
                         float *__restrict weights) {
  for (int64_t i = 0; i < count; ++i)
    weights[i] = stepped(step, weights[i], rate * first[i]);
}

} // namespace

STEM_TARGET void stem::drawRoundingBits(const RowRounding &rounding,
                                        int64_t block,
                                        uint16_t (&bits)[roundingColumns]) {
  Words words[4];
  philoxOfEight(rounding, uint32_t(8 * block), words);
  for (int word = 0; word < 4; ++word) {
    Halves halves[2] = {__builtin_convertvector(words[word], Halves),
                        __builtin_convertvector(words[word] >> 16, Halves)};
    std::memcpy(bits + 16 * word, halves, sizeof(halves));
  }
}

template <typename T>
STEM_TARGET void stem::catchUpRow(const CatchUp &catchUp, int64_t columns,
                                  const RowView<T> &from, const RowView<T> &to,
                                  const RowView<T> &next,
                                  const RowRounding &rounding) {
  for (int64_t first = 0; first < columns; first += blockColumns) {
    int64_t count = std::min(blockColumns, columns - first);
    prefetch(next, first);
    const float *m = from.m ? from.m + first : nullptr;
    const float *v = from.v ? from.v + first : nullptr;
    float weights[blockColumns];
    load(from.weights + first, count, weights);
    catchUpBlock(catchUp, count, m, v, weights);
    store(weights, count, to.weights + first, rounding, first / blockColumns);
    if (m && to.m)
      scale(m, catchUp.firstKept, count, to.m + first);
    if (v && to.v)
      scale(v, catchUp.secondKept, count, to.v + first);
  }
}

template <typename T>
STEM_TARGET void stem::updateRow(const AdamStep &step, bool rowwise,
                                 int64_t columns, const float *gradient,
                                 const RowView<T> &row, const RowView<T> &next,
                                 const RowRounding &rounding) {
  float rate = 0;
  if (rowwise) {
    *row.v =
        moved(*row.v, meanSquare(step, columns, gradient), step.secondRest);
    rate = step.rate / denominator(step, *row.v);
  }
  for (int64_t first = 0; first < columns; first += blockColumns) {
    int64_t count = std::min(blockColumns, columns - first);
    prefetch(next, first);
    float *m = row.m ? row.m + first : nullptr;
    float weights[blockColumns], scaled[blockColumns];
    load(row.weights + first, count, weights);
    scale(gradient + first, step.gradientScale, count, scaled);
    const float *moments = firstMoments(step, count, scaled, m);
    if (rowwise)
      stepRow(step, rate, count, moments, weights);
    else
      stepColumns(step, count, scaled, moments, row.v + first, weights);
    store(weights, count, row.weights + first, rounding, first / blockColumns);
  }
}

template void stem::catchUpRow(const CatchUp &, int64_t, const RowView<float> &,
                               const RowView<float> &, const RowView<float> &,
                               const RowRounding &);
template void stem::catchUpRow(const CatchUp &, int64_t,
                               const RowView<uint16_t> &,
                               const RowView<uint16_t> &,
                               const RowView<uint16_t> &, const RowRounding &);
template void stem::updateRow(const AdamStep &, bool, int64_t, const float *,
                              const RowView<float> &, const RowView<float> &,
                              const RowRounding &);
template void stem::updateRow(const AdamStep &, bool, int64_t, const float *,
                              const RowView<uint16_t> &,
                              const RowView<uint16_t> &, const RowRounding &);
