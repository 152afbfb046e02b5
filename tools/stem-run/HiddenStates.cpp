//===- HiddenStates.cpp - What calibration keeps between layers -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HiddenStates.h"

#include "stem/Runtime/Parallel.h"

#include <algorithm>

using namespace stem;

int64_t HiddenStates::bytes(const TokenStream &stream, int64_t width) {
  return std::max<int64_t>(stream.places(), 1) * width * int64_t(sizeof(float));
}

HiddenStates::HiddenStates(const TokenStream &stream, int64_t width,
                           const std::filesystem::path &spillFolder)
    : tokens(stream), width(width) {
  const int64_t size = bytes(stream, width);
  if (spillFolder.empty()) {
    memory = Arena(size, "hidden states");
    values = static_cast<float *>(memory.data());
  } else {
    file.emplace(spillFolder, size, "hidden states");
    values = file->data();
  }
}

HiddenStates::HiddenStates(
    const TokenStream &stream, int64_t width,
    const std::filesystem::path &spillFolder,
    const std::function<void(const TokenStream::Step &, float *)> &fill)
    : HiddenStates(stream, width, spillFolder) {
  for (const TokenStream::Step &step : stream.steps) {
    fill(step, at(step));
    leave(step);
  }
}

void HiddenStates::leave(const TokenStream::Step &step) const {
  if (file)
    file->leave(step.begin * width, step.count * width);
}

void HiddenStates::replace(stem_context *context, const TokenStream::Step &step,
                           const float *next) {
  float *to = at(step);
  parallelFor(context, step.count, [&](int64_t token) {
    std::copy_n(next + token * width, width, to + token * width);
  });
  leave(step);
}

void HiddenStates::copyFrom(const HiddenStates &other) {
  for (const TokenStream::Step &step : tokens.steps) {
    std::copy_n(other.at(step), step.count * width, at(step));
    other.leave(step);
    leave(step);
  }
}
