//===- TestSupport.h - Shared by the runtime's tests -------------*- C++
//-*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_RUNTIME_TESTSUPPORT_H
#define STEM_TEST_UNIT_RUNTIME_TESTSUPPORT_H

#include "../Support/TestErrors.h"
#include "stem/Runtime/Context.h"

#include <bit>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace stem::test {

/// Every instruction set that this machine can run, one context each.
inline std::vector<stem_isa> runnableIsas() {
  std::vector<stem_isa> isas;
  for (int isa = STEM_ISA_AVX2; isa <= detectIsa(); ++isa)
    isas.push_back(static_cast<stem_isa>(isa));
  return isas;
}

inline float bf16Value(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

/// Truncated, which is exact for the small values of the tests that compare.
inline uint16_t bf16Bits(float value) {
  return uint16_t(std::bit_cast<uint32_t>(value) >> 16);
}

} // namespace stem::test

#endif // STEM_TEST_UNIT_RUNTIME_TESTSUPPORT_H
