//===- LayerSelection.cpp - Which layers a conversion takes ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/LayerSelection.h"

#include "stem/Support/Error.h"

#include <charconv>
#include <set>

using namespace stem;

static uint64_t parseLayer(std::string_view text, uint64_t count,
                           std::string_view also) {
  uint64_t layer = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc() || end != text.data() + text.size())
    fail("layers: '{}' is not a layer's number; wanted {}1/3, 1/2, all, "
         "or numbers from 0 separated by commas",
         text, also);
  if (layer >= count)
    fail("layers: the model has no layer {}; its layers are 0 to {}", layer,
         count - 1);
  return layer;
}

std::vector<uint64_t> stem::parseLayerSelection(std::string_view text,
                                                uint64_t count,
                                                std::string_view also) {
  if (count == 0)
    fail("layers: the model has none");
  std::vector<uint64_t> result;
  auto everyNth = [&](uint64_t first, uint64_t step) {
    for (uint64_t layer = first; layer < count; layer += step)
      result.push_back(layer);
    if (result.empty())
      fail("layers: '{}' selects none of {} layers", text, count);
    return result;
  };
  if (text == "1/3")
    return everyNth(2, 3);
  if (text == "1/2")
    return everyNth(1, 2);
  if (text == "all")
    return everyNth(1, 1);
  std::set<uint64_t> layers;
  while (true) {
    size_t comma = text.find(',');
    uint64_t layer = parseLayer(text.substr(0, comma), count, also);
    if (!layers.insert(layer).second)
      fail("layers: layer {} is named twice", layer);
    if (comma == std::string_view::npos)
      break;
    text.remove_prefix(comma + 1);
  }
  return {layers.begin(), layers.end()};
}
