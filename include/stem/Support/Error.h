//===- Error.h - Errors that a user can act on ------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// lib/Model, lib/Runtime's C++ side and the tools report bad input by throwing
// stem::Error; a tool's main catches it, prints it and exits with 1. It never
// crosses the C interface of include/stem-c/Runtime.h and never passes through
// MLIR, whose passes report through diagnostics.
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_ERROR_H
#define STEM_SUPPORT_ERROR_H

#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <utility>

namespace stem {

/// A message that says what was seen, what was wanted and what to do, and
/// names the file, tensor, op or flag.
class Error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Throws an Error with a message formatted by fmt.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

} // namespace stem

#endif // STEM_SUPPORT_ERROR_H
