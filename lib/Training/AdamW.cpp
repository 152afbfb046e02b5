//===- AdamW.cpp - AdamW on dense parameters ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/AdamW.h"
#include "AdamStep.h"
#include "State.h"
#include "stem/Runtime/Parallel.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace stem;

namespace {

/// Elements of a task: 28 bytes each, a few times the first cache.
constexpr int64_t taskElements = 16384;

float *floats(const Arena &arena) { return static_cast<float *>(arena.data()); }

STEM_TARGET void updateElements(const AdamStep &step, int64_t count,
                                const float *__restrict gradient,
                                float *__restrict weights, float *__restrict m,
                                float *__restrict v) {
  for (int64_t i = 0; i < count; ++i) {
    float g = gradient[i] * step.gradientScale;
    m[i] = moved(m[i], g, step.firstRest);
    v[i] = moved(v[i], g * g, step.secondRest);
    float move = step.rate * m[i] / denominator(step, v[i]);
    weights[i] = stepped(step, weights[i], move);
  }
}

} // namespace

AdamW::AdamW(stem_context *context, std::string name, std::span<float> weights,
             const AdamWOptions &options)
    : context(context), name(std::move(name)), weights(weights),
      options(options),
      firstMoment(int64_t(weights.size_bytes()), "first moments"),
      secondMoment(int64_t(weights.size_bytes()), "second moments") {
  checkOptions(this->name, options);
}

void AdamW::update(std::span<const float> gradient, double learningRate,
                   double gradientScale) {
  if (gradient.size() != weights.size())
    fail("{}: a gradient of {} elements for {} weights", name, gradient.size(),
         weights.size());
  checkStep(name, options, stepCount, learningRate, gradientScale);
  AdamStep step(options, ++stepCount, learningRate, gradientScale);
  int64_t total = int64_t(weights.size());
  parallelFor(
      context, (total + taskElements - 1) / taskElements, [&](int64_t task) {
        FlushSubnormals flush;
        int64_t first = task * taskElements;
        int64_t count = std::min(taskElements, total - first);
        updateElements(step, count, gradient.data() + first,
                       weights.data() + first, floats(firstMoment) + first,
                       floats(secondMoment) + first);
      });
}

AdamWScalars AdamW::nextStep(double learningRate) const {
  checkStep(name, options, stepCount, learningRate, /*gradientScale=*/1);
  AdamStep step(options, stepCount + 1, learningRate, /*gradientScale=*/1);
  return {step.rate, step.rootScale, step.decay};
}

std::vector<TensorView> AdamW::state() const {
  uint64_t size = weights.size();
  return {stateTensor(name + ".w", DType::F32, {size}, weights.data()),
          stateTensor(name + ".m", DType::F32, {size}, firstMoment.data()),
          stateTensor(name + ".v", DType::F32, {size}, secondMoment.data()),
          stateTensor(name + ".steps", DType::I64, {1}, &stepCount)};
}

void AdamW::restore(std::span<const TensorView> tensors) {
  int64_t steps = restoredSteps(tensors, name);
  std::vector<TensorView> wanted = state();
  const TensorView &w = findState(tensors, wanted[0]);
  const TensorView &m = findState(tensors, wanted[1]);
  const TensorView &v = findState(tensors, wanted[2]);
  std::ranges::copy(w.data, std::as_writable_bytes(weights).begin());
  std::ranges::copy(m.data, static_cast<std::byte *>(firstMoment.data()));
  std::ranges::copy(v.data, static_cast<std::byte *>(secondMoment.data()));
  stepCount = steps;
}
