//===- SequenceOrder.h - Which sequence comes when --------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_DATA_SEQUENCEORDER_H
#define STEM_DATA_SEQUENCEORDER_H

#include <cstdint>
#include <vector>

namespace stem {

/// A permutation of [0, size) drawn by a seed and a stream, without a list: a
/// Feistel network over Philox on the smallest square power of two that holds
/// the range, applied again while it leaves the range (cycle walking; less than
/// four times on average).
class SeededPermutation {
public:
  SeededPermutation(uint64_t size, uint64_t seed, uint64_t stream);

  /// Of an index below the size.
  uint64_t operator()(uint64_t index) const;

private:
  uint64_t network(uint64_t value) const;

  uint64_t size, seed, stream;
  unsigned halfBits;
};

/// Where a run is in its data. The next sequence follows from it alone.
struct DataPosition {
  uint64_t epoch = 0;
  uint64_t index = 0; ///< sequences taken in this epoch

  bool operator==(const DataPosition &) const = default;
};

/// Every sequence once an epoch; with a shuffle each epoch has an order of its
/// own.
class SequenceOrder {
public:
  enum class Kind { Shuffled, AsWritten };

  /// `sequences` is not 0.
  SequenceOrder(uint64_t sequences, uint64_t seed, Kind kind = Kind::Shuffled);

  /// The sequence at a position. Throws an Error for one that there is not:
  /// the data are not those of the run that was at this position.
  uint64_t at(const DataPosition &position) const;

  /// The next `count` sequences; moves the position behind them, into later
  /// epochs where one ends.
  std::vector<uint64_t> take(DataPosition &position, uint64_t count) const;

private:
  uint64_t sequences, seed;
  Kind kind;
};

} // namespace stem

#endif // STEM_DATA_SEQUENCEORDER_H
