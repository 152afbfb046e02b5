//===- ChangedLayer.h - A layer with a new W_down -------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_BENCH_COMPRESSED_DENSE_CHANGEDLAYER_H
#define STEM_BENCH_COMPRESSED_DENSE_CHANGEDLAYER_H

#include <vector>

namespace stem {

struct ChangedLayer {
  double ridge = 0; ///< 0: no update of W_down
  /// Squared error of what is asked of W_down over that of the output that
  /// lacks nothing, before and after it was fitted again.
  double errorBefore = 0, errorAfter = 0;
  std::vector<float> down; ///< d x F
};

} // namespace stem

#endif // STEM_BENCH_COMPRESSED_DENSE_CHANGEDLAYER_H
