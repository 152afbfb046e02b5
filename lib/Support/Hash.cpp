//===- Hash.cpp - Names for contents --------------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Hash.h"

#include "stem/Support/Error.h"
#include "stem/Support/Files.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <immintrin.h>
#include <vector>

using namespace stem;

namespace {

alignas(16) constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t loadBigEndian(const std::byte *bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return __builtin_bswap32(word);
}

} // namespace

bool Sha256::hasInstructions() {
  static const bool result =
      __builtin_cpu_supports("sha") && __builtin_cpu_supports("sse4.1");
  return result;
}

Sha256::Sha256(bool useInstructions)
    : state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      useInstructions(useInstructions) {}

void Sha256::compress(State &state, const std::byte *blocks, size_t count) {
  std::array<uint32_t, 64> w;
  for (; count; --count, blocks += blockBytes) {
    for (size_t t = 0; t < 16; ++t)
      w[t] = loadBigEndian(blocks + 4 * t);
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t x = w[t - 15], y = w[t - 2];
      w[t] = w[t - 16] + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ x >> 3) +
             w[t - 7] + (std::rotr(y, 17) ^ std::rotr(y, 19) ^ y >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t sum1 =
          std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t first =
          h + sum1 + ((e & f) ^ (~e & g)) + kRoundConstants[t] + w[t];
      const uint32_t sum0 =
          std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t second = sum0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first;
      d = c, c = b, b = a, a = first + second;
    }
    const State added = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state.size(); ++i)
      state[i] += added[i];
  }
}

/// The instructions keep the state as the words a b e f and c d g h and run two
/// rounds at a time.
__attribute__((target("sha,sse4.1"))) void
Sha256::compressByInstructions(State &state, const std::byte *blocks,
                               size_t count) {
  const __m128i byteOrder =
      _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto *words = reinterpret_cast<__m128i *>(state.data());
  const auto *constants =
      reinterpret_cast<const __m128i *>(kRoundConstants.data());
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8);
  __m128i cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; count; --count, blocks += blockBytes) {
    const __m128i abefBefore = abef, cdghBefore = cdgh;
    const auto *source = reinterpret_cast<const __m128i *>(blocks);
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(source + i), byteOrder);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      __m128i &now = w[i % 4];
      if (i >= 4) {
        const __m128i last = w[(i + 3) % 4];
        now = _mm_sha256msg1_epu32(now, w[(i + 1) % 4]);
        now = _mm_add_epi32(now, _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
        now = _mm_sha256msg2_epu32(now, last);
      }
      const __m128i sum = _mm_add_epi32(now, _mm_load_si128(constants + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abefBefore);
    cdgh = _mm_add_epi32(cdgh, cdghBefore);
  }
  low = _mm_shuffle_epi32(abef, 0x1b);
  high = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(high, low, 8));
}

void Sha256::add(const std::byte *blocks, size_t count) {
  if (useInstructions)
    compressByInstructions(state, blocks, count);
  else
    compress(state, blocks, count);
}

void Sha256::update(std::span<const std::byte> bytes) {
  const size_t begun = size % blockBytes;
  size += bytes.size();
  if (begun) {
    const size_t count = std::min(bytes.size(), blockBytes - begun);
    std::copy_n(bytes.begin(), count, block.begin() + begun);
    bytes = bytes.subspan(count);
    if (begun + count < blockBytes)
      return;
    add(block.data(), 1);
  }
  add(bytes.data(), bytes.size() / blockBytes);
  const auto rest = bytes.last(bytes.size() % blockBytes);
  std::copy(rest.begin(), rest.end(), block.begin());
}

std::string Sha256::finish() {
  const uint64_t bits = size * 8;
  // A one bit, then zeros up to the last eight bytes of a block.
  std::array<std::byte, 2 * blockBytes> end{};
  end[0] = std::byte{0x80};
  const size_t padding = blockBytes - (size + sizeof(bits)) % blockBytes;
  for (size_t i = 0; i < sizeof(bits); ++i)
    end[padding + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update(std::span(end).first(padding + sizeof(bits)));
  std::string hex;
  for (const uint32_t word : state)
    hex += fmt::format("{:08x}", word);
  return hex;
}

std::string stem::hashText(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

std::string stem::hashFile(const std::filesystem::path &path, uint64_t *size) {
  FileReader file(path);
  Sha256 hash;
  uint64_t total = 0;
  std::vector<std::byte> buffer(1 << 20);
  while (const size_t count = file.read(buffer)) {
    hash.update(std::span(buffer).first(count));
    total += count;
  }
  if (size)
    *size = total;
  return hash.finish();
}
