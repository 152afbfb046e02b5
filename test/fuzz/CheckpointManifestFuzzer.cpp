//===- CheckpointManifestFuzzer.cpp - Any bytes as a manifest -------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/Error.h"
#include "stem/Training/CheckpointManifest.h"

#include <cstddef>

using namespace stem;

static void require(bool condition) {
  if (!condition)
    __builtin_trap();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  try {
    const CheckpointManifest manifest = CheckpointManifest::parse(text, "fuzz");
    require(manifest.step >= 0);
    bool hasRun = false;
    for (const CheckpointManifest::File &file : manifest.files) {
      require(!file.name.empty() && file.name[0] != '.');
      require(file.name.find('/') == std::string::npos);
      hasRun |= file.name == CheckpointManifest::runFile;
    }
    require(hasRun);
  } catch (const Error &) {
  }
  return 0;
}
