//===- JsonText.h - Parsing JSON strictly -----------------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_JSONTEXT_H
#define STEM_LIB_MODEL_JSONTEXT_H

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stem {

/// Parses an object; an Error for bad syntax, a key that appears twice in one
/// object, nesting beyond 64 levels, or a value that is not an object. `name`
/// stands for the file in messages. Keeps the order of keys, at a cost that is
/// quadratic in them: more than 10,000 in one object are an Error.
nlohmann::ordered_json parseJsonObject(std::string_view text,
                                       const std::string &name);

/// The same, keys sorted and without a limit: for the map of an index.
nlohmann::json parseLargeJsonObject(std::string_view text,
                                    const std::string &name);

/// A value for a message: compact, cut short.
std::string describeJson(const nlohmann::ordered_json &value);
std::string describeJson(const nlohmann::json &value);

} // namespace stem

#endif // STEM_LIB_MODEL_JSONTEXT_H
