//===- BufferPacking.h - Offsets of buffers with lifetimes ------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_TRANSFORMS_BUFFERPACKING_H
#define STEM_LIB_TRANSFORMS_BUFFERPACKING_H

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>

namespace stem {

/// `bytes` at `offset` from position `first` to position `last`, inclusive.
struct PackedBuffer {
  int64_t bytes = 0;
  unsigned first = 0;
  unsigned last = 0;
  int64_t offset = 0;
};

/// Chooses offsets so that buffers that live at the same time do not overlap:
/// the largest first, each into the smallest gap that holds it. Returns the
/// bytes that all of them take. Offsets are sums of sizes, so they are aligned
/// as the sizes are.
int64_t packBuffers(llvm::MutableArrayRef<PackedBuffer *> buffers);

} // namespace stem

#endif // STEM_LIB_TRANSFORMS_BUFFERPACKING_H
