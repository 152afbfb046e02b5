//===- Parallel.cpp - Parallel loops over OpenMP threads ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ContextImpl.h"

#include <algorithm>
#include <atomic>
#ifdef _OPENMP
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

namespace {

/// Runs body(thread) on so many threads, numbered from 0, the caller among
/// them, and waits.
#ifdef _OPENMP
bool isInLoop() { return omp_in_parallel(); }
int64_t ownNumber() { return omp_get_thread_num(); }

template <typename Body> void onThreads(int count, const Body &body) {
#pragma omp parallel num_threads(count)
  body(int64_t{omp_get_thread_num()});
}
#else
thread_local int64_t numberInLoop = -1;

bool isInLoop() { return numberInLoop >= 0; }
int64_t ownNumber() { return numberInLoop; }

template <typename Body> void onThreads(int count, const Body &body) {
  const auto run = [&body](int64_t number) {
    numberInLoop = number;
    body(number);
    numberInLoop = -1;
  };
  std::vector<std::thread> others;
  for (int i = 1; i < count; ++i)
    others.emplace_back(run, i);
  run(0);
  for (std::thread &other : others)
    other.join();
}
#endif

} // namespace

void stem_parallel_for(stem_context *context, int64_t tasks,
                       stem_parallel_body body, void *captures) {
  if (tasks <= 0 || !body)
    return;
  int64_t wanted = context ? context->threads : 1;
  int threads = static_cast<int>(std::min(wanted, tasks));
  // A nested loop keeps its thread's number: what the number indexes (scratch
  // memory) belongs to that thread alone.
  if (threads == 1 || isInLoop()) {
    int64_t thread = isInLoop() ? ownNumber() : 0;
    for (int64_t task = 0; task < tasks; ++task)
      body(captures, task, thread);
    return;
  }
  // A counter rather than schedule(dynamic): tasks start in rising order
  // whatever OMP_SCHEDULE and the modifiers of the implementation say. Small
  // tasks are taken several at a time: threads that count on the same line of
  // memory wait for each other.
  const int64_t each = std::clamp<int64_t>(tasks / (threads * 64), 1, 16);
  std::atomic<int64_t> next{0};
  onThreads(threads, [&](int64_t thread) {
    for (int64_t first = next.fetch_add(each, std::memory_order_relaxed);
         first < tasks; first = next.fetch_add(each, std::memory_order_relaxed))
      for (int64_t task = first; task < std::min(first + each, tasks); ++task)
        body(captures, task, thread);
  });
}
