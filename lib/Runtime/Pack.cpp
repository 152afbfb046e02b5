//===- Pack.cpp - Writing packed matrices ---------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Pack.h"
#include "stem/Support/BF16.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <bit>
#include <cstring>

using namespace stem;

namespace {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

float toF32(float value) { return value; }

float toF32(BF16 value) { return widenBF16(value.bits); }

// The exponent and mantissa move into place as an integer; the multiplication
// corrects the bias and makes denormals normal.
float toF32(F16 value) {
  uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  uint32_t rest = static_cast<uint32_t>(value.bits & 0x7fff) << 13;
  if ((value.bits & 0x7c00) == 0x7c00)
    return std::bit_cast<float>(sign | rest | 0x7f800000);
  float magnitude = std::bit_cast<float>(rest) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

template <typename To> To convert(float value);

template <> float convert<float>(float value) { return value; }

template <> BF16 convert<BF16>(float value) { return {roundToBF16(value)}; }

template <typename To, typename From> To convertElement(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value; // Keeps the payload of a NaN.
  else
    return convert<To>(toF32(value));
}

/// Where elements lie: element (k, n) of a panel of `storedRows` rows.
template <typename To> struct Layout {
  /// Rows that lie interleaved by column.
  static constexpr int64_t group = sizeof(To) == 2 ? 2 : 1;

  explicit Layout(const PackTarget &target)
      : data(static_cast<To *>(target.data)), k(target.k), n(target.n),
        storedRows((target.k + group - 1) / group * group),
        storedColumns((target.n + STEM_PANEL - 1) / STEM_PANEL * STEM_PANEL) {}

  To &at(int64_t row, int64_t column) const {
    int64_t panel = column / STEM_PANEL;
    return data[panel * storedRows * STEM_PANEL +
                row / group * group * STEM_PANEL + column % STEM_PANEL * group +
                row % group];
  }

  To *data;
  int64_t k, n, storedRows, storedColumns;
};

/// Two elements of one column, the first in the low half: how bf16 rows lie.
using Words = FourWords;
using Floats = FourFloats;

Floats load(const float *data) {
  Floats values;
  std::memcpy(&values, data, sizeof(values));
  return values;
}

/// The pairs of 8 consecutive elements.
Words pairsOf(const float *row) {
  const Floats low = load(row), high = load(row + 4);
  const Words even =
      roundFourToBF16(__builtin_shufflevector(low, high, 0, 2, 4, 6));
  return even >> 16 |
         roundFourToBF16(__builtin_shufflevector(low, high, 1, 3, 5, 7));
}

/// Columns [begin, end), whole fours, of the first `whole` rows, whole eights:
/// pairs of elements are the words of a transposition.
void packColumnsInWords(const Layout<BF16> &layout, int64_t first,
                        int64_t begin, int64_t end, int64_t whole,
                        const PackSource &source) {
  auto data = static_cast<const float *>(source.data);
  for (int64_t n = begin; n < end; n += 4)
    for (int64_t k = 0; k < whole; k += 8) {
      Words rows[4], halves[4];
      for (int i = 0; i < 4; ++i)
        rows[i] = pairsOf(data + (n - first + i) * source.stride + k);
      for (int i = 0; i < 2; ++i) {
        halves[2 * i] =
            __builtin_shufflevector(rows[i], rows[i + 2], 0, 4, 1, 5);
        halves[2 * i + 1] =
            __builtin_shufflevector(rows[i], rows[i + 2], 2, 6, 3, 7);
      }
      for (int i = 0; i < 2; ++i) {
        const Words low =
            __builtin_shufflevector(halves[i], halves[i + 2], 0, 4, 1, 5);
        const Words high =
            __builtin_shufflevector(halves[i], halves[i + 2], 2, 6, 3, 7);
        std::memcpy(&layout.at(k + 4 * i, n), &low, sizeof(low));
        std::memcpy(&layout.at(k + 4 * i + 2, n), &high, sizeof(high));
      }
    }
}

/// Rows k and k + 1, from `low` and `high`, of the columns that make whole
/// fours. Gives their number.
int64_t packPairInWords(const Layout<BF16> &layout, int64_t k, const float *low,
                        const float *high) {
  const int64_t end = layout.n / 4 * 4;
  for (int64_t n = 0; n < end; n += 4) {
    const Words words =
        roundFourToBF16(load(low + n)) >> 16 | roundFourToBF16(load(high + n));
    std::memcpy(&layout.at(k, n), &words, sizeof(words));
  }
  return end;
}

/// Source rows are columns: blocks of one cache line of each of a panel's
/// source rows keep both sides in the first-level cache.
template <typename To, typename From>
void packColumns(const PackTarget &target, int64_t first, int64_t count,
                 const PackSource &source) {
  constexpr int64_t block = 64 / sizeof(From);
  Layout<To> layout(target);
  auto data = static_cast<const From *>(source.data);
  // What is done in words, if anything.
  int64_t begin = 0, stop = 0, whole = 0;
  if constexpr (std::is_same_v<To, BF16> && std::is_same_v<From, float>) {
    begin = (first + 3) / 4 * 4;
    stop = (first + count) / 4 * 4;
    whole = layout.k / 8 * 8;
    packColumnsInWords(layout, first, begin, stop, whole, source);
  }
  for (int64_t column = first; column < first + count;) {
    int64_t end =
        std::min(first + count, (column / STEM_PANEL + 1) * STEM_PANEL);
    for (int64_t k = 0; k < layout.k; k += block)
      for (int64_t n = column; n < end; ++n) {
        const From *row = data + (n - first) * source.stride;
        const int64_t done = n >= begin && n < stop ? whole : 0;
        for (int64_t i = std::max(k, done); i < std::min(k + block, layout.k);
             ++i)
          layout.at(i, n) = convertElement<To>(row[i]);
      }
    for (int64_t k = layout.k; k < layout.storedRows; ++k)
      for (int64_t n = column; n < end; ++n)
        layout.at(k, n) = To{};
    column = end;
  }
  if (first + count == layout.n)
    for (int64_t k = 0; k < layout.storedRows; ++k)
      for (int64_t n = layout.n; n < layout.storedColumns; ++n)
        layout.at(k, n) = To{};
}

template <typename To, typename From>
void packRows(const PackTarget &target, int64_t first, int64_t count,
              const PackSource &source) {
  Layout<To> layout(target);
  auto data = static_cast<const From *>(source.data);
  int64_t end = first + count;
  int64_t done = 0; // columns of this pair of rows
  for (int64_t k = first; k < end; ++k) {
    const From *row = data + (k - first) * source.stride;
    if constexpr (std::is_same_v<To, BF16> && std::is_same_v<From, float>)
      if (k % 2 == 0)
        done = k + 1 < end
                   ? packPairInWords(layout, k, row, row + source.stride)
                   : 0;
    for (int64_t n = done; n < layout.n; ++n)
      layout.at(k, n) = convertElement<To>(row[n]);
    for (int64_t n = layout.n; n < layout.storedColumns; ++n)
      layout.at(k, n) = To{};
  }
  if (end == layout.k && end < layout.storedRows)
    for (int64_t n = 0; n < layout.storedColumns; ++n)
      layout.at(end, n) = To{};
}

void checkRange(const char *function, const PackTarget &target, int64_t rows,
                int64_t columns, int64_t first, int64_t count,
                const PackSource &source) {
  packedBytes(target.dtype, target.k, target.n);
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    fail("{}: rows [{}, {} + {}) do not lie within the {} rows of the source",
         function, first, first, count, rows);
  if (count > 1 && source.stride < columns)
    fail("{}: the source's row stride {} is less than its {} columns", function,
         source.stride, columns);
  if (count > 0 && columns > 0 && (!target.data || !source.data))
    fail("{}: no {} to pack", function, target.data ? "source" : "target");
}

template <typename To, bool Columns>
void packFrom(const PackTarget &target, int64_t first, int64_t count,
              const PackSource &source) {
  auto run = [&]<typename From>(From) {
    if constexpr (Columns)
      packColumns<To, From>(target, first, count, source);
    else
      packRows<To, From>(target, first, count, source);
  };
  switch (source.dtype) {
  case STEM_F32:
    return run(float{});
  case STEM_BF16:
    return run(BF16{});
  case STEM_F16:
    return run(F16{});
  default:
    fail("cannot pack elements of type {}: wanted f32, bf16 or f16",
         static_cast<int>(source.dtype));
  }
}

} // namespace

int64_t stem::packedBytes(stem_dtype dtype, int64_t k, int64_t n) {
  if (dtype != STEM_F32 && dtype != STEM_BF16)
    fail("a packed matrix holds f32 or bf16, not type {}",
         static_cast<int>(dtype));
  int64_t bytes = stem_packed_bytes(dtype, k, n);
  if (bytes < 0)
    fail("a packed matrix of {} x {} elements has no size", k, n);
  return bytes;
}

void stem::packWeight(const PackTarget &target, int64_t first, int64_t count,
                      const PackSource &source) {
  checkRange("packWeight", target, target.n, target.k, first, count, source);
  if (target.dtype == STEM_F32)
    packFrom<float, true>(target, first, count, source);
  else
    packFrom<BF16, true>(target, first, count, source);
}

void stem_packed_gather(const void *b, int32_t dtype, int64_t rows,
                        int64_t columns, const int32_t *ids, int64_t count,
                        float *out, int64_t ldo) {
  bool isF32 = dtype == STEM_F32;
  // A panel holds its rows one after the other; bf16 rows come in pairs.
  int64_t panelElements = (isF32 ? rows : (rows + 1) / 2 * 2) * STEM_PANEL;
  for (int64_t t = 0; t < count; ++t) {
    int64_t first = ids[t] / STEM_PANEL * panelElements;
    int64_t column = ids[t] % STEM_PANEL;
    float *row = out + t * ldo;
    if (isF32) {
      const float *panel = static_cast<const float *>(b) + first;
      for (int64_t k = 0; k < rows; ++k)
        row[k] = panel[k * STEM_PANEL + column];
      continue;
    }
    const BF16 *panel = static_cast<const BF16 *>(b) + first;
    for (int64_t k = 0; k < rows; ++k)
      row[k] = toF32(panel[(k / 2 * STEM_PANEL + column) * 2 + k % 2]);
  }
}

void stem::packMatrix(const PackTarget &target, int64_t first, int64_t count,
                      const PackSource &source) {
  checkRange("packMatrix", target, target.k, target.n, first, count, source);
  if (target.dtype == STEM_BF16 && first % 2 != 0)
    fail("packMatrix: a bf16 matrix is packed by pairs of rows, but the range "
         "starts at the odd row {}",
         first);
  if (target.dtype == STEM_F32)
    packFrom<float, false>(target, first, count, source);
  else
    packFrom<BF16, false>(target, first, count, source);
}
