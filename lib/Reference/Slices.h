//===- Slices.h - Blocks of a tensor ----------------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_REFERENCE_SLICES_H
#define STEM_LIB_REFERENCE_SLICES_H

#include "Machine.h"

namespace stem::reference {

struct Slice {
  llvm::SmallVector<int64_t> offsets, sizes, strides;
};

/// The slice that an op with offsets, sizes and strides names.
template <typename SliceOp>
Slice readSlice(const Machine &machine, SliceOp op) {
  return {machine.integers(op.getMixedOffsets()),
          machine.integers(op.getMixedSizes()),
          machine.integers(op.getMixedStrides())};
}

/// Writes the elements of `source`, in order, to the slice of `target`.
mlir::LogicalResult insertSlice(Machine &machine, mlir::Operation *op,
                                const ReferenceTensor &source,
                                const Slice &slice, ReferenceTensor &target);

} // namespace stem::reference

#endif // STEM_LIB_REFERENCE_SLICES_H
