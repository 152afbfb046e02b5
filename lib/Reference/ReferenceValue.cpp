//===- ReferenceValue.cpp - Values of the reference interpreter -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Reference/ReferenceValue.h"

using namespace stem;

ReferenceTensor stem::transposed(const ReferenceTensor &matrix) {
  ReferenceTensor result = matrix;
  std::swap(result.shape[0], result.shape[1]);
  for (int64_t i = 0; i < matrix.shape[0]; ++i)
    for (int64_t j = 0; j < matrix.shape[1]; ++j)
      result.at(j, i) = matrix.at(i, j);
  return result;
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
static uint64_t mixBits(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

SeededStream::SeededStream(uint64_t seed, llvm::StringRef name) {
  state = mixBits(seed + 0x9e3779b97f4a7c15u);
  for (char c : name)
    state = mixBits(state ^ static_cast<unsigned char>(c));
}

uint64_t SeededStream::bits(uint64_t index) const {
  return mixBits(state + (index + 1) * 0x9e3779b97f4a7c15u);
}

double SeededStream::real(uint64_t index) const {
  return (static_cast<double>(bits(index) >> 57) - 64.0) / 64.0;
}

int64_t SeededStream::integer(uint64_t index, int64_t bound) const {
  return static_cast<int64_t>(bits(index) % static_cast<uint64_t>(bound));
}

void ReferenceCache::seedPast(uint64_t newSeed, int64_t positions) {
  seed = newSeed;
  past = positions;
}

void ReferenceCache::append(int64_t handle, int64_t layer, int64_t sequence,
                            int64_t position, llvm::ArrayRef<double> key,
                            llvm::ArrayRef<double> value) {
  entries[{handle, layer, sequence, position}] = {key.vec(), value.vec()};
}

bool ReferenceCache::contains(int64_t handle, int64_t layer, int64_t sequence,
                              int64_t position) const {
  return (position >= 0 && position < past) ||
         entries.count({handle, layer, sequence, position});
}

double ReferenceCache::seeded(llvm::StringRef what, const Place &place,
                              int64_t column) const {
  auto [handle, layer, sequence, position] = place;
  if (position < 0 || position >= past)
    return 0.0;
  SeededStream stream(seed, what);
  uint64_t index = stream.bits(handle);
  for (int64_t part : {layer, sequence, position})
    index = stream.bits(index + part);
  return stream.real(index + column);
}

double ReferenceCache::key(int64_t handle, int64_t layer, int64_t sequence,
                           int64_t position, int64_t column) const {
  Place place{handle, layer, sequence, position};
  auto entry = entries.find(place);
  if (entry == entries.end())
    return seeded("past keys", place, column);
  const std::vector<double> &row = entry->second.key;
  return column < static_cast<int64_t>(row.size()) ? row[column] : 0.0;
}

double ReferenceCache::value(int64_t handle, int64_t layer, int64_t sequence,
                             int64_t position, int64_t column) const {
  Place place{handle, layer, sequence, position};
  auto entry = entries.find(place);
  if (entry == entries.end())
    return seeded("past values", place, column);
  const std::vector<double> &row = entry->second.value;
  return column < static_cast<int64_t>(row.size()) ? row[column] : 0.0;
}
