//===- SafetensorsFuzzer.cpp - Any bytes as a safetensors file ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Safetensors.h"
#include "stem/Support/Error.h"

#include <algorithm>
#include <vector>

using namespace stem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    const SafetensorsFile file =
        SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
    // What is accepted covers the data exactly and can be decoded or refused.
    uint64_t bytes = 0;
    for (const TensorView &view : file.tensors()) {
      bytes += view.data.size();
      if (dtypeBytes(view.dtype, *elementCount(view.shape)) != view.data.size())
        __builtin_trap();
      std::vector<float> values(std::min<uint64_t>(
          *elementCount(view.shape), 64 * dtypeBlockElements(view.dtype)));
      try {
        decodeToF32(view.dtype, view.data.data(), values.size(), values.data());
      } catch (const Error &) {
      }
    }
    if (bytes > size)
      __builtin_trap();
  } catch (const Error &) {
  }
  return 0;
}
