//===- LayerPruner.h - d_ff with fewer columns ----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_BENCH_COMPRESSED_DENSE_LAYERPRUNER_H
#define STEM_BENCH_COMPRESSED_DENSE_LAYERPRUNER_H

#include "ChangedLayer.h"
#include "LayerFitter.h"

#include <cstdint>
#include <span>
#include <vector>

namespace stem {

/// Keeps the columns of d_ff that count most for a layer's output on hidden
/// states behind its attention, and fits W_down again to what the others gave.
class LayerPruner {
public:
  LayerPruner(const Checkpoint &checkpoint, LayerRunner &runner);

  /// W_down has 0 in the columns that are gone. `ridges` empty: it is only cut.
  ChangedLayer prune(uint64_t layer, const LayerText &fit,
                     const LayerText &choose, int64_t columns,
                     std::span<const double> ridges);

private:
  void taps(uint64_t layer, const HiddenStates &states,
            const TokenStream::Step &step);
  std::vector<double> importance(uint64_t layer, std::span<const float> down,
                                 const HiddenStates &fit);
  void split(uint64_t layer, std::span<const uint8_t> isKept, int64_t count);

  const Checkpoint &checkpoint;
  LayerRunner &runner;
  int64_t d, f;
  // Of a step.
  std::vector<float> hidden, output, lacks, gate, product, rest;
};

} // namespace stem

#endif // STEM_BENCH_COMPRESSED_DENSE_LAYERPRUNER_H
