//===- Checkpoint.h - A model on disk, opened and checked -------*- C++ -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_MODEL_CHECKPOINT_H
#define STEM_MODEL_CHECKPOINT_H

#include "stem/Model/Gguf.h"
#include "stem/Model/ModelConfig.h"
#include "stem/Model/ModelWeights.h"
#include "stem/Model/RowOverlay.h"
#include "stem/Model/TensorSource.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stem {

/// A Hugging Face folder or a GGUF file. Opening reads headers only.
class Checkpoint {
public:
  /// Throws for what is missing, malformed, inconsistent or unsupported.
  static Checkpoint open(const std::filesystem::path &path,
                         const OpenOptions &options = {});

  /// A model that a config.json alone describes; a tokenizer and
  /// generation_config.json may lie beside it. The tensors are those that
  /// `makeTensors` gives; it may complete the config.
  static Checkpoint fromConfig(
      const std::filesystem::path &file,
      const std::function<std::unique_ptr<TensorSource>(ModelConfig &config)>
          &makeTensors);

  /// A folder, or a GGUF file.
  const std::filesystem::path &path() const { return location; }
  const ModelConfig &config() const { return modelConfig; }
  const ModelWeights &weights() const { return modelWeights; }
  const TensorSource &tensors() const { return *source; }

  /// From now on tensors() has the overlay's rows in the place of the tables'.
  /// Of several the later ones win.
  void attach(const RowOverlay &overlay);

  /// The file, when it is one: the tokenizer is read from its metadata. Null
  /// for a folder.
  const GgufFile *gguf() const { return ggufFile.get(); }

  /// End tokens of generation_config.json and config.json together.
  std::vector<int64_t> endTokens() const;

  /// Of generation_config.json; a GGUF file has none.
  std::optional<double> repetitionPenalty() const {
    return generationConfig.repetitionPenalty;
  }

  /// For the user: unknown config keys, defaults assumed, files passed over.
  std::vector<std::string> warnings() const;

private:
  void readConfig(const std::filesystem::path &file);

  std::filesystem::path location;
  ModelConfig modelConfig;
  ModelWeights modelWeights;
  std::shared_ptr<const GgufFile> ggufFile;
  std::unique_ptr<TensorSource> source;
  GenerationConfig generationConfig;
};

/// \name A GGUF file as a Hugging Face checkpoint
/// Architectures llama (Mistral too), qwen2, qwen3, olmo2 and smollm3. Tensors
/// get their Hugging Face names; the rows of q and k that the exporter
/// interleaved for llama and smollm3 are put back.
/// @{
std::unique_ptr<TensorSource>
openGgufTensors(std::shared_ptr<const GgufFile> file);

/// config.json rebuilt from the metadata.
std::string ggufConfigText(const GgufFile &file);

/// generation_config.json rebuilt from the metadata: the beginning and end ids
/// that the file names.
std::string ggufGenerationConfigText(const GgufFile &file);
/// @}

} // namespace stem

#endif // STEM_MODEL_CHECKPOINT_H
