//===- Hash.h - Names for contents ------------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_HASH_H
#define STEM_SUPPORT_HASH_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace stem {

/// SHA-256 (FIPS 180-4) of bytes that come piece by piece.
class Sha256 {
public:
  /// By the CPU's own instructions where it has them.
  Sha256() : Sha256(hasInstructions()) {}
  /// For tests: by them or without.
  explicit Sha256(bool useInstructions);

  static bool hasInstructions();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }

  /// In hex, lower case. Nothing can be added afterwards.
  std::string finish();

private:
  using State = std::array<uint32_t, 8>;
  static constexpr size_t blockBytes = 64;

  static void compress(State &state, const std::byte *blocks, size_t count);
  static void compressByInstructions(State &state, const std::byte *blocks,
                                     size_t count);
  void add(const std::byte *blocks, size_t count);

  State state;
  std::array<std::byte, blockBytes> block; ///< the last, incomplete one
  uint64_t size = 0;
  bool useInstructions;
};

/// SHA-256 of a text in hex.
std::string hashText(std::string_view text);

/// SHA-256 of a regular file in hex, read piece by piece, and its size.
std::string hashFile(const std::filesystem::path &path,
                     uint64_t *size = nullptr);

} // namespace stem

#endif // STEM_SUPPORT_HASH_H
