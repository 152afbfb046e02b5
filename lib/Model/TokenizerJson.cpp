//===- TokenizerJson.cpp - Reading tokenizer.json with named errors -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerJson.h"

#include "FileIO.h"

#include <algorithm>
#include <unordered_set>

namespace stem {

// Components nest through "Sequence"; real files stay below five levels.
static constexpr unsigned MaxDepth = 32;
static constexpr int MaxJsonDepth = 128;

nlohmann::json parseJson(std::string_view text, const std::string &source) {
  using Json = nlohmann::json;
  // Of a key that appears twice the parser would keep one without a word.
  std::vector<std::unordered_set<std::string>> keys;
  auto check = [&](int depth, Json::parse_event_t event, Json &parsed) {
    if (depth > MaxJsonDepth)
      fail("{}: nested deeper than {} levels", source, MaxJsonDepth);
    if (event == Json::parse_event_t::object_start)
      keys.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      keys.pop_back();
    else if (event == Json::parse_event_t::key &&
             !keys.back().insert(parsed.get<std::string>()).second)
      fail("{}: the key '{}' appears twice in one object", source,
           printable(parsed.get_ref<const std::string &>()));
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const nlohmann::json::exception &error) {
    fail("{}: not valid JSON: {}", source, error.what());
  }
}

JsonNode JsonNode::child(const nlohmann::json &value,
                         const std::string &step) const {
  if (depth == MaxDepth)
    refuse("nested deeper than {} levels", MaxDepth);
  bool isRoot = depth == 0;
  std::string path = isRoot ? placeText + ": key '" + step
                            : placeText.substr(0, placeText.size() - 1) +
                                  (step.starts_with('[') ? "" : ".") + step;
  return JsonNode(value, path + "'", depth + 1);
}

void JsonNode::requireObject() const {
  if (!json->is_object())
    refuse("expected an object, found {}", json->type_name());
}

std::optional<JsonNode> JsonNode::find(const char *key) const {
  requireObject();
  auto it = json->find(key);
  if (it == json->end() || it->is_null())
    return std::nullopt;
  return child(*it, key);
}

JsonNode JsonNode::at(const char *key) const {
  std::optional<JsonNode> node = find(key);
  if (!node)
    refuse("'{}' is missing", key);
  return *node;
}

std::vector<JsonNode> JsonNode::elements() const {
  if (!json->is_array())
    refuse("expected an array, found {}", json->type_name());
  std::vector<JsonNode> result;
  result.reserve(json->size());
  for (size_t i = 0; i < json->size(); ++i)
    result.push_back(child((*json)[i], fmt::format("[{}]", i)));
  return result;
}

const std::string &JsonNode::string() const {
  if (!json->is_string())
    refuse("expected a string, found {}", json->type_name());
  return json->get_ref<const std::string &>();
}

int32_t JsonNode::id() const {
  if (!json->is_number_integer())
    refuse("expected a token id, found {}", json->dump());
  if ((json->is_number_unsigned() && json->get<uint64_t>() > INT32_MAX) ||
      (!json->is_number_unsigned() && json->get<int64_t>() < 0))
    refuse("the token id {} is outside 0 to {}", json->dump(), INT32_MAX);
  return json->get<int32_t>();
}

bool JsonNode::getBool(const char *key, bool byDefault) const {
  std::optional<JsonNode> node = find(key);
  if (!node)
    return byDefault;
  if (!node->json->is_boolean())
    node->refuse("expected true or false, found {}", node->json->type_name());
  return node->json->get<bool>();
}

int64_t JsonNode::getInteger(const char *key, int64_t byDefault) const {
  std::optional<JsonNode> node = find(key);
  if (!node)
    return byDefault;
  if (!node->json->is_number_integer() ||
      (node->json->is_number_unsigned() &&
       node->json->get<uint64_t>() > INT32_MAX))
    node->refuse("expected an integer, found {}", node->json->type_name());
  return node->json->get<int64_t>();
}

void JsonNode::allowKeys(std::initializer_list<std::string_view> keys) const {
  requireObject();
  for (const auto &[key, value] : json->items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      refuse("the key '{}' is not supported", key);
}

} // namespace stem
