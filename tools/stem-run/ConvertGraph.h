//===- ConvertGraph.h - A conversion on the model's IR ------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_CONVERTGRAPH_H
#define STEM_TOOLS_STEM_RUN_CONVERTGRAPH_H

#include "stem/Model/Checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stem {

/// A table that stem-dense-to-lookup put in a matrix's place.
struct NewTable {
  uint64_t layer = 0;
  std::string key;
  uint64_t rows = 0;
  uint64_t columns = 0;
};

struct GraphConversion {
  std::vector<NewTable> tables;  ///< by layer
  std::set<std::string> dropped; ///< tensors that the model no longer reads
};

/// The dense layers that "1/3" (2, 5, 8, ...), "1/2", "all" (all but the first)
/// or a list like "2,5,8" chooses. Patterns pass over layers that are STEM
/// already; a list that names one is an Error, as is a choice of no layer.
/// `also`: as in parseLayerSelection.
std::vector<uint64_t> chooseLayers(const std::string &choice,
                                   const ModelConfig &config,
                                   std::string_view also = "");

/// Builds the model's IR and runs stem-dense-to-lookup on it. `dumpDirectory`
/// gets the module before and after, unless it is empty.
GraphConversion convertGraph(const Checkpoint &checkpoint,
                             const std::vector<uint64_t> &layers,
                             const std::string &init,
                             const std::filesystem::path &dumpDirectory);

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_CONVERTGRAPH_H
