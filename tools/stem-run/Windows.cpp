//===- Windows.cpp - The protocol of a perplexity -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Windows.h"

#include <algorithm>

using namespace stem;

std::vector<Window> stem::makeWindows(std::span<const int32_t> ids,
                                      int64_t context, int64_t stride) {
  std::vector<Window> windows;
  const int64_t predictions = static_cast<int64_t>(ids.size()) - 1;
  int64_t scored = 0;
  for (int64_t begin = 0; scored < predictions; begin += stride) {
    const int64_t end = std::min(begin + context, predictions);
    Window window;
    window.ids = ids.subspan(static_cast<size_t>(begin),
                             static_cast<size_t>(end - begin));
    for (int64_t i = begin; i < end; ++i)
      window.labels.push_back(i < scored ? -100
                                         : ids[static_cast<size_t>(i + 1)]);
    scored = end;
    windows.push_back(std::move(window));
  }
  return windows;
}
