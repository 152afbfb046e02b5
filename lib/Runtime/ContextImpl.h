//===- ContextImpl.h - What lies behind stem_context ------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_RUNTIME_CONTEXTIMPL_H
#define STEM_LIB_RUNTIME_CONTEXTIMPL_H

#include "stem-c/Runtime.h"
#include "stem/Runtime/Tensor.h"

#include <exception>
#include <fmt/format.h>
#include <mutex>
#include <new>

namespace stem {
struct MatrixKernels;
}

struct stem_context {
  int32_t threads = 1;
  stem_isa isa = STEM_ISA_NATIVE;
  const stem::MatrixKernels *kernels = nullptr;
  /// Tasks of a parallel region may fail at the same time.
  std::mutex messageMutex;
  /// Of a fixed size: a message about a failed allocation allocates nothing.
  char message[1024] = "";
};

namespace stem {

/// Leaves a message in the context, if there is one, and returns `status`.
template <typename... Args>
stem_status report(stem_context *context, stem_status status,
                   fmt::format_string<Args...> format, Args &&...args) {
  if (!context)
    return status;
  std::lock_guard<std::mutex> lock(context->messageMutex);
  auto end = fmt::format_to_n(context->message, sizeof(context->message) - 1,
                              format, std::forward<Args>(args)...);
  *end.out = '\0';
  return status;
}

/// Runs the body of a C entry point; no exception leaves it.
template <typename Body>
stem_status guarded(stem_context *context, const char *function,
                    Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return report(context, STEM_OUT_OF_MEMORY, "{}: out of memory", function);
  } catch (const std::exception &error) {
    return report(context, STEM_INTERNAL, "{}: {}", function, error.what());
  }
}

/// Refuses a struct of another size: it comes from another version of the
/// interface.
inline stem_status checkStructSize(stem_context *context, const char *name,
                                   uint64_t seen, uint64_t wanted) {
  if (seen == wanted)
    return STEM_OK;
  return report(context, STEM_INCOMPATIBLE,
                "{} has struct_size {} but this runtime knows {} bytes; set "
                "struct_size to sizeof({}) and build with this runtime's "
                "header",
                name, seen, wanted, name);
}

} // namespace stem

#endif // STEM_LIB_RUNTIME_CONTEXTIMPL_H
