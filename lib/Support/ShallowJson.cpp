//===- ShallowJson.cpp - Small JSON objects of our own files --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Support/ShallowJson.h"

#include <utility>

using namespace stem;
using nlohmann::ordered_json;

std::optional<ordered_json> stem::parseShallowObject(std::string_view text) {
  constexpr int mostLevels = 16;
  bool isDeep = false;
  // What is dropped here is not kept, so that no deep value comes to be.
  const auto isKept = [&](int depth, ordered_json::parse_event_t,
                          ordered_json &) {
    isDeep |= depth > mostLevels;
    return !isDeep;
  };
  ordered_json json =
      ordered_json::parse(text, isKept, /*allow_exceptions=*/false);
  if (isDeep || !json.is_object())
    return std::nullopt;
  return std::move(json);
}
