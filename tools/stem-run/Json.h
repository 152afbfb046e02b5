//===- Json.h - The results of the commands as JSON -----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_JSON_H
#define STEM_TOOLS_STEM_RUN_JSON_H

#include "Engine.h"

#include <nlohmann/json.hpp>
#include <string>

namespace stem {

using Json = nlohmann::ordered_json;

/// An object with its schema first: "stem.COMMAND/1".
Json resultObject(const std::string &command);

/// On one line, or indented. Bytes that are no UTF-8, as a path may have,
/// become U+FFFD: JSON has no other text.
std::string jsonText(const Json &json, int indent = -1);

/// Prints one object to standard output, as jsonText.
void printJson(const Json &json);

/// dtype, isa, threads, compile and load seconds, the memory plan, and the
/// lookups of tables so far.
Json engineJson(const Engine &engine);

/// null for what is no finite number.
Json finiteOrNull(double value);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_JSON_H
