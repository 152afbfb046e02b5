//===- BlockDropper.h - A model with fewer blocks -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_BENCH_COMPRESSED_DENSE_BLOCKDROPPER_H
#define STEM_BENCH_COMPRESSED_DENSE_BLOCKDROPPER_H

#include "ChangedLayer.h"
#include "LayerFitter.h"
#include "StatesRunner.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace stem {

/// One block that was dropped after others.
struct DroppedBlock {
  uint64_t block = 0;
  /// What the loss on `choose` grows by, beyond that of the whole model, when
  /// it goes too. `candidates`: the same of each block that was left.
  double sensitivity = 0;
  std::vector<uint64_t> left;
  std::vector<double> candidates;
};

class BlockDropper {
public:
  BlockDropper(const Checkpoint &checkpoint, LayerRunner &runner);

  /// Drops the block that costs least, measured, then the next of what is left.
  std::vector<DroppedBlock> choose(const TokenStream &stream, uint64_t count,
                                   const std::function<void(double)> &done);

  /// W_down of `block`, fitted to what the `dropped` ones right above it gave.
  ChangedLayer refit(uint64_t block, std::span<const uint64_t> dropped,
                     const LayerText &fit, const LayerText &choose,
                     std::span<const double> ridges);

private:
  void taps(uint64_t block, std::span<const uint64_t> dropped,
            const HiddenStates &states, const TokenStream::Step &step);

  const Checkpoint &checkpoint;
  LayerRunner &runner;
  StatesRunner states;
  int64_t d, f;
  // Of a step.
  std::vector<float> hidden, middle, lacks, gate, product;
};

} // namespace stem

#endif // STEM_BENCH_COMPRESSED_DENSE_BLOCKDROPPER_H
