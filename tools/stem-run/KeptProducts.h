//===- KeptProducts.h - What enters W_down, kept --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_KEPTPRODUCTS_H
#define STEM_TOOLS_STEM_RUN_KEPTPRODUCTS_H

#include "CalibrationText.h"

#include "stem/Runtime/Arena.h"

namespace stem {

/// z = SiLU(gate) ⊙ rows at every place of a text, in the type of the model's
/// products, to which W_down rounds it anyway: a second pass gives the same
/// bits as if it computed z again.
class KeptProducts {
public:
  /// The context outlives the object.
  KeptProducts(stem_context *context, int64_t places, int64_t width,
               stem_dtype type);

  static int64_t bytes(int64_t places, int64_t width, stem_dtype type);

  /// z is step.count x width.
  void keep(const TokenStream::Step &step, const float *z);
  void read(const TokenStream::Step &step, float *z) const;

private:
  stem_context *context;
  int64_t width;
  stem_dtype type;
  Arena values;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_KEPTPRODUCTS_H
