//===- OutputFile.cpp - Where a command may write a file ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OutputFile.h"

#include "stem/Support/Error.h"
#include "stem/Support/Format.h"

#include <system_error>

using namespace stem;
namespace fs = std::filesystem;

void stem::requireReplaceable(const fs::path &path, const std::string &name,
                              bool force) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::none)
    fail("{}: {}", printable(name), error.message());
  if (!fs::exists(status))
    return;
  if (!fs::is_regular_file(status))
    fail("{}: exists already and is not a regular file; choose another name",
         name);
  if (!force)
    fail("{}: exists already; choose another name, or --force to replace it",
         name);
}
