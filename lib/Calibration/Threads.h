//===- Threads.h - When a loop is worth the threads -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_CALIBRATION_THREADS_H
#define STEM_LIB_CALIBRATION_THREADS_H

#include "stem-c/Runtime.h"

namespace stem {

/// What parallelFor takes for a simple loop over so many elements: none, which
/// is one thread, where waking the others takes longer than the loop.
inline stem_context *threadsFor(stem_context *context, int64_t elements) {
  return elements < 16384 ? nullptr : context;
}

} // namespace stem

#endif // STEM_LIB_CALIBRATION_THREADS_H
