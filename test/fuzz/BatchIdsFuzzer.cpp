//===- BatchIdsFuzzer.cpp - Any bytes as a file of given ids --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Data/Batch.h"
#include "stem/Support/Error.h"

using namespace stem;

static void require(bool condition) {
  if (!condition)
    __builtin_trap();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    const Batch batch = batchFromTensors(
        SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz"),
        {.vocabulary = 96, .maxPositions = 1000});
    const size_t places = static_cast<size_t>(batch.places());
    require(batch.ids.size() == places && batch.positions.size() == places &&
            batch.sequences.size() == places && batch.labels.size() == places);
    int64_t labels = 0;
    for (size_t i = 0; i < places; ++i) {
      require(batch.ids[i] >= 0 && batch.ids[i] < 96);
      require(batch.positions[i] >= 0 && batch.positions[i] < batch.length);
      require(batch.labels[i] >= -100 && batch.labels[i] < 96);
      labels += batch.labels[i] >= 0;
    }
    require(labels == batch.labelCount);
  } catch (const Error &) {
  }
  return 0;
}
