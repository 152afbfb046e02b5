//===- Pairs.h - Interleaved measurements ---------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_BENCH_PAIRS_H
#define STEM_BENCH_PAIRS_H

#include "stem/Runtime/Arena.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace stem::bench {

/// Memory that was written, as untouched pages all read from one page of zeros.
/// The bytes are 0.0115 in f32 and in bf16.
inline Arena filled(int64_t bytes) {
  Arena memory(bytes, "a benchmark");
  std::memset(memory.data(), 0x3c, bytes);
  return memory;
}

template <typename Body> double seconds(Body &&body) {
  auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The median of a ratio over interleaved pairs with its 95 % interval.
struct Ratio {
  double median, low, high;
  double secondsA, secondsB; ///< medians
};

inline double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs A and B in turns, `pairs` times after one untimed turn, and compares
/// time(B) / time(A): how many times as fast A is. The interval is that of the
/// order statistics 4 and 12 of 15, 95 % or more for 15 pairs and up.
template <typename A, typename B> Ratio compare(A &&a, B &&b, int pairs = 15) {
  a(), b();
  std::vector<double> ratios, timesA, timesB;
  for (int i = 0; i < pairs; ++i) {
    timesA.push_back(seconds(a));
    timesB.push_back(seconds(b));
    ratios.push_back(timesB.back() / timesA.back());
  }
  std::sort(ratios.begin(), ratios.end());
  size_t low = ratios.size() * 4 / 15 - 1;
  return {ratios[ratios.size() / 2], ratios[low],
          ratios[ratios.size() - 1 - low], medianOf(timesA), medianOf(timesB)};
}

} // namespace stem::bench

#endif // STEM_BENCH_PAIRS_H
