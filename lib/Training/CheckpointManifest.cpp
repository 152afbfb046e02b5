//===- CheckpointManifest.cpp - The files of a checkpoint -----------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Training/CheckpointManifest.h"

#include "stem/Support/Error.h"
#include "stem/Support/ShallowJson.h"

#include <algorithm>

using namespace stem;
using nlohmann::ordered_json;

static constexpr const char *kFormat = "stem-training-checkpoint";
static constexpr int kVersion = 1;

std::string CheckpointManifest::text() const {
  ordered_json list = ordered_json::array();
  for (const File &file : files)
    list.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  const ordered_json json = {{"format", kFormat},
                             {"version", kVersion},
                             {"step", step},
                             {"files", list}};
  return json.dump(2) + "\n";
}

/// A name beside the manifest, not a way out of the folder.
static bool isPlainName(const std::string &name) {
  return !name.empty() && name.front() != '.' &&
         name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// Adds the file that an entry of the list describes.
static bool addFile(const ordered_json &entry,
                    std::vector<CheckpointManifest::File> &files) {
  if (!entry.is_object())
    return false;
  const ordered_json name = entry.value("name", ordered_json()),
                     bytes = entry.value("bytes", ordered_json()),
                     sha256 = entry.value("sha256", ordered_json());
  if (!name.is_string() || !bytes.is_number_unsigned() || !sha256.is_string())
    return false;
  files.push_back({name, bytes, sha256});
  return isPlainName(files.back().name);
}

CheckpointManifest CheckpointManifest::parse(std::string_view text,
                                             const std::string &name) {
  const auto json = parseShallowObject(text);
  if (!json)
    fail("{}: is no JSON object, or one that nests too deep", name);
  const auto value = [&](const char *key) {
    return json->value(key, ordered_json());
  };
  if (value("format") != kFormat)
    fail("{}: \"format\" is not \"{}\"", name, kFormat);
  if (value("version") != kVersion)
    fail("{}: \"version\" is not {}, which this program reads", name, kVersion);
  const ordered_json step = value("step"), list = value("files");
  if (!step.is_number_unsigned() || step > INT64_MAX)
    fail("{}: \"step\" is not a whole number from 0", name);
  CheckpointManifest manifest;
  manifest.step = step.get<int64_t>();
  bool isGood = list.is_array();
  for (size_t i = 0; isGood && i < list.size(); ++i)
    isGood = addFile(list[i], manifest.files);
  if (!isGood)
    fail("{}: \"files\" is not a list of files with name, bytes and sha256",
         name);
  if (std::ranges::find(manifest.files, runFile, &File::name) ==
      manifest.files.end())
    fail("{}: \"files\" does not list {}", name, runFile);
  return manifest;
}
