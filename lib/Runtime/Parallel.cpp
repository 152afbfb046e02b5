//===- Parallel.cpp - Parallel loops over OpenMP threads ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ContextImpl.h"

#include <algorithm>
#include <atomic>
#include <omp.h>

void stem_parallel_for(stem_context *context, int64_t tasks,
                       stem_parallel_body body, void *captures) {
  if (tasks <= 0 || !body)
    return;
  int64_t wanted = context ? context->threads : 1;
  int threads = static_cast<int>(std::min(wanted, tasks));
  // A nested loop keeps its thread's number: what the number indexes (scratch
  // memory) belongs to that thread alone.
  if (threads == 1 || omp_in_parallel()) {
    int64_t thread = omp_in_parallel() ? omp_get_thread_num() : 0;
    for (int64_t task = 0; task < tasks; ++task)
      body(captures, task, thread);
    return;
  }
  // A counter rather than schedule(dynamic, 1): tasks start in rising order
  // whatever OMP_SCHEDULE and the modifiers of the implementation say.
  std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(threads)
  {
    int64_t thread = omp_get_thread_num();
    for (int64_t task = next.fetch_add(1, std::memory_order_relaxed);
         task < tasks; task = next.fetch_add(1, std::memory_order_relaxed))
      body(captures, task, thread);
  }
}
