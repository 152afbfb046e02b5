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
#include <cmath>
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

/// The interval of the median of `count` values, 95 % at least, is from the
/// value at this place in their order to the one as far from the other end:
/// that as few lie below the true median as above it is binomial.
inline size_t intervalPlace(size_t count) {
  double probability = std::pow(0.5, static_cast<double>(count)), below = 0;
  size_t place = 0;
  for (; place < count / 2; ++place) {
    below += probability;
    if (below > 0.025)
      break;
    probability *=
        static_cast<double>(count - place) / static_cast<double>(place + 1);
  }
  return place > 0 ? place - 1 : 0;
}

/// Runs A and B in turns, `pairs` times (15 at least) after one untimed turn,
/// and compares time(B) / time(A): how many times as fast A is.
template <typename A, typename B> Ratio compare(A &&a, B &&b, int pairs = 15) {
  a(), b();
  std::vector<double> ratios, timesA, timesB;
  for (int i = 0; i < pairs; ++i) {
    timesA.push_back(seconds(a));
    timesB.push_back(seconds(b));
    ratios.push_back(timesB.back() / timesA.back());
  }
  std::sort(ratios.begin(), ratios.end());
  size_t low = intervalPlace(ratios.size());
  return {ratios[ratios.size() / 2], ratios[low],
          ratios[ratios.size() - 1 - low], medianOf(timesA), medianOf(timesB)};
}

} // namespace stem::bench

#endif // STEM_BENCH_PAIRS_H
