//===- TokenizerJson.h - Reading tokenizer.json with named errors -*- C++ -*-=//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERJSON_H
#define STEM_LIB_MODEL_TOKENIZERJSON_H

#include "stem/Support/Error.h"

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stem {

/// Parses JSON; the Error names the source.
nlohmann::json parseJson(std::string_view text, const std::string &source);

/// A value of a JSON file together with its place, which every Error names.
class JsonNode {
public:
  JsonNode(const nlohmann::json &value, std::string place, unsigned depth = 0)
      : json(&value), placeText(std::move(place)), depth(depth) {}

  const nlohmann::json &value() const { return *json; }
  /// "FILE: key 'a.b.c'"
  const std::string &place() const { return placeText; }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format,
                           Args &&...args) const {
    fail("{}: {}", placeText, fmt::format(format, std::forward<Args>(args)...));
  }

  /// The value of an object's key; a key that is null counts as absent.
  std::optional<JsonNode> find(const char *key) const;
  JsonNode at(const char *key) const;
  /// The elements of an array.
  std::vector<JsonNode> elements() const;

  const std::string &string() const;
  int32_t id() const;

  std::string getString(const char *key) const { return at(key).string(); }
  bool getBool(const char *key, bool byDefault) const;
  int64_t getInteger(const char *key, int64_t byDefault) const;

  /// "type" of a component.
  const std::string &type() const { return at("type").string(); }

  void requireObject() const;
  /// Refuses keys outside the list: one may change what the component does.
  void allowKeys(std::initializer_list<std::string_view> keys) const;

private:
  JsonNode child(const nlohmann::json &value, const std::string &step) const;

  const nlohmann::json *json;
  std::string placeText;
  unsigned depth;
};

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERJSON_H
