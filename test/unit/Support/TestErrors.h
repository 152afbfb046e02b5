//===- TestErrors.h - Helpers for tests of messages -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_SUPPORT_TESTERRORS_H
#define STEM_TEST_UNIT_SUPPORT_TESTERRORS_H

#include "stem/Support/Error.h"

#include <gtest/gtest.h>
#include <initializer_list>
#include <string>

namespace stem::test {

/// The message of the Error that `call` throws, "(no error)" for none.
template <typename Call> std::string errorOf(Call call) {
  try {
    call();
  } catch (const Error &error) {
    return error.what();
  }
  return "(no error)";
}

inline testing::AssertionResult
hasAll(const std::string &message, std::initializer_list<std::string> parts) {
  for (const std::string &part : parts)
    if (message.find(part) == std::string::npos)
      return testing::AssertionFailure()
             << "\"" << part << "\" is not in: " << message;
  return testing::AssertionSuccess();
}

/// EXPECT_ERROR(parse(text), "part of the message", "another part");
#define EXPECT_ERROR(expression, ...)                                          \
  EXPECT_TRUE(::stem::test::hasAll(                                            \
      ::stem::test::errorOf([&] { (void)(expression); }), {__VA_ARGS__}))

inline void expectContains(const std::string &message,
                           const std::string &part) {
  EXPECT_TRUE(hasAll(message, {part}));
}

} // namespace stem::test

#endif // STEM_TEST_UNIT_SUPPORT_TESTERRORS_H
