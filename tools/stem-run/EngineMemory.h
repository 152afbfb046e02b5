//===- EngineMemory.h - Whether a plan of memory fits -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H
#define STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H

#include <cstdint>
#include <initializer_list>
#include <string>

namespace stem {

/// INT64_MAX where the sum is beyond it.
int64_t sumOfBytes(std::initializer_list<int64_t> parts);

/// Memory is given out before it is there: too much of it ends the process
/// later, without a word. Fails when `bytes` are more than is available, with
/// the sum (`plan`) and what to do (`advice`).
void requireMemory(int64_t bytes, const std::string &plan,
                   const std::string &advice);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_ENGINEMEMORY_H
