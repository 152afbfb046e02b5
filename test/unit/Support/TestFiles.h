//===- TestFiles.h - Helpers for tests that read and write files *- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_SUPPORT_TESTFILES_H
#define STEM_TEST_UNIT_SUPPORT_TESTFILES_H

#include "stem/Support/Error.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <initializer_list>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>

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

/// A folder that goes when the test ends.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "stem-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw std::runtime_error("mkdtemp failed");
    folder = std::filesystem::canonical(pattern);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  const std::filesystem::path &path() const { return folder; }
  std::filesystem::path operator/(const std::string &name) const {
    return folder / name;
  }
  /// Names in the folder, hidden ones too.
  size_t entryCount() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder),
                      std::filesystem::directory_iterator()));
  }

private:
  std::filesystem::path folder;
};

/// The names in a folder, hidden ones too.
inline std::set<std::string> namesIn(const std::filesystem::path &folder) {
  std::set<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

/// As if nothing had been written there for so many hours.
inline void makeOld(const std::filesystem::path &path, int hours) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() -
                std::chrono::hours(hours));
}

inline void writeText(const std::filesystem::path &path,
                      const std::string &text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string readText(const std::filesystem::path &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

} // namespace stem::test

#endif // STEM_TEST_UNIT_SUPPORT_TESTFILES_H
