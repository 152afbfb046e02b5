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

namespace {

template <typename Json>
Json parseStrictly(std::string_view text, const std::string &name,
                   size_t maximumKeys) {
  constexpr int maximumDepth = 64;
  std::vector<std::set<std::string>> keys; // of the objects that are open
  const auto check = [&](int depth, typename Json::parse_event_t event,
                         Json &value) {
    if (depth > maximumDepth)
      fail("{}: JSON nested more than {} levels deep", name, maximumDepth);
    if (event == Json::parse_event_t::object_start)
      keys.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      keys.pop_back();
    else if (event == Json::parse_event_t::key) {
      const auto key = value.template get<std::string>();
      if (!keys.back().insert(key).second)
        fail("{}: key \"{}\" appears twice in one object", name,
             printable(key));
      if (keys.back().size() > maximumKeys)
        fail("{}: an object has more than {} keys", name, maximumKeys);
    }
    return true;
  };
  Json result;
  try {
    result = Json::parse(text, check);
  } catch (const nlohmann::json::exception &error) {
    const std::string foreign = foreignFormat(std::as_bytes(std::span(text)));
    if (!foreign.empty())
      fail("{}: not JSON: it is {}", name, foreign);
    fail("{}: not valid JSON in UTF-8: {}", name, printable(error.what()));
  }
  if (!result.is_object())
    fail("{}: a JSON object was expected, found {}", name, result.type_name());
  return result;
}

} // namespace

ordered_json stem::parseJsonObject(std::string_view text,
                                   const std::string &name) {
  return parseStrictly<ordered_json>(text, name, 10000);
}

nlohmann::json stem::parseLargeJsonObject(std::string_view text,
                                          const std::string &name) {
  return parseStrictly<nlohmann::json>(text, name, SIZE_MAX);
}

template <typename Json> static std::string describe(const Json &value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string stem::describeJson(const ordered_json &value) {
  return describe(value);
}

std::string stem::describeJson(const nlohmann::json &value) {
  return describe(value);
}
