//===- ShallowJson.h - Small JSON objects of our own files ------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_SUPPORT_SHALLOWJSON_H
#define STEM_SUPPORT_SHALLOWJSON_H

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace stem {

/// An object that nests few levels deep, keys in their order; nothing for any
/// other text. Files that Stem writes for itself hold no more.
std::optional<nlohmann::ordered_json> parseShallowObject(std::string_view text);

} // namespace stem

#endif // STEM_SUPPORT_SHALLOWJSON_H
