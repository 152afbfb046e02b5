//===- SkippedSteps.cpp - The steps that a row was not in -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SkippedSteps.h"
#include "stem/Support/Error.h"
#include "stem/Training/RowOptimizer.h"

#include <algorithm>
#include <cmath>

using namespace stem;

int64_t stem::skippedStepsReplayed(const AdamWOptions &options) {
  double beta1 = options.beta1, beta2 = options.beta2;
  if (beta1 == 0)
    return 0;
  if (!(beta1 * beta1 < beta2))
    fail("the row mode exact with beta1 {} and beta2 {}: wanted beta1^2 below "
         "beta2, else moments without gradients never stop moving weights; "
         "take the mode lazy",
         beta1, beta2);
  double ratio = beta1 / std::sqrt(beta2);
  double most = (1 - beta1) / std::sqrt((1 - beta2) * (1 - ratio * ratio));
  double allowed = 0x1p-25 * (1 - ratio) / most;
  return std::max<int64_t>(
      0, int64_t(std::ceil(std::log(allowed) / std::log(ratio))) - 1);
}

SkippedSteps::SkippedSteps(const AdamWOptions &options)
    : options(options), replayed(skippedStepsReplayed(options)), logKept(1) {
  for (int64_t j = 0; j <= replayed; ++j) {
    firstPowers.push_back(std::pow(options.beta1, j));
    rootPowers.push_back(std::pow(options.beta2, double(j) / 2));
  }
}

void SkippedSteps::append(double learningRate) {
  rates.push_back(learningRate);
  double step = double(rates.size());
  unbiasedRates.push_back(learningRate / (1 - std::pow(options.beta1, step)));
  rootScales.push_back(1 / std::sqrt(1 - std::pow(options.beta2, step)));
  logKept.push_back(logKept.back() + std::log1p(-learningRate * options.decay));
}

void SkippedSteps::plan(int64_t last, CatchUp &catchUp) const {
  if (catchUp.last == last)
    return;
  double skipped = double(steps() - last);
  catchUp.last = last;
  catchUp.loss = float(-std::expm1(logKept.back() - logKept[last]));
  catchUp.firstKept = float(std::pow(options.beta1, skipped));
  catchUp.secondKept = float(std::pow(options.beta2, skipped));
  catchUp.epsilon = float(options.epsilon);

  int64_t terms = std::min(steps() - last, replayed);
  catchUp.pairs.assign((terms + 1) / 2, {});
  double kept = std::exp(logKept.back() - logKept[last + terms]);
  for (int64_t i = 0; i < terms; ++i) {
    int64_t j = terms - i, step = last + j;
    CatchUp::Pair &pair = catchUp.pairs[i / 2];
    pair.a[i % 2] = float(unbiasedRates[step - 1] * firstPowers[j] * kept);
    pair.c[i % 2] = float(rootPowers[j] * rootScales[step - 1]);
    kept *= 1 - rates[step - 1] * options.decay;
  }
}
