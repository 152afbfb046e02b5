//===- State.cpp - Optimizer state as tensors -----------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>
#include <utility>

using namespace stem;

static std::string described(DType dtype, const std::vector<uint64_t> &shape) {
  return fmt::format("{} [{}]", dtypeName(dtype), fmt::join(shape, ", "));
}

TensorView stem::stateTensor(std::string name, DType dtype,
                             std::vector<uint64_t> shape, const void *data) {
  uint64_t bytes = dtypeBytes(dtype, elementCount(shape).value()).value();
  return {std::move(name),
          dtype,
          std::move(shape),
          {static_cast<const std::byte *>(data), bytes}};
}

const TensorView &stem::findState(std::span<const TensorView> tensors,
                                  const TensorView &wanted) {
  auto found = std::ranges::find(tensors, wanted.name, &TensorView::name);
  if (found == tensors.end())
    fail("the optimizer's state has no tensor {}: wanted {}", wanted.name,
         described(wanted.dtype, wanted.shape));
  if (found->dtype != wanted.dtype || found->shape != wanted.shape ||
      found->data.size() != wanted.data.size())
    fail("the optimizer's state holds {} as {}: wanted {}", wanted.name,
         described(found->dtype, found->shape),
         described(wanted.dtype, wanted.shape));
  return *found;
}

int64_t stem::restoredSteps(std::span<const TensorView> tensors,
                            const std::string &name) {
  int64_t steps = 0;
  const TensorView &found =
      findState(tensors, stateTensor(name + ".steps", DType::I64, {1}, &steps));
  std::memcpy(&steps, found.data.data(), sizeof(steps));
  if (steps < 0 || steps > INT32_MAX)
    fail("the optimizer's state says in {} that {} steps were taken: wanted 0 "
         "to {}",
         found.name, steps, INT32_MAX);
  return steps;
}
