//===- Parallel.h - Loops on the threads of a context -----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_PARALLEL_H
#define STEM_RUNTIME_PARALLEL_H

#include "stem-c/Runtime.h"

#include <exception>
#include <mutex>
#include <type_traits>

namespace stem {

/// Runs body(task) or body(task, thread) for every task in [0, tasks) on the
/// context's threads, see stem_parallel_for. All tasks run; then the first
/// exception that one threw comes out.
template <typename Body>
void parallelFor(stem_context *context, int64_t tasks, const Body &body) {
  struct State {
    const Body &body;
    std::mutex mutex;
    std::exception_ptr error;
  } state = {body, {}, nullptr};
  stem_parallel_for(
      context, tasks,
      [](void *captures, int64_t task, int64_t thread) {
        State &state = *static_cast<State *>(captures);
        try {
          if constexpr (std::is_invocable_v<const Body &, int64_t, int64_t>)
            state.body(task, thread);
          else
            state.body(task);
        } catch (...) {
          std::lock_guard<std::mutex> lock(state.mutex);
          if (!state.error)
            state.error = std::current_exception();
        }
      },
      &state);
  if (state.error)
    std::rethrow_exception(state.error);
}

} // namespace stem

#endif // STEM_RUNTIME_PARALLEL_H
