//===- ConfigReader.h - Typed access to config.json -------------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_LIB_MODEL_CONFIGREADER_H
#define STEM_LIB_MODEL_CONFIGREADER_H

#include "JsonText.h"
#include "stem/Model/ModelConfig.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace stem {

/// Reads keys of config.json; where the text model is nested in text_config,
/// its keys come first. A value of the wrong type or out of range is an Error
/// that names file, key and value; null counts as absent. Remembers what was
/// read.
class ConfigReader {
public:
  ConfigReader(const nlohmann::ordered_json &json, const std::string &file);

  const std::string &file() const { return fileName; }
  bool isNested() const { return inner != &root; }

  /// Present and not null.
  bool has(const std::string &key) { return find(key) != nullptr; }
  bool isNull(const std::string &key) const;

  /// The value, marked as read; null when absent or null.
  const nlohmann::ordered_json *find(const std::string &key);

  std::optional<uint64_t> count(const std::string &key, uint64_t maximum,
                                uint64_t minimum = 1);
  uint64_t requiredCount(const std::string &key, uint64_t maximum);
  std::optional<double> number(const std::string &key);
  std::optional<bool> boolean(const std::string &key);
  std::optional<std::string> text(const std::string &key);
  std::optional<int64_t> integer(const std::string &key);
  std::vector<std::string> texts(const std::string &key);
  std::optional<std::vector<int64_t>> integers(const std::string &key);
  std::vector<int64_t> integerOrList(const std::string &key);

  /// Keys that nobody read and that are not known to be without effect.
  std::vector<std::string> unknownKeys() const;

  [[noreturn]] void wrongValue(const std::string &key,
                               const nlohmann::ordered_json &value,
                               std::string_view wanted) const;

private:
  const nlohmann::ordered_json &root;
  const nlohmann::ordered_json *inner;
  std::string fileName;
  std::set<std::string> readKeys;
};

/// Throws for every key whose value asks for mathematics that is not there.
void refuseUnsupportedKeys(ConfigReader &reader);

/// The stem section of model_type stem_llama, else nothing.
std::optional<StemSection> readStemSection(ConfigReader &reader);

/// From rope_parameters (new schema) or rope_theta and rope_scaling (old).
RopeConfig readRope(ConfigReader &reader, const ModelConfig &config);

} // namespace stem

#endif // STEM_LIB_MODEL_CONFIGREADER_H
