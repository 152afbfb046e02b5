//===- NormalEquations.cpp - The refit of W_down --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Calibration/NormalEquations.h"
#include "SpdFactor.h"
#include "stem/Support/Error.h"

#include <cmath>
#include <utility>

using namespace stem;

NormalEquations::NormalEquations(stem_context *context, int64_t ffn,
                                 int64_t hidden, std::string name)
    : context(context), ffn(ffn), hidden(hidden), name(std::move(name)),
      sums(context, ffn, hidden) {}

void NormalEquations::solve(double ridge, float *update) {
  if (!(ridge >= 0) || std::isinf(ridge))
    fail("{}: the ridge of W_down's refit is {}: wanted 0 or more", name,
         ridge);
  sums.finish();
  checkFinite(name, "z zᵀ and z targetᵀ", sums.gram(), sums.cross(), ffn,
              hidden);
  SpdFactor factor(sums.gram(), ffn);
  if (!factor.factor(ridge))
    fail("{}: the sum of z zᵀ over {} positions ({} dimensions, mean of the "
         "diagonal {:g}) with a ridge of {:g} is not positive definite: "
         "calibrate on more text or choose a larger ridge",
         name, positions(), ffn, factor.meanDiagonal(), ridge);
  factor.solveTransposed(context, sums.cross(), hidden, update);
}
