//===- OutputFile.h - Where a command may write a file ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_OUTPUTFILE_H
#define STEM_TOOLS_STEM_RUN_OUTPUTFILE_H

#include <filesystem>
#include <string>

namespace stem {

/// Throws where something is at `path` that the new file must not replace: with
/// `force` all but a regular file, which pipes, devices and links are not.
/// `name` stands for the path in messages.
void requireReplaceable(const std::filesystem::path &path,
                        const std::string &name, bool force);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_OUTPUTFILE_H
