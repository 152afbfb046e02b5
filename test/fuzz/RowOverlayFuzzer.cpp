//===- RowOverlayFuzzer.cpp - Any bytes as a row overlay ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/RowOverlay.h"
#include "stem/Support/Error.h"

using namespace stem;

static void require(bool condition) {
  if (!condition)
    __builtin_trap();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    const RowOverlay overlay =
        RowOverlay::parse(std::as_bytes(std::span(data, size)), "fuzz");
    require(!overlay.ids.empty() && overlay.ids.front() >= 0);
    for (size_t i = 1; i < overlay.ids.size(); ++i)
      require(overlay.ids[i - 1] < overlay.ids[i]);
    require(!overlay.tables.empty() && overlay.bytes() <= size);
    for (size_t i = 0; i < overlay.tables.size(); ++i) {
      const RowOverlay::Table &table = overlay.tables[i];
      require(i == 0 || overlay.tables[i - 1].layer < table.layer);
      require(dtypeBytes(table.dtype, overlay.ids.size() * table.columns) ==
              table.rows.size());
    }
  } catch (const Error &) {
  }
  return 0;
}
