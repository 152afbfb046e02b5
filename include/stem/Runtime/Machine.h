//===- Machine.h - What this machine can do ---------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The figures of a roofline, measured with the threads and the instruction
// set of a context. Each takes a fraction of a second and gives the best of
// several runs: a bound, not an average.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_MACHINE_H
#define STEM_RUNTIME_MACHINE_H

#include "stem-c/Runtime.h"

namespace stem {

/// Bytes a second that all threads together read from memory, from a buffer
/// several times the last cache.
STEM_EXPORT double measureReadBandwidth(stem_context *context);

/// Operations a second (a multiplication and an addition are two) of
/// stem_packed_matmul on tiles that stay in the cache, all threads together.
STEM_EXPORT double measureMatrixRate(stem_context *context, stem_dtype dtype);

/// The same of a large product, whose weights come from memory: 128 tokens of
/// each thread at a time by a weight of 2048 x 8192.
STEM_EXPORT double measureProductRate(stem_context *context, stem_dtype dtype);

} // namespace stem

#endif // STEM_RUNTIME_MACHINE_H
