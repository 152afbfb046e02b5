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
#include <map>

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

/// One number for all layers, or one for each entry of "layers".
std::vector<uint64_t> readRanks(ConfigReader &reader, size_t layerCount) {
  const ordered_json *value = reader.find("rank");
  if (!value || !value->is_array())
    return std::vector<uint64_t>(
        layerCount, reader.count("rank", UINT32_MAX, 0).value_or(0));
  if (value->size() != layerCount)
    fail("{}: \"rank\" has {} entries, \"layers\" {}; give one rank for each "
         "layer, or one number for all",
         reader.file(), value->size(), layerCount);
  std::vector<uint64_t> ranks;
  for (const ordered_json &rank : *value) {
    if (!rank.is_number_unsigned() || rank.get<uint64_t>() > UINT32_MAX)
      fail("{}: \"rank\" has {} at {}; an integer from 0 to {} was expected",
           reader.file(), describeJson(rank), ranks.size(), UINT32_MAX);
    ranks.push_back(rank.get<uint64_t>());
  }
  return ranks;
}

void readLayers(ConfigReader &reader, StemSection &stem) {
  const auto layers = reader.integers("layers");
  if (!layers || layers->empty())
    fail("{}: layers is missing or empty", reader.file());
  const std::vector<uint64_t> ranks = readRanks(reader, layers->size());
  std::map<uint64_t, uint64_t> rankOfLayer;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int64_t layer = (*layers)[i];
    if (layer < 0)
      fail("{}: layers has {}; layers count from 0", reader.file(), layer);
    if (!rankOfLayer.emplace(static_cast<uint64_t>(layer), ranks[i]).second)
      fail("{}: layers has {} twice", reader.file(), layer);
  }
  for (const auto &[layer, rank] : rankOfLayer) {
    stem.layers.push_back(layer);
    stem.ranks.push_back(rank);
  }
}

/// A list only where ranks differ: a number says the rest, to any reader.
ordered_json rankJson(const StemSection &stem) {
  if (const auto rank = stem.commonRank())
    return *rank;
  return stem.ranks;
}

ordered_json sectionJson(const StemSection &stem) {
  ordered_json section = {{"version", StemSection::currentVersion},
                          {"base",
                           {{"model_type", stem.baseModelType},
                            {"architectures", stem.baseArchitectures}}},
                          {"layers", stem.layers},
                          {"rank", rankJson(stem)},
                          {"select", stem.select},
                          {"row_dtype", stem.rowDType}};
  if (!stem.provenance.empty())
    section["provenance"] = parseJsonObject(stem.provenance, "stem.provenance");
  return section;
}

} // namespace

uint64_t StemSection::rankOf(uint64_t layer) const {
  const auto found = std::lower_bound(layers.begin(), layers.end(), layer);
  if (ranks.empty() || found == layers.end() || *found != layer)
    return 0;
  return ranks.at(static_cast<size_t>(found - layers.begin()));
}

std::optional<uint64_t> StemSection::commonRank() const {
  if (ranks.empty())
    return 0;
  const bool isCommon =
      std::all_of(ranks.begin(), ranks.end(),
                  [&](uint64_t rank) { return rank == ranks.front(); });
  return isCommon ? std::optional(ranks.front()) : std::nullopt;
}

void StemSection::addLayer(uint64_t layer, uint64_t rank) {
  ranks.resize(layers.size());
  const auto place = std::lower_bound(layers.begin(), layers.end(), layer);
  ranks.insert(ranks.begin() + (place - layers.begin()), rank);
  layers.insert(place, layer);
}

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
