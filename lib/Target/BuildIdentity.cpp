//===- BuildIdentity.cpp - What makes compiled code -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BuildIdentity.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fmt/ranges.h>
#include <link.h>
#include <set>

using namespace stem;

/// Other libraries do not change code, and what is loaded besides (modules,
/// preloaded tools) would only spoil the key.
static bool makesCode(llvm::StringRef path) {
  llvm::StringRef name = llvm::sys::path::filename(path);
  return name.starts_with("libLLVM") || name.starts_with("libMLIR") ||
         name.starts_with("libStem");
}

static std::string describe(const std::string &path) {
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status))
    return path;
  auto time = status.getLastModificationTime().time_since_epoch().count();
  return fmt::format("{} {} {}", path, status.getSize(), time);
}

static std::string describeObjects() {
  static int anchor;
  std::set<std::string> lines = {
      describe(llvm::sys::fs::getMainExecutable(nullptr, &anchor))};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *found) {
        if (makesCode(info->dlpi_name))
          static_cast<std::set<std::string> *>(found)->insert(
              describe(info->dlpi_name));
        return 0;
      },
      &lines);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

const std::string &stem::buildIdentity() {
  static const std::string identity = describeObjects();
  return identity;
}
