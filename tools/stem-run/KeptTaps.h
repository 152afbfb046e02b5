//===- KeptTaps.h - What a layer's FFN multiplies, kept ---------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_KEPTTAPS_H
#define STEM_TOOLS_STEM_RUN_KEPTTAPS_H

#include "CalibrationText.h"

#include "stem/Runtime/Arena.h"

#include <vector>

namespace stem {

/// What enters a layer's FFN (places x d), SiLU(gate) and up (places x F).
struct TapRows {
  float *hidden, *gate, *up;
};

/// The taps of one layer at every place of a text, so that its passes run the
/// gate and the up-projection once.
class KeptTaps {
public:
  /// `hidden` is 0 where what enters the FFN is not kept.
  KeptTaps(const TokenStream &stream, int64_t hidden, int64_t ffn);

  int64_t hiddenSize() const { return hidden; }
  static int64_t bytes(int64_t places, int64_t hidden, int64_t ffn);

  /// Where those of a step are; what enters the FFN is at `other` unless it is
  /// kept.
  TapRows at(const TokenStream::Step &step, float *other) const;
  /// Whether they are there, which they are from now on.
  bool take(const TokenStream::Step &step);
  /// For the next layer.
  void forget() { taken.assign(taken.size(), false); }

private:
  int64_t hidden, ffn, places;
  std::vector<bool> taken; ///< of the step that begins at this place
  Arena values;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_KEPTTAPS_H
