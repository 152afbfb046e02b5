//===- SequenceOrder.cpp - Which sequence comes when ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/SequenceOrder.h"

#include "stem/Runtime/Philox.h"
#include "stem/Support/Error.h"

#include <bit>

using namespace stem;

/// Keeps these draws apart from others of the same seed: the high half of the
/// numbers' index.
static constexpr uint32_t kShuffleDraws = 0x53485546;

static constexpr uint32_t kRounds = 8;

SeededPermutation::SeededPermutation(uint64_t size, uint64_t seed,
                                     uint64_t stream)
    : size(size), seed(seed), stream(stream),
      halfBits((static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2) {}

uint64_t SeededPermutation::network(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << halfBits) - 1;
  uint64_t left = value >> halfBits, right = value & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const auto draw = philox(
        {static_cast<uint32_t>(right), kShuffleDraws + round,
         static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint64_t next = left ^ (draw[0] & mask);
    left = right;
    right = next;
  }
  return left << halfBits | right;
}

uint64_t SeededPermutation::operator()(uint64_t index) const {
  do
    index = network(index);
  while (index >= size);
  return index;
}

SequenceOrder::SequenceOrder(uint64_t sequences, uint64_t seed, Kind kind)
    : sequences(sequences), seed(seed), kind(kind) {}

uint64_t SequenceOrder::at(const DataPosition &position) const {
  if (position.index >= sequences)
    fail(
        "sequence {} of an epoch was to come next, but the data have {}; go on "
        "with the texts, the sequence length and the validation share that "
        "the run began with",
        position.index, sequences);
  if (kind == Kind::AsWritten)
    return position.index;
  return SeededPermutation(sequences, seed, position.epoch)(position.index);
}

std::vector<uint64_t> SequenceOrder::take(DataPosition &position,
                                          uint64_t count) const {
  std::vector<uint64_t> result;
  result.reserve(count);
  while (result.size() < count) {
    result.push_back(at(position));
    if (++position.index == sequences)
      position = {position.epoch + 1, 0};
  }
  return result;
}
