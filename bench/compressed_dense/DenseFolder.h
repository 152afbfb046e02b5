//===- DenseFolder.h - Some layers of a model, some changed ---------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_BENCH_COMPRESSED_DENSE_DENSEFOLDER_H
#define STEM_BENCH_COMPRESSED_DENSE_DENSEFOLDER_H

#include "Json.h"

#include "stem/Model/Checkpoint.h"
#include "stem/Model/ModelFolder.h"

#include <cstdint>
#include <map>
#include <vector>

namespace stem {

struct ChangedModel {
  std::vector<uint64_t> layers; ///< of the source that stay, rising
  std::map<uint64_t, std::vector<float>> down; ///< new W_down, by these
};

/// config.json of the model with these layers alone. Fails where a key means
/// other layers then.
std::string configWithLayers(const Checkpoint &checkpoint,
                             const std::vector<uint64_t> &layers);

void writeDenseFolder(ModelFolderWriter &writer, const Checkpoint &checkpoint,
                      const ChangedModel &model, const Json &provenance);

} // namespace stem

#endif // STEM_BENCH_COMPRESSED_DENSE_DENSEFOLDER_H
