//===- AdamStep.cpp - Settings and scalars of AdamW -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AdamStep.h"
#include "stem/Support/Error.h"

using namespace stem;

void stem::checkOptions(std::string_view name, const AdamWOptions &options) {
  auto beta = [&](std::string_view which, double value) {
    if (!isBeta(value))
      fail("{}: {} is {}: wanted 0 or more, less than 1", name, which, value);
  };
  beta("beta1", options.beta1);
  beta("beta2", options.beta2);
  if (!isEpsilon(options.epsilon))
    fail("{}: epsilon is {}: wanted 1e-12 to 1, for moments are kept in f32",
         name, options.epsilon);
  if (!(options.decay >= 0) || std::isinf(options.decay))
    fail("{}: the weight decay is {}: wanted 0 or a finite number above", name,
         options.decay);
}

void stem::checkStep(std::string_view name, const AdamWOptions &options,
                     int64_t steps, double learningRate, double gradientScale) {
  if (steps >= INT32_MAX)
    fail("{}: {} steps were taken: steps are numbered in 32 bits", name, steps);
  if (!(learningRate >= 0) || std::isinf(learningRate))
    fail("{}: the learning rate of step {} is {}: wanted 0 or a finite number "
         "above",
         name, steps + 1, learningRate);
  if (!(learningRate * options.decay < 1))
    fail("{}: step {} would take {} times the weights off them (learning rate "
         "{}, decay {}): wanted less than 1; lower one of the two",
         name, steps + 1, learningRate * options.decay, learningRate,
         options.decay);
  if (!(gradientScale >= 0) || std::isinf(gradientScale))
    fail("{}: the gradient of step {} is scaled by {}: wanted 0 or a finite "
         "number above",
         name, steps + 1, gradientScale);
}

AdamStep::AdamStep(const AdamWOptions &options, int64_t step,
                   double learningRate, double gradientScale)
    : gradientScale(float(gradientScale)), firstRest(float(1 - options.beta1)),
      secondRest(float(1 - options.beta2)),
      rate(float(learningRate / (1 - std::pow(options.beta1, step)))),
      rootScale(float(1 / std::sqrt(1 - std::pow(options.beta2, step)))),
      epsilon(float(options.epsilon)),
      decay(float(learningRate * options.decay)) {}
