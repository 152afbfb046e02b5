//===- ReferenceValue.h - Values of the reference interpreter ---*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_REFERENCE_REFERENCEVALUE_H
#define STEM_REFERENCE_REFERENCEVALUE_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace stem {

/// A dense tensor in row-major order. Integers are held as doubles too, so
/// they are exact up to 2^53.
struct ReferenceTensor {
  llvm::SmallVector<int64_t> shape;
  std::vector<double> values;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const { return static_cast<int64_t>(values.size()); }
  double at(int64_t row, int64_t column) const {
    return values[row * shape[1] + column];
  }
  double &at(int64_t row, int64_t column) {
    return values[row * shape[1] + column];
  }
};

/// `[N, K]` as `K x N`: what packing does to a matrix.
ReferenceTensor transposed(const ReferenceTensor &matrix);

/// A tensor, or a number where `tensor` is null. Tables, packed matrices and
/// row gradients are tensors; the handle of a key-value cache is a number.
struct ReferenceValue {
  std::shared_ptr<const ReferenceTensor> tensor;
  double number = 0.0;

  ReferenceValue() = default;
  ReferenceValue(double number) : number(number) {}
  ReferenceValue(ReferenceTensor value)
      : tensor(std::make_shared<const ReferenceTensor>(std::move(value))) {}
};

/// Seeded numbers without state: the value at a place depends on the seed, a
/// name and an index alone.
class SeededStream {
public:
  SeededStream(uint64_t seed, llvm::StringRef name);

  uint64_t bits(uint64_t index) const;
  /// A multiple of 1/64 in [-1, 1): exact in every storage type.
  double real(uint64_t index) const;
  /// An integer in [0, bound).
  int64_t integer(uint64_t index, int64_t bound) const;
  /// Above that of every smaller index: about half of all integers are one.
  int64_t risingId(uint64_t index) const {
    return static_cast<int64_t>(2 * index) + integer(index, 2);
  }

private:
  uint64_t state;
};

/// Keys and values of past positions, by cache handle, layer and sequence.
class ReferenceCache {
public:
  /// Gives every sequence of every layer `positions` seeded past positions.
  void seedPast(uint64_t seed, int64_t positions);

  void append(int64_t handle, int64_t layer, int64_t sequence, int64_t position,
              llvm::ArrayRef<double> key, llvm::ArrayRef<double> value);
  bool contains(int64_t handle, int64_t layer, int64_t sequence,
                int64_t position) const;
  /// Zero at a position that was never written.
  double key(int64_t handle, int64_t layer, int64_t sequence, int64_t position,
             int64_t column) const;
  double value(int64_t handle, int64_t layer, int64_t sequence,
               int64_t position, int64_t column) const;

private:
  struct Entry {
    std::vector<double> key, value;
  };
  using Place = std::tuple<int64_t, int64_t, int64_t, int64_t>;

  double seeded(llvm::StringRef what, const Place &place, int64_t column) const;

  std::map<Place, Entry> entries;
  uint64_t seed = 0;
  int64_t past = 0;
};

} // namespace stem

#endif // STEM_REFERENCE_REFERENCEVALUE_H
