//===- Checkpoint.cpp - A model on disk, opened and checked ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Model/Checkpoint.h"

#include "stem/Support/Error.h"
#include "stem/Support/Files.h"
#include "stem/Support/Format.h"

#include <algorithm>

using namespace stem;
namespace fs = std::filesystem;

/// And generation_config.json where there is one beside it.
void Checkpoint::readConfig(const fs::path &file) {
  modelConfig = ModelConfig::parse(readModelText(file), file.string());
  const fs::path generation = file.parent_path() / "generation_config.json";
  if (pathExists(generation))
    generationConfig = GenerationConfig::parse(
        readModelText(generation), generation.string(), modelConfig);
}

Checkpoint Checkpoint::open(const fs::path &path, const OpenOptions &options) {
  Checkpoint result;
  result.location = path;
  if (!pathExists(path))
    fail("{}: no such file or folder; a Hugging Face folder or a GGUF file was "
         "expected",
         printable(path.string()));
  if (isFolder(path)) {
    const fs::path config = path / "config.json";
    if (!pathExists(config))
      fail("{}: there is no config.json; a Hugging Face folder has one",
           path.string());
    result.readConfig(config);
    result.source = openSafetensorsFolder(path, options);
  } else if (path.extension() == ".safetensors") {
    fail("{}: give the folder that holds this file and config.json",
         path.string());
  } else {
    result.ggufFile = std::make_shared<const GgufFile>(GgufFile::open(path));
    const GgufFile &file = *result.ggufFile;
    result.modelConfig = ModelConfig::parse(
        ggufConfigText(file), path.string() + ": config from metadata");
    result.generationConfig = GenerationConfig::parse(
        ggufGenerationConfigText(file), path.string(), result.modelConfig);
    result.source = openGgufTensors(result.ggufFile);
  }
  result.modelWeights =
      ModelWeights::resolve(result.modelConfig, *result.source);
  return result;
}

void Checkpoint::attach(const RowOverlay &overlay) {
  overlay.requireTables(*this);
  for (const RowOverlay::Table &table : overlay.tables)
    source->overlayRows(modelWeights.layers[table.layer].upTable, overlay.ids,
                        table.rows);
}

Checkpoint Checkpoint::fromConfig(
    const fs::path &file,
    const std::function<std::unique_ptr<TensorSource>(ModelConfig &config)>
        &makeTensors) {
  if (!pathExists(file))
    fail("{}: no such file; a model's config.json was expected",
         printable(file.string()));
  if (isFolder(file))
    fail("{}: is a folder; give the config.json in it", file.string());
  Checkpoint result;
  result.location = file.has_parent_path() ? file.parent_path() : ".";
  result.readConfig(file);
  result.source = makeTensors(result.modelConfig);
  result.modelWeights =
      ModelWeights::resolve(result.modelConfig, *result.source);
  return result;
}

std::vector<int64_t> Checkpoint::endTokens() const {
  std::vector<int64_t> result = generationConfig.endTokens;
  for (const int64_t id : modelConfig.eosTokens)
    if (std::find(result.begin(), result.end(), id) == result.end())
      result.push_back(id);
  return result;
}

std::vector<std::string> Checkpoint::warnings() const {
  std::vector<std::string> result = modelConfig.warnings;
  result.insert(result.end(), source->warnings().begin(),
                source->warnings().end());
  return result;
}
