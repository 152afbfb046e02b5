//===- JsonText.cpp - Parsing JSON strictly -------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "JsonText.h"

#include "FileIO.h"
#include "stem/Support/Error.h"

#include <set>
#include <vector>

using namespace stem;
using nlohmann::ordered_json;

ordered_json stem::parseJsonObject(std::string_view text,
                                   const std::string &name) {
  constexpr int maximumDepth = 64;
  std::vector<std::set<std::string>> keys; // of the objects that are open
  const auto check = [&](int depth, ordered_json::parse_event_t event,
                         ordered_json &value) {
    if (depth > maximumDepth)
      fail("{}: JSON nested more than {} levels deep", name, maximumDepth);
    if (event == ordered_json::parse_event_t::object_start)
      keys.emplace_back();
    else if (event == ordered_json::parse_event_t::object_end)
      keys.pop_back();
    else if (event == ordered_json::parse_event_t::key &&
             !keys.back().insert(value.get<std::string>()).second)
      fail("{}: key \"{}\" appears twice in one object", name,
           printable(value.get<std::string>()));
    return true;
  };
  ordered_json result;
  try {
    result = ordered_json::parse(text, check);
  } catch (const ordered_json::exception &error) {
    const std::string foreign = foreignFormat(std::as_bytes(std::span(text)));
    if (!foreign.empty())
      fail("{}: not JSON: it is {}", name, foreign);
    fail("{}: not valid JSON in UTF-8: {}", name, printable(error.what()));
  }
  if (!result.is_object())
    fail("{}: a JSON object was expected, found {}", name, result.type_name());
  return result;
}

std::string stem::describeJson(const ordered_json &value) {
  return printable(
      value.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}
