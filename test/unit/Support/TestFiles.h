//===- TestFiles.h - Helpers for tests that read and write files *- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TEST_UNIT_SUPPORT_TESTFILES_H
#define STEM_TEST_UNIT_SUPPORT_TESTFILES_H

#include "TestErrors.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace stem::test {

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
