//===- ModelingFile.h - The Python file of a converted folder -----------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_MODELINGFILE_H
#define STEM_TOOLS_STEM_RUN_MODELINGFILE_H

#include <string_view>

namespace stem {

/// resources/modeling_stem_llama.py, with which transformers loads the folder.
extern const std::string_view modelingFileText;

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_MODELINGFILE_H
