//===- ParallelFor.h - Loops on the threads of a context --------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_PARALLELFOR_H
#define STEM_TOOLS_STEM_RUN_PARALLELFOR_H

#include "stem-c/Runtime.h"

namespace stem {

/// Runs body(task) for every task in [0, tasks) on the context's threads. The
/// body throws nothing.
template <typename Body>
void parallelFor(stem_context *context, int64_t tasks, const Body &body) {
  stem_parallel_for(
      context, tasks,
      [](void *captures, int64_t task, int64_t) {
        (*static_cast<const Body *>(captures))(task);
      },
      const_cast<Body *>(&body));
}

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_PARALLELFOR_H
