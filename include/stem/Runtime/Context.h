//===- Context.h - An owned runtime context ---------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The C++ side of stem_context: creation that says why it failed, and statuses
// turned into errors.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_RUNTIME_CONTEXT_H
#define STEM_RUNTIME_CONTEXT_H

#include "stem-c/Runtime.h"

#include <memory>
#include <string_view>

namespace stem {

/// The name of an instruction set, as --max-isa takes it: "avx512bf16".
STEM_EXPORT std::string_view isaName(stem_isa isa);

/// The best instruction set of this CPU that the kernels know; nothing below
/// AVX2 with FMA, which is STEM_ISA_NATIVE.
STEM_EXPORT stem_isa detectIsa();

/// Physical cores that this process may use: one for each pair of siblings in
/// its affinity mask, at most its CPU quota, at least 1.
STEM_EXPORT int physicalCores();

struct ContextDeleter {
  void operator()(stem_context *context) const {
    stem_context_destroy(context);
  }
};
using ContextPtr = std::unique_ptr<stem_context, ContextDeleter>;

struct StoreDeleter {
  void operator()(stem_table_store *store) const {
    stem_table_store_destroy(store);
  }
};
using StorePtr = std::unique_ptr<stem_table_store, StoreDeleter>;

/// A context with `threads` threads (0: one for each physical core) whose
/// kernels use at most `maxIsa`. Throws an Error that names what is wrong.
STEM_EXPORT ContextPtr createContext(int threads = 0,
                                     stem_isa maxIsa = STEM_ISA_NATIVE);

/// Throws the context's message when `status` is not STEM_OK.
STEM_EXPORT void throwIfFailed(const stem_context *context, stem_status status);

} // namespace stem

#endif // STEM_RUNTIME_CONTEXT_H
