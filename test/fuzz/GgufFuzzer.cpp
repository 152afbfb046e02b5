//===- GgufFuzzer.cpp - Any bytes as a GGUF file --------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Checkpoint.h"
#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;

namespace {

template <typename Call> void tolerateErrors(Call call) {
  try {
    call();
  } catch (const Error &) {
  }
}

void readValues(const GgufFile &file) {
  for (const auto &[key, value] : file.metadata()) {
    tolerateErrors([&] { file.getString(key); });
    tolerateErrors([&] { file.getUnsigned(key); });
    tolerateErrors([&] { file.getDouble(key); });
    tolerateErrors([&] { file.getBool(key); });
    tolerateErrors([&] { file.getStrings(key); });
    tolerateErrors([&] { file.getIntegers(key); });
    tolerateErrors([&] { file.getDoubles(key); });
  }
}

void readRows(const TensorSource &source) {
  for (const TensorInfo &info : source.tensors()) {
    const uint64_t elements = info.rowElements();
    if (info.rows() == 0 || elements > 1 << 16)
      continue;
    std::vector<float> row(elements);
    source.readF32(info.name, info.rows() - 1, 1, row.data());
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tolerateErrors([&] {
    const auto file = std::make_shared<const GgufFile>(
        GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz"));
    readValues(*file);
    tolerateErrors([&] { ggufGenerationConfigText(*file); });
    tolerateErrors([&] { readRows(*openGgufTensors(file)); });
    // What we rebuild is a config that we read or refuse with an Error.
    const ModelConfig config =
        ModelConfig::parse(ggufConfigText(*file), "fuzz");
    ModelWeights::resolve(config, *openGgufTensors(file));
  });
  return 0;
}
