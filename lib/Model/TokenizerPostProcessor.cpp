//===- TokenizerPostProcessor.cpp - Begin and end tokens ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenizerPostProcessor.h"

#include <algorithm>

namespace stem {

void PostProcessor::apply(std::vector<int32_t> &ids) const {
  for (const auto &[before, after] : templates) {
    bool begins = ids.size() >= before.size() &&
                  std::equal(before.begin(), before.end(), ids.begin());
    if (!begins)
      ids.insert(ids.begin(), before.begin(), before.end());
    bool ends = ids.size() >= after.size() &&
                std::equal(after.rbegin(), after.rend(), ids.rbegin());
    if (!ends)
      ids.insert(ids.end(), after.begin(), after.end());
  }
}

bool PostProcessor::addsBegin() const {
  return std::any_of(templates.begin(), templates.end(),
                     [](const Template &t) { return !t.before.empty(); });
}

bool PostProcessor::addsEnd() const {
  return std::any_of(templates.begin(), templates.end(),
                     [](const Template &t) { return !t.after.empty(); });
}

void PostProcessor::addTemplate(const JsonNode &node,
                                const std::function<bool(int32_t)> &isToken) {
  node.allowKeys({"type", "single", "pair", "special_tokens"});
  Template result;
  bool seenText = false;
  for (const JsonNode &piece : node.at("single").elements()) {
    piece.allowKeys({"SpecialToken", "Sequence"});
    if (std::optional<JsonNode> sequence = piece.find("Sequence")) {
      if (seenText || sequence->getString("id") != "A")
        sequence->refuse("expected the sequence A once");
      seenText = true;
      continue;
    }
    std::string name = piece.at("SpecialToken").getString("id");
    JsonNode entry = node.at("special_tokens").at(name.c_str());
    for (const JsonNode &id : entry.at("ids").elements()) {
      if (!isToken(id.id()))
        id.refuse("no token has the id {}", id.id());
      (seenText ? result.after : result.before).push_back(id.id());
    }
  }
  if (!seenText)
    node.refuse("'single' does not contain the sequence A, which is the text");
  templates.push_back(std::move(result));
}

void PostProcessor::add(const JsonNode &node,
                        const std::function<bool(int32_t)> &isToken) {
  const std::string &type = node.type();
  if (type == "Sequence") {
    node.allowKeys({"type", "processors"});
    for (const JsonNode &element : node.at("processors").elements())
      add(element, isToken);
  } else if (type == "TemplateProcessing") {
    addTemplate(node, isToken);
  } else if (type == "ByteLevel") {
    // It moves offsets, which ids do not have.
    node.allowKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else {
    node.refuse("the post-processor '{}' is not supported; known are "
                "Sequence, TemplateProcessing and ByteLevel",
                type);
  }
}

} // namespace stem
