//===- StemSection.cpp - The stem section of config.json ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConfigReader.h"
#include "FileIO.h"
#include "stem/Support/Error.h"

#include <algorithm>

using namespace stem;
using nlohmann::ordered_json;

namespace {

constexpr std::string_view stemModelType = "stem_llama";

constexpr std::string_view sectionKeys[] = {
    "version", "base", "layers", "rank", "select", "row_dtype", "provenance"};

void refuseOtherKeys(const ordered_json &object,
                     std::span<const std::string_view> known,
                     const std::string &file, std::string_view where) {
  for (const auto &[key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("{}: {}.{} is unknown to this version of Stem; a newer one may have "
           "written it",
           file, where, printable(key));
}

void readBase(const ordered_json &section, StemSection &stem,
              const std::string &file) {
  static constexpr std::string_view baseKeys[] = {"model_type",
                                                  "architectures"};
  const auto base = section.find("base");
  if (base == section.end() || !base->is_object())
    fail("{}: stem.base is missing or not an object", file);
  refuseOtherKeys(*base, baseKeys, file, "stem.base");
  ConfigReader reader(*base, file + ": stem.base");
  const auto type = reader.text("model_type");
  if (!type)
    fail("{}: stem.base.model_type is missing", file);
  stem.baseModelType = *type;
  stem.baseArchitectures = reader.texts("architectures");
}

void readLayers(ConfigReader &reader, StemSection &stem) {
  const auto layers = reader.integers("layers");
  if (!layers || layers->empty())
    fail("{}: layers is missing or empty", reader.file());
  for (const int64_t layer : *layers) {
    if (layer < 0)
      fail("{}: layers has {}; layers count from 0", reader.file(), layer);
    stem.layers.push_back(static_cast<uint64_t>(layer));
  }
  std::sort(stem.layers.begin(), stem.layers.end());
  const auto twice = std::adjacent_find(stem.layers.begin(), stem.layers.end());
  if (twice != stem.layers.end())
    fail("{}: layers has {} twice", reader.file(), *twice);
}

ordered_json sectionJson(const StemSection &stem) {
  ordered_json section = {{"version", StemSection::currentVersion},
                          {"base",
                           {{"model_type", stem.baseModelType},
                            {"architectures", stem.baseArchitectures}}},
                          {"layers", stem.layers},
                          {"rank", stem.rank},
                          {"select", stem.select},
                          {"row_dtype", stem.rowDType}};
  if (!stem.provenance.empty())
    section["provenance"] = parseJsonObject(stem.provenance, "stem.provenance");
  return section;
}

} // namespace

std::optional<StemSection> stem::readStemSection(ConfigReader &reader) {
  const ordered_json *section = reader.find("stem");
  const bool isStem = reader.text("model_type") == stemModelType;
  if (!isStem && !section)
    return std::nullopt;
  if (!isStem)
    fail("{}: there is a \"stem\" section but model_type is not \"{}\"",
         reader.file(), stemModelType);
  if (!section || !section->is_object())
    fail("{}: model_type is \"{}\" but there is no \"stem\" section",
         reader.file(), stemModelType);

  ConfigReader fields(*section, reader.file() + ": stem");
  StemSection stem;
  const uint64_t version = fields.requiredCount("version", UINT32_MAX);
  if (version != StemSection::currentVersion)
    fail("{}: stem.version is {}, this program reads {}; use a newer Stem",
         reader.file(), version, StemSection::currentVersion);
  refuseOtherKeys(*section, sectionKeys, reader.file(), "stem");
  readBase(*section, stem, reader.file());
  readLayers(fields, stem);
  stem.rank = fields.count("rank", UINT32_MAX, 0).value_or(0);
  stem.select = fields.boolean("select").value_or(false);
  stem.rowDType = fields.text("row_dtype").value_or("");
  static constexpr std::string_view rowTypes[] = {"float32", "float16",
                                                  "bfloat16", "uint8"};
  if (std::find(std::begin(rowTypes), std::end(rowTypes), stem.rowDType) ==
      std::end(rowTypes))
    fail(
        "{}: stem.row_dtype is \"{}\"; float32, float16, bfloat16 or uint8 was "
        "expected",
        reader.file(), printable(stem.rowDType));
  if (const ordered_json *provenance = fields.find("provenance")) {
    if (!provenance->is_object())
      fields.wrongValue("provenance", *provenance, "an object");
    stem.provenance = provenance->dump();
  }
  return stem;
}

std::string stem::configWithStem(const std::string &text,
                                 const StemSection &stem) {
  ordered_json json = parseJsonObject(text, "config.json");
  if (!json.contains("hidden_size"))
    fail("config.json: a model nested in text_config cannot be converted");
  json["model_type"] = stemModelType;
  json["architectures"] = ordered_json::array({"StemLlamaForCausalLM"});
  json["auto_map"] = {
      {"AutoConfig", fmt::format("{}.StemLlamaConfig", modelingModule)},
      {"AutoModelForCausalLM",
       fmt::format("{}.StemLlamaForCausalLM", modelingModule)}};
  json["stem"] = sectionJson(stem);
  return json.dump(2) + "\n";
}

std::string stem::configWithDType(const std::string &text, DType dtype) {
  ordered_json json = parseJsonObject(text, "config.json");
  const std::string key =
      json.contains("torch_dtype") ? "torch_dtype" : "dtype";
  json[key] = std::string(dtypeConfigName(dtype));
  if (key == "torch_dtype" && json.contains("dtype"))
    json["dtype"] = json[key];
  return json.dump(2) + "\n";
}
