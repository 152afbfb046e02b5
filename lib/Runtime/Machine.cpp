//===- Machine.cpp - What this machine can do -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Runtime/Machine.h"
#include "stem/Runtime/Arena.h"
#include "stem/Runtime/Pack.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <unistd.h>

using namespace stem;

namespace {

double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The shortest of the runs that fit into a quarter of a second.
template <typename Body> double bestSeconds(Body body) {
  body(); // Touches memory and starts the threads.
  double best = 1e30;
  auto begin = std::chrono::steady_clock::now();
  do {
    auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(best, secondsSince(start));
  } while (secondsSince(begin) < 0.25);
  return best;
}

struct Reading {
  const uint64_t *words;
  std::atomic<uint64_t> sum{0};

  static constexpr int64_t chunkWords = (1 << 20) / 8;

  void run(int64_t task) {
    const uint64_t *chunk = words + task * chunkWords;
    // Eight sums: the additions of a line do not wait for each other.
    uint64_t sums[8] = {};
    for (int64_t i = 0; i < chunkWords; i += 8)
      for (int64_t j = 0; j < 8; ++j)
        sums[j] += chunk[i + j];
    for (uint64_t part : sums)
      sum.fetch_add(part, std::memory_order_relaxed);
  }
};

struct Multiplying {
  static constexpr int64_t m = 48, k = 256, n = 128, repeats = 200;

  stem_context *context;
  stem_dtype dtype;
  Arena a, b, c;

  /// Each thread has a C of its own; A and B are shared and read only.
  void run(int64_t thread) {
    float *out = static_cast<float *>(c.data()) + thread * m * n;
    for (int64_t i = 0; i < repeats; ++i)
      stem_packed_matmul(context, a.data(), k, b.data(), dtype, k, n, 0, 0, out,
                         n, m, k, n, 0);
  }
};

} // namespace

double stem::measureReadBandwidth(stem_context *context) {
  constexpr int64_t chunkBytes = Reading::chunkWords * 8;
  int64_t lastCache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  int64_t bytes = std::clamp<int64_t>(4 * lastCache, 256 << 20, 1 << 30);
  int64_t available = memoryStatus().available;
  if (available >= 0)
    bytes = std::min(bytes, available / 2);
  int64_t chunks = bytes / chunkBytes;
  if (chunks < 1)
    fail("cannot measure the read bandwidth: {} bytes of memory are available",
         available);
  Arena buffer(chunks * chunkBytes, "measuring the read bandwidth");
  std::memset(buffer.data(), 1, chunks * chunkBytes);
  Reading reading = {static_cast<const uint64_t *>(buffer.data())};
  double seconds = bestSeconds([&] {
    parallelFor(context, chunks, [&](int64_t task) { reading.run(task); });
  });
  return static_cast<double>(chunks * chunkBytes) / seconds;
}

double stem::measureMatrixRate(stem_context *context, stem_dtype dtype) {
  using M = Multiplying;
  int64_t threads = stem_context_threads(context);
  // Zeros cost as much as other numbers.
  M work = {context, dtype, Arena(M::m * M::k * 4, "measuring the matrix rate"),
            Arena(packedBytes(dtype, M::k, M::n), "measuring the matrix rate"),
            Arena(threads * M::m * M::n * 4, "measuring the matrix rate")};
  double seconds = bestSeconds([&] {
    parallelFor(context, threads,
                [&](int64_t task, int64_t thread) { work.run(thread); });
  });
  return 2.0 * M::m * M::k * M::n * M::repeats * static_cast<double>(threads) /
         seconds;
}

double stem::measureProductRate(stem_context *context, stem_dtype dtype) {
  constexpr int64_t m = 128, k = 2048, n = 8192;
  const int64_t threads = stem_context_threads(context);
  const char *what = "measuring the rate of a large product";
  const int64_t inputBytes = threads * m * k * 4,
                weightBytes = packedBytes(dtype, k, n);
  Arena a(inputBytes, what), b(weightBytes, what), c(threads * m * n * 4, what);
  // Pages that nobody has written are all one page of zeros.
  std::memset(a.data(), 0, static_cast<size_t>(inputBytes));
  std::memset(b.data(), 0, static_cast<size_t>(weightBytes));
  const double seconds = bestSeconds([&] {
    parallelFor(context, threads, [&](int64_t task) {
      stem_packed_matmul(
          context, static_cast<std::byte *>(a.data()) + task * m * k * 4, k,
          b.data(), dtype, k, n, 0, 0,
          static_cast<float *>(c.data()) + task * m * n, n, m, k, n, 0);
    });
  });
  return 2.0 * double(m * k * n * threads) / seconds;
}
