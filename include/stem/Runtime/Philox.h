//===- Philox.h - Counter-based random numbers ------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011): the n-th number of a stream is a function of n, so that a state is a
// counter and a draw can be repeated alone.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_PHILOX_H
#define STEM_RUNTIME_PHILOX_H

#include <array>
#include <cstdint>

namespace stem {

/// Four random words for a counter and a key.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(0xd2511f53) * counter[0];
    uint64_t product1 = uint64_t(0xcd9e8d57) * counter[2];
    counter = {
        uint32_t(product1 >> 32) ^ counter[1] ^ key[0], uint32_t(product1),
        uint32_t(product0 >> 32) ^ counter[3] ^ key[1], uint32_t(product0)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return counter;
}

/// Uniform in [0, 1) with 53 bits: number `index` of stream `stream` of `seed`.
inline double philoxUniform(uint64_t seed, uint64_t stream, uint64_t index) {
  std::array<uint32_t, 4> words =
      philox({uint32_t(index), uint32_t(index >> 32), uint32_t(stream),
              uint32_t(stream >> 32)},
             {uint32_t(seed), uint32_t(seed >> 32)});
  uint64_t bits = (uint64_t(words[1]) << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

} // namespace stem

#endif // STEM_RUNTIME_PHILOX_H
