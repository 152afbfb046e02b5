//===- IndexFuzzer.cpp - Any bytes as a shard index -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/TensorSource.h"
#include "stem/Support/Error.h"

using namespace stem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  try {
    for (const IndexEntry &entry : parseSafetensorsIndex(text, "fuzz")) {
      // No accepted name leads out of the folder.
      if (entry.file.find('/') != std::string::npos ||
          entry.file.find('\0') != std::string::npos || entry.file == "..")
        __builtin_trap();
    }
  } catch (const Error &) {
  }
  return 0;
}
