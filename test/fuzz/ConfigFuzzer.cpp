//===- ConfigFuzzer.cpp - Any bytes as config.json ------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/ModelConfig.h"
#include "stem/Support/Error.h"

#include <cmath>

using namespace stem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  try {
    ModelConfig model;
    model.vocabSize = 1000;
    for (const int64_t id :
         GenerationConfig::parse(text, "fuzz", model).endTokens)
      if (id < 0 || id >= 1000)
        __builtin_trap();
  } catch (const Error &) {
  }
  try {
    const ModelConfig config = ModelConfig::parse(text, "fuzz");
    if (config.heads % config.kvHeads || config.headDim % 2)
      __builtin_trap();
    if (config.headDim <= 4096)
      for (const float f : config.rope.inverseFrequencies(config.headDim))
        if (!(f >= 0))
          __builtin_trap();
    configWithDType(config.sourceText, DType::BF16);
    if (config.stem) {
      const std::string written =
          configWithStem(config.sourceText, *config.stem);
      const StemSection again = *ModelConfig::parse(written, "fuzz").stem;
      if (again.layers != config.stem->layers ||
          again.ranks != config.stem->ranks)
        __builtin_trap();
    }
  } catch (const Error &) {
  }
  return 0;
}
