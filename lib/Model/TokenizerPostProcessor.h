//===- TokenizerPostProcessor.h - Begin and end tokens ----------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_TOKENIZERPOSTPROCESSOR_H
#define STEM_LIB_MODEL_TOKENIZERPOSTPROCESSOR_H

#include "TokenizerJson.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace stem {

/// What is put before and after a text's ids.
class PostProcessor {
public:
  PostProcessor() = default;
  /// `isToken` tells the ids that exist.
  PostProcessor(const JsonNode &node,
                const std::function<bool(int32_t)> &isToken) {
    add(node, isToken);
  }

  /// Leaves out what the ids already begin or end with.
  void apply(std::vector<int32_t> &ids) const;

  bool addsBegin() const;
  bool addsEnd() const;

private:
  struct Template {
    std::vector<int32_t> before, after;
  };
  void add(const JsonNode &node, const std::function<bool(int32_t)> &isToken);
  void addTemplate(const JsonNode &node,
                   const std::function<bool(int32_t)> &isToken);

  std::vector<Template> templates;
};

} // namespace stem

#endif // STEM_LIB_MODEL_TOKENIZERPOSTPROCESSOR_H
